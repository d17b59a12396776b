"""A custom converter whose output columns depend on the records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa

from distcommit.core.interfaces.constructs import Converted, Converter
from distcommit.core.work_units import WorkUnit


class Shaping(Converter):
    """Turn the fields of JSON objects in column `value` into columns; consecutive records with equal fields form a
    piece."""

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        read = enumerate(json.loads(value) for value in batch.column("value").to_pylist())
        for _, group in groupby(read, lambda item: _shape(item[1])):
            rows, objects = zip(*group, strict=True)
            fields = pa.RecordBatch.from_pylist(objects)
            beside = batch.drop_columns(["value"]).take(pa.array(rows))
            names = [*beside.schema.names, *fields.schema.names]
            piece = pa.RecordBatch.from_arrays([*beside.columns, *fields.columns], names)
            yield Converted(piece, pa.array(rows, pa.int64()))


def _shape(record: dict[str, Any]) -> list[tuple[str, type]]:
    return [(name, type(value)) for name, value in record.items()]
