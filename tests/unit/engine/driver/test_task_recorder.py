"""The rows that tasks record in the table of their run, on which nothing else depends."""

from __future__ import annotations

import errno
from collections import Counter
from contextlib import suppress

import pytest

from distcommit.core.support.request_counts import Requests
from distcommit.core.work_units import WorkUnit
from distcommit.engine.driver.run import run
from distcommit.engine.driver.task_reports import Tally
from distcommit.engine.reading.task_recorder import TaskRecorder
from distcommit.engine.run_events import SequenceDone
from distcommit.stores.history.attempt_counts import Attempt, count_attempts
from distcommit.stores.history.run_table import DatasetOutcome, RowKind, TaskRows, read_run_table
from tests.simulation.world import ROOTS, World
from tests.unit.engine.committing.situations import WORLD
from tests.unit.engine.driver.machines import NOTHING, Machine, OddSource, dies, fails, go, launch, source, with_folders

FOLDER = f"{ROOTS.store}/run_tables"


def tables_of(machine: Machine, run_id: str, world: World = WORLD) -> dict[str, TaskRows]:
    """Return the rows of task attempts with work, by writer."""
    tables = read_run_table(world.store(machine).fs, ROOTS.store, run_id)
    return {rows.task.writer: rows for rows in tables if rows.rows[0].row_kind is RowKind.TASK}


def test_task_records_when_it_committed_each_dataset() -> None:
    machine = Machine()
    result = go(WORLD, machine, source(a=3, b=[2, 1]))
    tables = tables_of(machine, result.run_id)
    units, published = 0, dict[str, int]()
    for rows in tables.values():
        task, *others = rows.rows
        assert [row.row_kind for row in others].count(RowKind.TASK) == 0
        assert rows.task.phase == "ingest"
        units += task.counts.work_units
        for row in others:
            assert task.began_ms <= row.began_ms <= row.ended_ms <= task.ended_ms
            if row.row_kind is RowKind.DATASET:
                published[row.dataset] = row.counts.records_published
    assert units == 3
    assert published == {"a": 3, "b": 3}
    passes = [row for rows in tables.values() for row in rows.rows if row.row_kind is RowKind.COMMITS]
    assert sum(row.counts.datasets_committed for row in passes) == 2
    attempts: list[Attempt] = []
    count_attempts(WORLD.store(machine).fs, ROOTS.store, result.run_id, attempts.append)
    assert {attempt.writer for attempt in attempts} == tables.keys(), "task states begin with the same digits"


def test_job_scope_times_come_from_the_sealing_and_the_publishing_phase() -> None:
    machine, world = Machine(), World(job_level=True)
    result = go(world, machine, source(a=3))
    times = [
        (rows.task.phase, bool(row.began_ms), bool(row.ended_ms))
        for rows in tables_of(machine, result.run_id, world).values()
        for row in rows.rows
        if row.row_kind is RowKind.DATASET
    ]
    assert sorted(times) == [("ingest", True, False), ("publish", False, True)]


def test_replay_times_are_recorded_by_recovery() -> None:
    machine = with_folders(Machine(), "c")
    machine.faults.append(dies("rename", "/output/c/", nth=2))
    settings = WORLD.begin(machine, source(c=[2, 1]))
    with suppress(BaseException):
        run(launch, settings)
    machine.restart()
    assert tables_of(machine, settings.run_id) == {}, "a dead task has recorded nothing"
    result = go(WORLD, machine, source(c=[2, 1]))
    ((_, rows),) = tables_of(machine, result.run_id).items()
    assert rows.task.phase == "recover"
    assert [(row.row_kind, row.dataset, row.outcome) for row in rows.rows] == [
        (RowKind.TASK, "", DatasetOutcome.NONE),
        (RowKind.DATASET, "c", DatasetOutcome.NONE),
        (RowKind.COMMITS, "", DatasetOutcome.NONE),
        (RowKind.OUTCOME, "c", DatasetOutcome.REPLAYED),
    ]


def requests_by_dataset(rows: TaskRows) -> Counter[str]:
    counted: Counter[str] = Counter()
    for row in rows.rows:
        counted[row.dataset] += row.counts.storage_requests
    return +counted


def test_run_without_work_leaves_no_times() -> None:
    machine = Machine()
    go(WORLD, machine, source(a=3))
    before = set(machine.paths(FOLDER))
    assert before
    go(WORLD, machine, source(a=3))
    go(WORLD, machine, NOTHING)
    assert set(machine.paths(FOLDER)) == before


def test_table_that_cannot_be_written_costs_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    machine.faults.append(fails(errno.ENOSPC, "create", "/run_tables/"))
    assert go(WORLD, machine, source(a=3)).succeeded
    assert "rows of a task were not written" in caplog.text


def test_dataset_gets_its_own_requests_and_its_share_of_common_ones(
    requests: Requests,
) -> None:
    machine = Machine()
    settings = WORLD.begin(machine, source(a=1, b=1))
    times = TaskRecorder(settings, "ingest", 0)
    observer = times.recording(Tally())

    def asks(count: int) -> None:
        requests.made += count

    asks(5)
    for dataset, count in (("a", 10), ("b", 20), ("a", 1), ("never", 0)):
        with times.working_on(dataset):
            asks(count)
    with suppress(OSError), times.working_on("b"):
        asks(2)
        raise OSError
    with times.committing():
        asks(4)  # and nothing is published
    with times.committing():
        for dataset in "ab":
            observer.observe(SequenceDone(dataset, settings.epoch, 1, 0, 0))
        asks(7)
    times.write(2)
    (rows,) = tables_of(machine, settings.run_id).values()
    assert requests_by_dataset(rows) == {"a": 10 + 1 + 4, "b": 20 + 2 + 3, "": 5 + 4}


def test_requests_of_a_work_unit_belong_to_its_dataset(requests: Requests) -> None:
    machine = Machine()

    def extracting(unit: WorkUnit) -> None:
        requests.made += {"a": 100, "b": 1000}[unit.dataset_urn]

    result = go(WORLD, machine, OddSource(source(a=3, b=[2, 1]).datasets, extracting=extracting))
    counted = sum(map(requests_by_dataset, tables_of(machine, result.run_id).values()), Counter[str]())
    assert counted == {"a": 100, "b": 2000}
