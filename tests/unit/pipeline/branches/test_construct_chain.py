"""A chain of converters before its columns are known."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from distcommit.app.job_file.built_in_types import validated
from distcommit.core.interfaces.constructs import Converted, Converter
from distcommit.core.work_units import WorkUnit
from distcommit.pipeline.branches.construct_chain import Chain
from distcommit.pipeline.branches.traced_batch import TracedBatch
from distcommit.pipeline.task_flow import Stage
from distcommit.testing.fakes.convert_batch import unit_of


class Unreadable(Converter):
    """A converter that rejects all records, so that no record determines its columns."""

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        yield Converted(batch.slice(0, 0), pa.array([], pa.int64()), dict.fromkeys(range(batch.num_rows), "unreadable"))


def test_later_converters_are_not_asked_about_columns_without_records() -> None:
    behind = Stage("select", validated("converter", {"type": "select", "columns": ["price"]}))
    chain = Chain([Stage("first", Unreadable(), on_failure="divert"), behind], unit_of("orders"))
    pieces, rejected = chain.run([TracedBatch(pa.record_batch({"value": [b"a", b"b"]}))])
    assert pieces == []
    assert {row: rejection.reason for row, rejection in rejected.items()} == {0: "unreadable", 1: "unreadable"}
