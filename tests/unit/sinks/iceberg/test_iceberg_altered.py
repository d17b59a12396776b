"""Iceberg tables that are altered between the writing of data files and their commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType, StringType

from distcommit.core.interfaces.committer import CommitOutcome, Committed, FailedForGood
from distcommit.sinks.iceberg.catalog.open_catalogs import close_opened
from tests.unit.sinks.iceberg.iceberg_target import Target

WRITTEN = pa.table(
    {
        "id": pa.array([1, 2], pa.int64()),
        "small": pa.array([10, 20], pa.int32()),
        "note": pa.array(["a", "b"]),
        "inner": pa.array([{"x": 1, "y": "p"}, {"x": 2, "y": "q"}], pa.struct([("x", pa.int32()), ("y", pa.string())])),
    }
)
Alter = Callable[[Table], None]


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    yield Target(tmp_path)
    close_opened()


def altered(target: Target, alter: Alter, **settings: Any) -> tuple[CommitOutcome, Table]:
    """Return the outcome of committing files that were written before the table was altered, and the table."""
    sink = target.sink(**settings)
    request = target.prepare(sink, "t", 1, WRITTEN)
    with target.open_table("t") as table:
        alter(table)
    (outcome,) = target.commit(sink, request)
    if isinstance(outcome, FailedForGood):
        assert "release the dataset with abandon" in outcome.reason
        assert target.table("t").scan().count() == 0
    return outcome, target.table("t")


def drop_and_add(name: str, kind: Any) -> Alter:
    def alter(table: Table) -> None:
        with table.update_schema(allow_incompatible_changes=True) as change:
            change.delete_column(name)
        with table.update_schema() as change:
            change.add_column(tuple(name.split(".")), kind)

    return alter


def drop(name: str) -> Alter:
    def alter(table: Table) -> None:
        with table.update_schema(allow_incompatible_changes=True) as change:
            change.delete_column(name)

    return alter


def require(name: str) -> Alter:
    def alter(table: Table) -> None:
        with table.update_schema(allow_incompatible_changes=True) as change:
            change.update_column(tuple(name.split(".")), required=True)

    return alter


def rename(name: str, new: str) -> Alter:
    def alter(table: Table) -> None:
        with table.update_schema() as change:
            change.rename_column(name, new)

    return alter


def widen(name: str) -> Alter:
    def alter(table: Table) -> None:
        with table.update_schema() as change:
            change.update_column(name, LongType())

    return alter


def change_type(name: str, kind: Any) -> Alter:
    def alter(table: Table) -> None:
        with table.update_schema(allow_incompatible_changes=True) as change:
            change.update_column(name, kind)

    return alter


def add_optional(table: Table) -> None:
    with table.update_schema() as change:
        change.add_column("more", StringType())


def add_required(table: Table) -> None:
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.add_column("more", StringType(), required=True)


@pytest.mark.parametrize(
    ("alter", "message"),
    [
        (drop_and_add("note", StringType()), "column note (id 3) was dropped"),
        (drop_and_add("inner.y", StringType()), "column inner.y (id 6) was dropped"),
        (drop_and_add("small", StringType()), "column small (id 2) was dropped"),
        (drop_and_add("small", IntegerType()), "column small (id 2) was dropped"),
        (drop("note"), "column note (id 3) was dropped"),
        (change_type("id", IntegerType()), "column id is int, and the files have long"),
        (change_type("small", StringType()), "column small is string, and the files have int"),
        (require("note"), "column note requires a value now"),
        (require("inner.x"), "column inner.x requires a value now"),
        (add_required, "column more was added and requires a value"),
    ],
)
def test_files_whose_values_the_altered_table_would_hide_are_rejected(
    target: Target, alter: Alter, message: str
) -> None:
    outcome, _ = altered(target, alter)
    assert isinstance(outcome, FailedForGood)
    assert message in outcome.reason


def test_abandoned_records_are_rewritten_for_the_altered_table(target: Target) -> None:
    sink = target.sink(evolve="add_columns")
    request = target.prepare(sink, "t", 1, WRITTEN)
    with target.open_table("t") as table:
        drop_and_add("note", StringType())(table)
    for _ in range(2):
        assert isinstance(target.commit(sink, request)[0], FailedForGood)
    target.committer(sink).withdraw([request])
    assert target.commit(sink, target.prepare(sink, "t", 2, WRITTEN, bases=(0,))) == [Committed()]
    assert sorted(target.table("t").scan().to_arrow()["note"].to_pylist()) == ["a", "b"]


@pytest.mark.parametrize(
    "alter", [rename("note", "text"), widen("small"), add_optional], ids=["rename", "widen", "add"]
)
def test_files_whose_values_the_altered_table_still_shows_are_committed(target: Target, alter: Alter) -> None:
    outcome, table = altered(target, alter)
    assert outcome == Committed()
    stored = table.scan().to_arrow().sort_by("id").to_pydict()
    assert stored["small"] == [10, 20]
    assert stored.get("note", stored.get("text")) == ["a", "b"]
    assert [inner["y"] for inner in stored["inner"]] == ["p", "q"]


def test_widened_partition_column_keeps_the_partitions_of_staged_files(target: Target) -> None:
    outcome, table = altered(target, widen("small"), partition_by=["small"])
    assert outcome == Committed()
    assert table.scan(row_filter="small = 20").to_arrow()["note"].to_pylist() == ["b"]


def test_files_of_a_removed_schema_are_rejected(target: Target) -> None:
    sink = target.sink()
    request = target.prepare(sink, "t", 1, WRITTEN)
    with target.open_table("t") as table:
        add_optional(table)
    infos = [{**info, "files": [{**file, "schema": 7} for file in info["files"]]} for info in request.infos]
    (outcome,) = target.commit(sink, replace(request, infos=tuple(infos)))
    assert isinstance(outcome, FailedForGood)
    assert "its schema 7, which the files were written by, was removed" in outcome.reason


def test_files_of_a_removed_partition_spec_are_rejected(target: Target) -> None:
    sink = target.sink()
    request = target.prepare(sink, "t", 1, WRITTEN)
    infos = [{**info, "files": [{**file, "spec": 7} for file in info["files"]]} for info in request.infos]
    (outcome,) = target.commit(sink, replace(request, infos=tuple(infos)))
    assert isinstance(outcome, FailedForGood)
    assert "its partition spec 7, which the files were written by, was removed" in outcome.reason
