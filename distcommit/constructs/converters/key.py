"""The converter `key`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from distcommit.constructs.bad_record_bisection import ConvertedPart, convert_or_bisect
from distcommit.constructs.construct_settings import ConverterSettings
from distcommit.core.interfaces.constructs import Converted
from distcommit.core.work_units import WorkUnit
from distcommit.schemas.known_columns import Columns, find_column, with_column_type
from distcommit.schemas.storable_types import is_bytes

_TYPES = {"utf8": pa.string(), "int": pa.int64()}


class Key(ConverterSettings):
    """Converter that decodes a column of bytes in place. Null stays null. Bytes in another format reject their record.

    For keys that are JSON objects, use the converter `json` with `column: key`.

    Attributes:
        format: `utf8` gives text. `int` gives an int64 from 4 or 8 bytes, big-endian, as Kafka's IntegerSerializer and
            LongSerializer write them.
        column: the column.
    """

    type: Literal["key"]
    format: Literal["utf8", "int"]
    column: str = "key"

    def convert_columns(self, columns: Columns) -> Columns:
        find_column(columns, self.column, "key", is_bytes, "binary")
        return with_column_type(columns, self.column, _TYPES[self.format])

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        index = batch.schema.get_field_index(self.column)

        def decode(part: pa.RecordBatch) -> ConvertedPart:
            keys = part.column(index)
            decoded = keys.cast(pa.string()) if self.format == "utf8" else _integers(keys)
            columns = [*part.columns[:index], decoded, *part.columns[index + 1 :]]
            return pa.RecordBatch.from_arrays(columns, schema=output_schema), None

        def describe(error: Exception, row: int) -> str:
            return f"{error}: {batch.column(index)[row].as_py()[:100]!r}"

        yield convert_or_bisect(batch, decode, output_schema, (pa.ArrowException, ValueError), describe)


def _integers(keys: pa.Array) -> pa.Array:
    lengths = set(pc.unique(pc.binary_length(keys)).to_pylist()) - {None}
    if lengths - {4, 8}:
        raise ValueError(f"a whole number must have 4 or 8 bytes, found {max(lengths - {4, 8})}")
    numbers = [None if key is None else int.from_bytes(key, "big", signed=True) for key in keys.to_pylist()]
    return pa.array(numbers, pa.int64())
