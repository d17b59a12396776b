"""Parser of Avro schemas and decoder of datums (Apache Avro 1.12 specification, Schema Declaration and Schema
Resolution)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import fastavro
import numpy as np
import pyarrow as pa

from distcommit.avro import AvroSchema, column_decoders
from distcommit.avro.lockstep_decoding import REASONS, Datums, Fault
from distcommit.avro.schema_resolution import Resolution
from distcommit.schemas.schema_size_limits import (
    MAX_FIXED_BYTES,
    Expansion,
    SchemaTooLargeError,
    UnusableSchemaError,
    fixed_bytes,
)


@dataclass(frozen=True, slots=True)
class ParsedSchema:
    """An Avro schema in which types have full names.

    Attributes:
        root: type of the datums.
        named: definitions of named types by full name, including those of referenced schemas.
    """

    root: AvroSchema
    named: Mapping[str, AvroSchema]


def parse(text: str, referenced: Sequence[str] = ()) -> ParsedSchema:
    """Parse a schema; raises UnusableSchemaError.

    Args:
        text: the schema's JSON text.
        referenced: JSON texts of the schemas that it refers to, each after the schemas that it needs.
    """
    named: dict[str, AvroSchema] = {}
    try:
        for name in referenced:
            fastavro.parse_schema(json.loads(name), named)
        return ParsedSchema(fastavro.parse_schema(json.loads(text), named), named)
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        fastavro.schema.SchemaParseException,
    ) as error:
        raise UnusableSchemaError(f"it is not an Avro schema: {type(error).__name__}: {error}") from error


class AvroReader:
    """Decoder of the datums of one schema.

    Args:
        writer: the schema that the datums were written with.
        reader: the schema that the datums are read as; None for `writer`.
        name: name of the only column, if the schema is not a record.
        expansion: counter that limits the schema's columns and levels.
        keeps_required: whether fields that have no null branch become required columns; otherwise all may be null.

    Raises:
        UnusableSchemaError: if Arrow has no type for an Avro type, or the two schemas are incompatible.
    """

    def __init__(
        self,
        writer: ParsedSchema,
        reader: ParsedSchema | None,
        name: str,
        expansion: Expansion | None = None,
        keeps_required: bool = False,
    ) -> None:
        reader = reader or writer
        resolution = Resolution(writer.named, reader.named, expansion or Expansion(), keeps_required)
        column = resolution.column(writer.root, reader.root, "")
        if isinstance(column, column_decoders.Record):
            self.record = column
        else:
            self.record = column_decoders.Record([(column, 0)], [pa.field(name, column.type)], [])
        self.schema = pa.schema(self.record.fields)
        if (size := fixed_bytes(self.schema)) > MAX_FIXED_BYTES:
            raise SchemaTooLargeError(
                f"its fixed types have {size} bytes together; they must have at most {MAX_FIXED_BYTES}"
            )

    def read(self, datums: Datums) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Decode datums.

        Returns:
            A record for each datum, and the reasons of faults by datum index. The record of a faulty datum has no
            meaning.
        """
        values = self.record.columns(datums)
        datums.finish()
        faults = {int(row): REASONS[Fault(datums.faults[row])] for row in np.flatnonzero(datums.faults)}
        if not values:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(datums), pa.struct([]))), faults
        return pa.RecordBatch.from_arrays(values, schema=self.schema), faults
