"""The converter `protobuf`."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Literal

from distcommit.constructs.registry.registry_client import RegisteredSchema
from distcommit.constructs.registry.registry_converter import Decoder, RegistryConverter
from distcommit.core.errors import ConfigurationError
from distcommit.core.support.install_command import install_command


class ProtobufConverter(RegistryConverter, ignored_types=(cached_property,), populate_by_name=True):
    """Converter of Protobuf messages whose schemas are in a schema registry, by the official parser and ptars.

    A missing field without presence has its type's default. A missing field with presence (`optional`, `oneof`,
    messages, wrappers) is null. Timestamps and durations are in microseconds. An enum becomes the name of its value as
    text, or the digits of a number without a name. A message that contains itself, or has no fields, stays bytes.
    Records of different messages of one file are returned separately.

    A record is also rejected if it has an incomplete date, a time beyond a day, a timestamp or duration beyond
    Protobuf's range, a number that a closed enum does not have, or lacks a required field. A schema with a group, or
    with a delimited field of an edition, can't be read. With `evolution: pin`, a message is read as the message at the
    same place in the pinned version: fields that it does not have are ignored, and a number that its type can't hold
    rejects the record.
    """

    type: Literal["protobuf"]
    kind: ClassVar[str] = "PROTOBUF"

    def decoder(self, writer: RegisteredSchema, reader: RegisteredSchema | None) -> Decoder:
        try:
            from distcommit.constructs.registry.protobuf.protobuf_decoder import schema_of  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ConfigurationError(
                "the reader of Protobuf is not installed",
                id="PACKAGE_MISSING",
                found=str(error),
                todo=f"run `{install_command('registry')}` on the driver and on all executors",
            ) from error
        return schema_of(writer, reader)
