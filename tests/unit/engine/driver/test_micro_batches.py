"""Micro-batches on a simulated machine: spooled, committed, killed, and delivered again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distcommit.core.commit_groups import CommitGroups
from distcommit.core.errors import ConfigurationError, SourceError
from distcommit.core.interfaces.source import SourceState
from distcommit.core.work_units import DatasetPlan
from distcommit.engine.driver.run import RunResult, run
from distcommit.sources.micro_batch.spool import Spool
from distcommit.sources.micro_batch.spooled_batch import SpooledBatch
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from tests.simulation.world import ROOTS, SimulatedFileSystem, World
from tests.unit.engine.driver.machines import (
    NOTHING,
    OUTPUT,
    STAGING,
    Machine,
    launch,
    states,
)

WORLD = World(buckets=3, partitions=2)
QUERY = "8f1d"
Rows = Sequence[tuple[str, int]]


def arrow(rows: Rows) -> pa.RecordBatch:
    shops, numbers = zip(*rows, strict=True)
    return pa.record_batch([pa.array(shops), pa.array(numbers)], names=["shop", "n"])


def spool_of(machine: Machine, name: str) -> Spool:
    fs = SimulatedFileSystem(machine)
    folder = f"{ROOTS.staging}/batches/{QUERY}/{name}"
    fs.make_folders(folder)
    return Spool(fs, folder, "shop", WORLD.buckets, WORLD.partitions, CommitGroups())


def spooled(
    machine: Machine, partitions: Sequence[Sequence[Rows]], batch_id: int, query_id: str = QUERY
) -> SpooledBatch:
    """Spool the rows by partition and Arrow batch. Each partition has a twin that does not count."""
    spool = spool_of(machine, f"{query_id}-{batch_id}-{len(machine.made)}")
    attempts: list[str] = []
    for partition in partitions:
        list(spool(map(arrow, partition)))
        for named in spool(map(arrow, partition)):
            attempts += named["attempt"].to_pylist()
    return SpooledBatch(spool, tuple(attempts), query_id, batch_id)


def hand_over(machine: Machine, batch: SpooledBatch) -> RunResult:
    settings = WORLD.begin(machine, NOTHING)
    return run(launch, replace(settings, flow=replace(settings.flow, source=batch)))


def published(machine: Machine) -> list[tuple[str, int]]:
    rows: list[tuple[str, int]] = []
    for path, data in machine.paths(OUTPUT).items():
        table = pq.read_table(BytesIO(data))
        shops = table["shop"].to_pylist()
        assert {path.split("/")[3]} == set(shops), "a row is in another dataset"
        rows += zip(shops, table["n"].to_pylist(), strict=True)
    return sorted(rows)


FIRST = [[[("a", 1), ("b", 2), ("a", 3)], [("c", 4), ("a", 5)]], [], [[("b", 6)]]]
SECOND = [[[("a", 7), ("d", 8)]], [[("c", 9), ("a", 10)]]]


def rows_of(*batches: Sequence[Sequence[Rows]]) -> list[tuple[str, int]]:
    return sorted(row for batch in batches for partition in batch for rows in partition for row in rows)


def test_each_row_goes_to_its_dataset_once_however_often_a_batch_is_delivered() -> None:
    machine = Machine()
    assert hand_over(machine, spooled(machine, FIRST, 0)).succeeded
    assert published(machine) == rows_of(FIRST)
    again = hand_over(machine, spooled(machine, FIRST, 0))
    assert (again.succeeded, again.totals.datasets_planned) == (True, 0)
    assert hand_over(machine, spooled(machine, SECOND, 1)).succeeded
    assert published(machine) == rows_of(FIRST, SECOND)
    assert hand_over(machine, spooled(machine, FIRST, 0)).totals.datasets_planned == 0
    positions = {urn: dict(s.watermark.positions) for urn, s in states(WORLD, machine).items() if s.watermark}
    assert positions == {"a": {QUERY: 2}, "b": {QUERY: 1}, "c": {QUERY: 2}, "d": {QUERY: 2}}


def test_queries_have_separate_positions() -> None:
    machine = Machine()
    hand_over(machine, spooled(machine, FIRST, 4))
    assert hand_over(machine, spooled(machine, SECOND, 0, "other")).succeeded
    assert published(machine) == rows_of(FIRST, SECOND)
    watermark = states(WORLD, machine)["a"].watermark
    assert watermark is not None
    assert watermark.positions == {QUERY: 5, "other": 1}


@pytest.mark.thorough
def test_micro_batch_killed_at_any_operation_is_finished_by_its_next_delivery() -> None:
    """The next run finishes the micro-batch wherever the first one was killed."""
    finished, number = False, 0
    while not finished:
        machine = Machine()
        hand_over(machine, spooled(machine, FIRST, 0))
        batch, observed = spooled(machine, SECOND, 1), 0

        def dies(operation: Operation, last: int = number) -> None:
            nonlocal observed
            observed += operation.kind not in ("read", "lstat", "scandir")
            if observed > last:
                raise Crashed

        machine.faults.append(dies)
        try:
            hand_over(machine, batch)
            finished = True
        except Crashed:
            pass
        machine.restart()
        assert hand_over(machine, spooled(machine, SECOND, 1)).succeeded, f"killed at operation {number}"
        assert published(machine) == rows_of(FIRST, SECOND), f"killed at operation {number}"
        number += 5
    assert number > 60


def test_failed_dataset_is_committed_at_the_next_delivery_of_its_micro_batch() -> None:
    machine = Machine()
    batch = spooled(machine, SECOND, 0)
    machine.remove(batch.spool.path_of(batch.attempts[0], batch.spool.owner_of("d")))
    result = hand_over(machine, batch)
    assert not result.succeeded
    assert ("d", 8) not in published(machine)
    assert hand_over(machine, spooled(machine, SECOND, 0)).succeeded
    assert published(machine) == rows_of(SECOND)


def test_spool_that_lost_rows_is_rejected_as_incomplete() -> None:
    """An Arrow stream may end after any batch, so its rows are compared with the count of the index."""
    machine = Machine()
    batch = spooled(machine, [[[("a", 1)], [("a", 2)]]], 0)
    [path] = [p for p in machine.paths(f"{STAGING}/batches/{QUERY}") if batch.attempts[0] in p and "arrows" in p]
    data = machine.paths(STAGING)[path]
    with pa.ipc.open_stream(data) as stream:
        first = stream.read_next_batch()
    machine.put(path, data[: len(first.schema.serialize()) + len(first.serialize())])
    result = hand_over(machine, batch)
    assert not result.succeeded
    assert "not read as a whole [dataset=a]; expected 2 rows; found 1 rows" in result.reasons.entries[0].text
    assert published(machine) == []


def test_partially_read_micro_batch_has_no_position() -> None:
    """A deadline would cause one, and the job file rejects deadlines."""
    batch = spooled(Machine(), [[[("a", 1)], [("a", 2)]]], 0)
    [plan] = batch.plan(lambda urn: True, SourceState())
    assert isinstance(plan, DatasetPlan)
    extraction = batch.open().extract(plan.work_units[0])
    next(iter(extraction))
    with pytest.raises(SourceError, match="not read as a whole"):
        extraction.actual_high()


@pytest.mark.parametrize("name", [b"a\xff", b"", b"x" * 2000])
@pytest.mark.parametrize("alone", [True, False])
def test_rows_with_an_invalid_dataset_name_are_reported_and_the_others_committed(name: bytes, alone: bool) -> None:
    machine = Machine()
    spool = spool_of(machine, "odd")
    names = [name] if alone else [b"b", name, b"a", name]
    shops = pa.Array.from_buffers(pa.string(), len(names), pa.array(names, pa.binary()).buffers())
    batch = pa.record_batch([shops, pa.array(range(len(names)))], names=["shop", "n"])
    [attempt] = [named["attempt"].to_pylist()[0] for named in spool([batch])]
    result = hand_over(machine, SpooledBatch(spool, (attempt,), QUERY, 0))
    assert not result.succeeded
    assert [(r.kind, "dataset URN is invalid" in r.text) for r in result.reasons.entries] == [("not planned", True)]
    assert published(machine) == ([] if alone else [("a", 2), ("b", 0)])


@pytest.mark.parametrize("column", [pa.array([1, 2]), pa.array(["a", None])])
def test_row_without_a_dataset_is_rejected(column: pa.Array) -> None:
    batch = pa.record_batch([column, pa.array([1, 2])], names=["shop", "n"])
    with pytest.raises(ConfigurationError, match="does not name each row's dataset"):
        list(spool_of(Machine(), "x")([batch]))
