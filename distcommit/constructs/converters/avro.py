"""Avro messages whose schemas are in a registry."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar, Literal

import pyarrow as pa

from distcommit.constructs.registry.client import FoundSchema
from distcommit.constructs.registry.converter import Decoded, Decoder, RegistryConverter
from distcommit.constructs.registry.wire import Framed
from distcommit.formats.avro.datums import Datums
from distcommit.formats.avro.reader import AvroReader, parse


class _AvroDecoder:
    def __init__(self, reader: AvroReader) -> None:
        self._reader = reader

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    def decode(self, framed: Framed) -> Iterator[Decoded]:
        records, wrong = self._reader.read(Datums.of(framed.data, framed.begin, framed.end))
        yield Decoded(records, None, wrong)


class AvroConverter(
    RegistryConverter, frozen=True, extra="forbid", ignored_types=(cached_property,), populate_by_name=True
):
    """Reads Avro by a schema registry.

    Turned away are also: datums that end too early, or have bytes left, text that is not UTF-8, decimals with more
    digits than their precision, and times that are not within a day. With `evolution: pin`, records are resolved as
    Avro's specification says: fields by name or alias, defaults for those that are missing, numbers made wider. Times
    of another unit, whose numbers would be other times, are turned away.
    """

    type: Literal["avro"]
    kind: ClassVar[str] = "AVRO"

    def decoder(self, writer: FoundSchema, reader: FoundSchema | None) -> Decoder:
        parsed = [
            parse(found.text, [text for _, text in found.references]) if found is not None else None
            for found in (writer, reader)
        ]
        assert parsed[0] is not None
        return _AvroDecoder(AvroReader(parsed[0], parsed[1], self.column))


SETTINGS = AvroConverter
