"""Protobuf messages whose schemas are in a registry."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Literal

from distcommit.constructs.registry.client import FoundSchema
from distcommit.constructs.registry.converter import Decoder, RegistryConverter
from distcommit.core.errors import ConfigurationError


class ProtobufConverter(
    RegistryConverter, frozen=True, extra="forbid", ignored_types=(cached_property,), populate_by_name=True
):
    """Reads Protobuf by a schema registry, with the official parser and ptars.

    A field without presence that a message does not have is its type's default, one with presence (`optional`, `oneof`,
    messages, wrappers) is null. Timestamps and durations have microseconds; enums are text, a number without a name is
    its digits; a message within itself, or without fields, is its bytes. Records of another message of the same file
    come in a piece of their own.

    Turned away are also: dates that are not whole, times beyond a day, timestamps and durations beyond the range that
    Protobuf gives them, numbers that a closed enum does not have, and messages that lack a required field. A schema
    with a group, or with an edition's delimited field, can't be read. With `evolution: pin`, a message is read as the
    pinned version's of the same place: fields that this does not have are passed over, and a number that its type can't
    hold is turned away.
    """

    type: Literal["protobuf"]
    kind: ClassVar[str] = "PROTOBUF"

    def decoder(self, writer: FoundSchema, reader: FoundSchema | None) -> Decoder:
        try:
            from distcommit.constructs.registry.protobuf.schema import schema_of  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ConfigurationError(
                "what reads Protobuf is not installed",
                expected="distcommit[registry], on the driver's machine and on each executor's",
                found=str(error),
                todo="pip install 'distcommit[registry]'",
            ) from error
        return schema_of(writer, reader)


SETTINGS = ProtobufConverter
