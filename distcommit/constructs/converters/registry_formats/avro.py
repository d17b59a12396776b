"""The converter `avro`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar, Literal

import pyarrow as pa

from distcommit.avro.datum_reader import AvroReader, parse
from distcommit.avro.lockstep_decoding import Datums
from distcommit.constructs.registry.registry_client import RegisteredSchema
from distcommit.constructs.registry.registry_converter import Decoded, Decoder, RegistryConverter
from distcommit.constructs.registry.wire_format import Framed


class _AvroDecoder:
    def __init__(self, reader: AvroReader) -> None:
        self._reader = reader

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    def decode(self, framed: Framed) -> Iterator[Decoded]:
        records, wrong = self._reader.read(Datums.of(framed.data, framed.begin, framed.end))
        yield Decoded(records, None, wrong)


class AvroConverter(RegistryConverter, ignored_types=(cached_property,), populate_by_name=True):
    """Converter of Avro messages whose schemas are in a schema registry.

    A record is also rejected if its datum ends too early or has extra bytes, its text is not UTF-8, a decimal has more
    digits than its precision, or a time of day is not within a day. With `evolution: pin`, records are resolved as
    Avro's specification demands: fields by name or alias, defaults for missing fields, promotion to wider numbers. A
    time of another unit is rejected, because its number would mean another time.
    """

    type: Literal["avro"]
    kind: ClassVar[str] = "AVRO"

    def decoder(self, writer: RegisteredSchema, reader: RegisteredSchema | None) -> Decoder:
        parsed = [
            parse(schema.text, [text for _, text in schema.references]) if schema is not None else None
            for schema in (writer, reader)
        ]
        assert parsed[0] is not None
        return _AvroDecoder(AvroReader(parsed[0], parsed[1], self.column))
