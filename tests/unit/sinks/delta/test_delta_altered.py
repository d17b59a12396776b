"""Delta tables that are altered between the writing of data files and their commit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType

from distcommit.core.interfaces.committer import CommitOutcome, Committed, FailedForGood
from tests.unit.sinks.delta.delta_target import Target

WRITTEN = pa.table(
    {
        "id": pa.array([1, 2], pa.int64()),
        "small": pa.array([10, 20], pa.int32()),
        "note": pa.array(["a", "b"]),
        "inner": pa.array([{"x": 1, "y": "p"}, {"x": 2, "y": "q"}], pa.struct([("x", pa.int32()), ("y", pa.string())])),
    }
)
Alter = Callable[[str], None]


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(tmp_path)


def altered(target: Target, alter: Alter, **settings: Any) -> CommitOutcome:
    """Return the outcome of committing files that were written before the table was altered."""
    sink = target.sink(**settings)
    request = target.prepare(sink, "t", 1, WRITTEN)
    alter(str(target.location / "t"))
    (outcome,) = target.commit(sink, request)
    if isinstance(outcome, FailedForGood):
        assert "release the dataset with abandon" in outcome.reason
        assert target.table("t").to_pyarrow_table().num_rows == 0
        target.committer(sink).withdraw([request])
    return outcome


def replaced_by(**columns: pa.DataType | None) -> Alter:
    """Return a change of the given columns to these types; None drops a column."""

    def alter(uri: str) -> None:
        kinds = {field.name: field.type for field in WRITTEN.schema} | columns
        schema = pa.schema([(name, kind) for name, kind in kinds.items() if kind is not None])
        partitions = DeltaTable(uri).metadata().partition_columns
        write_deltalake(uri, schema.empty_table(), mode="overwrite", schema_mode="overwrite", partition_by=partitions)

    return alter


def partitioned(uri: str) -> None:
    write_deltalake(uri, WRITTEN.slice(0, 0), mode="overwrite", schema_mode="overwrite", partition_by=["note"])


def dropped_and_added(uri: str) -> None:
    replaced_by(note=None)(uri)
    replaced_by()(uri)


def required(uri: str) -> None:
    """Write the table version of ALTER COLUMN ... SET NOT NULL."""
    table = DeltaTable(uri)
    fields = [Field(field.name, field.type, nullable=field.name != "note") for field in table.schema().fields]
    put_schema(table, uri, fields)


def added_and_required(uri: str) -> None:
    table = DeltaTable(uri)
    put_schema(table, uri, [*table.schema().fields, Field("more", PrimitiveType("string"), nullable=False)])


def put_schema(table: DeltaTable, uri: str, fields: list[Field]) -> None:
    """Write a table version with these columns, as a client that can alter them does."""
    (metadata,) = (
        json.loads(line)
        for line in (Path(uri) / "_delta_log" / f"{table.version():020d}.json").read_text().splitlines()
        if "metaData" in line
    )
    metadata["metaData"]["schemaString"] = Schema(fields).to_json()
    (Path(uri) / "_delta_log" / f"{table.version() + 1:020d}.json").write_text(json.dumps(metadata))


@pytest.mark.parametrize(
    ("alter", "message"),
    [
        (replaced_by(note=None), "column note was dropped"),
        (replaced_by(note=pa.int64()), "column note is int64, and the files have string"),
        (replaced_by(id=pa.int32()), "column id is int32, and the files have int64"),
        (replaced_by(small=pa.int64()), "column small is int64, and the files have int32"),
        (replaced_by(inner=pa.struct([("x", pa.int32())])), "column inner.y was dropped"),
        (replaced_by(inner=pa.struct([("x", pa.int64()), ("y", pa.string())])), "column inner.x is int64"),
        (required, "column note requires a value now"),
        (added_and_required, "column more was added and requires a value"),
        (partitioned, "it is partitioned by ['note']"),
    ],
)
def test_files_whose_values_the_altered_table_would_hide_are_rejected(
    target: Target, alter: Alter, message: str
) -> None:
    outcome = altered(target, alter)
    assert isinstance(outcome, FailedForGood)
    assert message in outcome.reason


def test_files_of_a_partition_column_with_another_type_are_rejected(target: Target) -> None:
    outcome = altered(target, replaced_by(note=pa.int64()), partition_by=["note"])
    assert isinstance(outcome, FailedForGood)
    assert "partition columns ['note'] are ['int64'], and those of the files were ['string']" in outcome.reason


@pytest.mark.parametrize("alter", [dropped_and_added, replaced_by(more=pa.string())], ids=["again", "more"])
def test_files_whose_values_the_altered_table_still_shows_are_committed(target: Target, alter: Alter) -> None:
    assert altered(target, alter) == Committed()
    stored = target.table("t").to_pyarrow_table().sort_by("id").to_pydict()
    assert (stored["small"], stored["note"]) == ([10, 20], ["a", "b"])
    assert [inner["y"] for inner in stored["inner"]] == ["p", "q"]
