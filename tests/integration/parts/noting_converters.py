"""Converters that add a column with the output schema and the work unit that they receive, for batches and records."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa

from distcommit.constructs.record_converter import Record, RecordConverter
from distcommit.core.interfaces.constructs import Converted, Converter
from distcommit.core.work_units import WorkUnit


def note(output_schema: pa.Schema | None, unit: WorkUnit) -> str:
    """Return the columns of the schema, and the work unit, as JSON."""
    assert output_schema is not None
    watermarks = unit.low.positions, unit.expected_high.positions
    return json.dumps([output_schema.names, unit.dataset_urn, *watermarks, unit.properties["label"]])


class ByBatch(Converter):
    def convert_schema(self, schema: pa.Schema, unit: WorkUnit | None) -> pa.Schema:
        return schema.append(pa.field("by_batch", pa.string()))

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        notes = pa.repeat(note(output_schema, unit), batch.num_rows)
        yield Converted(pa.RecordBatch.from_arrays([*batch.columns, notes], schema=output_schema))


class ByRecord(RecordConverter):
    """A converter whose schema depends on the work unit, so that it is unknown when the job is checked."""

    def convert_schema(self, schema: pa.Schema, unit: WorkUnit | None) -> pa.Schema | None:
        return None if unit is None else schema.append(pa.field(unit.properties["column"], pa.string()))

    def convert_record(self, output_schema: pa.Schema, record: Record, unit: WorkUnit) -> Record:
        return {**record, unit.properties["column"]: note(output_schema, unit)}
