"""A source's own columns keep their names, types and values in an error file."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcommit.core.interfaces.source import Extraction, Extractor
from distcommit.core.work_units import WorkUnit
from distcommit.pipeline.branches.error_columns import ERROR_COLUMNS, error_records, error_schema, given_records
from distcommit.sinks.files.footer import read_records, read_written_schema
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.models.rejecting_flows import TurningAway
from tests.simulation.world import SimulatedFileSystem, World
from tests.unit.engine.driver.machines import OUTPUT, Machine

NAMES = ("error_branch", "error_reason", "Error_Construct", "error_reason_of_source", "_error_reason", "reason")
DAY, SECOND = datetime.date(1969, 12, 31), datetime.datetime(1969, 12, 31, 23, 59, 59)
NOON = datetime.time(12, 0, 1)
DATA = {"a": ModelDataset({"0": 3})}


def own_columns() -> pa.RecordBatch:
    """Return three records with columns whose names error files use otherwise, or whose types Parquet lacks."""
    columns: dict[str, pa.Array] = {name: pa.array([f"{name} {n}" for n in range(3)]) for name in NAMES}
    columns["seconds"] = pa.array([SECOND, None, SECOND], pa.timestamp("s"))
    columns["zoned"] = pa.array([SECOND, None, SECOND], pa.timestamp("s", "Europe/Berlin"))
    columns["noon"] = pa.array([NOON, None, NOON], pa.time32("s"))
    columns["day"] = pa.array([DAY, None, DAY], pa.date64())
    columns["nested"] = pa.array([{"x": [SECOND]}, None, {"x": None}], pa.struct({"x": pa.list_(pa.timestamp("s"))}))
    columns["by_day"] = pa.array([[(DAY, NOON)], None, []], pa.map_(pa.date64(), pa.time32("s")))
    columns["kind"] = pa.array(["a", None, "a"]).dictionary_encode()
    columns["kind_of_time"] = pa.array([SECOND, None, SECOND], pa.timestamp("s")).dictionary_encode()
    columns["half"], columns["nothing"] = pa.array([1, None, 2], pa.float16()), pa.nulls(3)
    columns["large"] = pa.array([["a"], None, []], pa.large_list(pa.large_string()))
    return pa.record_batch(columns)


@dataclass(frozen=True, slots=True)
class OwnColumns(ModelSource):
    """A source that also has these columns."""

    def open(self) -> Extractor:
        return OwnExtractor(ModelSource(self.datasets).open())


@dataclass(slots=True)
class OwnExtractor(Extractor):
    inner: Extractor

    def extract(self, unit: WorkUnit) -> Extraction:
        return OwnExtraction(self.inner.extract(unit))

    def close(self) -> None:
        self.inner.close()


@dataclass(slots=True)
class OwnExtraction(Extraction):
    inner: Any

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self.inner:
            own = own_columns()
            yield pa.RecordBatch.from_arrays([*batch.columns, *own.columns], [*batch.schema.names, *own.schema.names])

    def actual_high(self) -> Any:
        return self.inner.actual_high()

    def bytes_read(self) -> int:
        return 0


def published(machine: Machine) -> tuple[pa.Schema, list[dict[str, Any]]]:
    """Return the columns that the writer of the last file received, and all records."""
    fs, records = SimulatedFileSystem(machine), list[dict[str, Any]]()
    paths = sorted(machine.paths(f"{OUTPUT}/a"))
    for path in paths:
        records += read_records(fs, path).to_pylist()
    return read_written_schema(fs, paths[-1]), sorted(records, key=lambda record: record["offset"])


@pytest.mark.parametrize("turned_away", [{"a/0/1"}, {"a/0/0", "a/0/1", "a/0/2"}])
def test_reprocessed_records_have_all_their_original_columns(turned_away: set[str]) -> None:
    usual, other = Machine(), Machine()
    good, bad = World(flow=TurningAway()), World(flow=TurningAway(frozenset(turned_away)))
    assert good.run(usual, OwnColumns(DATA)).succeeded
    assert bad.run(other, OwnColumns(DATA)).totals.records_rejected == len(turned_away)
    for world, rejected_again in (
        (bad, len(turned_away)),
        (good, 0),
    ):  # a record that is rejected again is unchanged, too
        result = world.reprocess(other, OwnColumns(DATA), "a")
        assert (result.succeeded, result.totals.records_rejected) == (True, rejected_again)
    assert published(other) == published(usual)


LIKE_OURS = st.from_regex(r"\A(?i:error_(branch|construct|reason))(_of_source){0,3}\Z")


@pytest.mark.thorough
@given(st.lists(LIKE_OURS | st.just("value"), unique_by=str.lower, min_size=1, max_size=6))
@settings(max_examples=200, deadline=None)
def test_error_file_columns_are_unique_and_each_is_restored(names: list[str]) -> None:
    records = pa.RecordBatch.from_arrays([pa.array([name]) for name in names], names)
    stored = error_records(records, ["b"], ["c"], ["r"])
    assert stored.schema.equals(error_schema(records.schema))
    lowered = [name.lower() for name in stored.schema.names]
    assert len({*lowered}) == len(lowered) == len(names) + len(ERROR_COLUMNS)
    assert given_records(stored, stored.schema).equals(records)


def test_older_error_files_are_read_unchanged() -> None:
    """They contain a source's own columns under their own names."""
    stored = pa.record_batch({"Error_Reason": ["own"], "value": [b"v"], **{name: ["r"] for name in ERROR_COLUMNS}})
    assert given_records(stored, stored.schema).schema.names == ["Error_Reason", "value"]
