"""Invalid partition values: rejected record by record, or preserved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from distcommit.app.job_file.sections.flow_settings import FlowSettings
from distcommit.core.interfaces.committer import Committed
from distcommit.sinks.delta.sink import DeltaSink
from distcommit.sinks.files.sink import FileSink
from distcommit.sinks.files.split_by_field import split
from distcommit.sinks.iceberg.catalog.open_catalogs import close_opened
from distcommit.sinks.table_formats.partition_value_checker import NO_VALUE
from tests.unit.sinks.iceberg.iceberg_target import Target, ids

LONG = "x" * 300
FILES = FileSink.model_validate({"partition_by": [{"field": "kind"}]})
DELTA = DeltaSink.model_validate({"type": "delta", "location": "/tables", "partition_by": ["kind"]})


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    yield Target(tmp_path)
    close_opened()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
@pytest.mark.parametrize(
    ("sink", "value", "passes"),
    [
        (FILES, "DE", True),
        (FILES, None, True),
        (FILES, "", True),
        (FILES, "a/b=c %", True),
        (FILES, "..", True),
        (FILES, NO_VALUE, False),
        (FILES, LONG, False),
        (FILES, "/" * 100, False),
        (DELTA, "DE", True),
        (DELTA, None, True),
        (DELTA, LONG, True),
        (DELTA, "", False),
        (DELTA, NO_VALUE, False),
    ],
)
def test_record_whose_value_can_not_be_a_partition_is_rejected_alone(
    sink: FileSink | DeltaSink, value: str | None, passes: bool, kind: pa.DataType
) -> None:
    check = sink.rejection_check
    assert check is not None
    batch = pa.record_batch({"kind": pa.array(["good", value, "good"], pa.string()).cast(kind), "n": [1, 2, 3]})
    assert check.check(batch).to_pylist() == [True, passes, True]
    assert "kind" in check.describe()


def test_values_that_differ_in_case_or_unicode_form_have_separate_folders_and_stay_in_the_files() -> None:
    """If the file system does not distinguish the folders, the column does."""
    values = ["DE", "de", "caf\u00e9", "cafe\u0301", "DE"]
    folders = dict(split(pa.record_batch({"kind": values}), FILES.partitions))
    assert {name: rows["kind"].to_pylist() for name, rows in folders.items()} == {
        "kind=DE": ["DE", "DE"],
        **{f"kind={value}": [value] for value in values[1:4]},
    }


def test_job_that_diverts_rejected_records_also_diverts_records_that_its_sink_rejects() -> None:
    source = {"type": "files", "paths": ["/in/{dataset}/*.jsonl"], "format": "jsonl"}
    sink = {"partition_by": [{"field": "kind"}]}
    flow = FlowSettings.model_validate({"source": source, "sink": sink, "on_rejected": "divert"}).task_flow()
    assert [(stage.name, stage.on_failure) for stage in flow.stages] == [("sink", "divert")]
    assert not FlowSettings.model_validate({"source": source}).task_flow().stages


def test_iceberg_keeps_partition_values_that_can_not_be_folder_names(target: Target) -> None:
    values = ["DE", None, "", NO_VALUE, LONG, "a/b=c %", "..", "null"]
    sink = target.sink(partition_by=["kind"])
    rows = ids(*range(len(values)), kind=pa.array(values, pa.string()))
    assert target.commit(sink, target.prepare(sink, "t", 1, rows)) == [Committed()]
    stored = target.table("t").scan().to_arrow().sort_by("id")["kind"].to_pylist()
    assert stored == values
    assert target.table("t").scan(row_filter=f"kind = '{LONG}'").count() == 1
