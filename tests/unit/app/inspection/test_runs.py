"""What is told of runs: each one's status, whatever became of it, and of those that have left nothing."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress

import pytest

from distcommit.app.inspection.runs import RunStatus, failed_in_a_row, read_run, read_runs
from distcommit.core.errors import ConfigurationError, SourceUnavailableError
from distcommit.core.work import WorkUnit
from distcommit.engine.driver.guarded_observer import recorded_run
from distcommit.engine.driver.run import run
from distcommit.protocol.paths.store import BEGUN, RUNS, record_name
from distcommit.stores.history.run_records import CANCEL_VERSION, CancelRequest, RunFacts, put_cancel
from distcommit.stores.state.job_lock import JobLock
from tests.simulation.world import ROOTS, World
from tests.unit.engine.committing.situations import WORLD
from tests.unit.engine.driver.machines import (
    Machine,
    OddSource,
    QuickClock,
    dies,
    fails,
    go,
    launch,
    source,
)

JOB = World(job_level=True)
FOLDER = f"{ROOTS.store}/{RUNS}"


def statuses_of(machine: Machine, clock: QuickClock | None = None) -> list[RunStatus]:
    return [row.status for row in read_runs(WORLD.store(machine), clock or QuickClock()).runs]


def no_source(machine: Machine) -> None:
    def planning() -> Iterator[object]:
        raise ValueError("no route to the source")

    with suppress(SourceUnavailableError):
        go(WORLD, machine, OddSource({}, planning=planning))


def test_each_way_to_end_has_its_status() -> None:
    machine = Machine()
    go(WORLD, machine, source(a=1))
    no_source(machine)
    with suppress(KeyboardInterrupt), recorded_run(WORLD.begin(machine, source(a=1)), "run", "somebody"):
        raise KeyboardInterrupt
    result = read_runs(WORLD.store(machine), QuickClock())
    assert [row.status for row in result.runs] == [RunStatus.CANCELLED, RunStatus.FAILED, RunStatus.COMMITTED]
    assert "no route to the source" in result.runs[1].reason
    assert (result.failed_in_a_row, result.runs[2].datasets_published) == (1, 1)


def test_that_a_rebuild_was_told_to_end_is_no_run() -> None:
    machine = Machine()
    epoch = go(WORLD, machine, source(a=1)).epoch
    assert put_cancel(WORLD.store(machine), CancelRequest(CANCEL_VERSION, epoch + 1, "ann@host", 0))
    assert [row.epoch for row in read_runs(WORLD.store(machine), QuickClock()).runs] == [epoch]
    with pytest.raises(ConfigurationError, match="no record"):
        read_run(WORLD.store(machine), epoch + 1, QuickClock())


def test_what_was_read_and_could_not_be_committed_is_successful() -> None:
    machine = Machine()
    machine.faults.append(fails(errno.ENOSPC, "rename", "/output/a"))
    result = go(WORLD, machine, source(a=3))
    assert (result.succeeded, result.totals.sequences_left) == (False, 1)
    assert statuses_of(machine) == [RunStatus.SUCCESSFUL]


def test_a_job_that_was_held_back_has_failed() -> None:
    machine = Machine()

    def extracting(unit: WorkUnit) -> None:
        if unit.dataset_urn == "b":
            raise OSError(errno.EIO, "unreadable")

    go(JOB, machine, OddSource(source(a=3, b=1).datasets, extracting=extracting))
    assert statuses_of(machine) == [RunStatus.FAILED]


@pytest.mark.parametrize("shared", [False, True])
def test_a_killed_run_is_told_from_a_live_one(shared: bool) -> None:
    machine, clock = Machine(), QuickClock()
    store = WORLD.store(machine)
    settings = WORLD.begin(machine, source(a=3))
    with JobLock(store.fs, ROOTS.store, "waiting", 30, clock, shared=True):
        rows = read_runs(store, clock).runs
        assert [(row.run_id, row.status, row.epoch) for row in rows] == [("waiting", RunStatus.PENDING, 0)]
    with JobLock(store.fs, ROOTS.store, settings.run_id, 30, clock, shared=shared) as lock:
        assert statuses_of(machine, clock) == [RunStatus.RUNNING], "its beginning is not told yet"
        machine.faults.append(dies("rename", "/output/a"))
        with suppress(BaseException), recorded_run(settings, "run", "ann", facts=RunFacts(host="there")):
            run(launch, settings)
        machine.restart()
        row = read_runs(store, clock).runs[0]
        assert (row.status, row.who, row.host) == (RunStatus.RUNNING, "ann", "there")
        lock._stop.set()
        clock.seconds += 31
        result = read_runs(store, clock)
        assert [row.status for row in result.runs] == [RunStatus.FAILED]
        assert (result.failed_in_a_row, "it died" in result.runs[0].reason) == (1, True)


def test_runs_that_somebody_ended_break_no_row_of_failures() -> None:
    machine = Machine()
    go(WORLD, machine, source(a=1))
    no_source(machine)
    with suppress(KeyboardInterrupt), recorded_run(WORLD.begin(machine, source(a=1)), "run", "somebody"):
        raise KeyboardInterrupt
    no_source(machine)
    rows = read_runs(WORLD.store(machine), QuickClock()).runs
    assert failed_in_a_row(rows) == 2
    assert failed_in_a_row(rows[-1:]) == 0
    go(WORLD, machine, source(a=2))
    assert read_runs(WORLD.store(machine), QuickClock()).failed_in_a_row == 0


def test_one_run_is_told_with_its_datasets_those_that_failed_first() -> None:
    machine = Machine()
    datasets = source(a=3, b=1).datasets

    def extracting(unit: WorkUnit) -> None:
        if unit.dataset_urn == "b":
            raise OSError(errno.EIO, "unreadable")

    epoch = go(WORLD, machine, OddSource(datasets, extracting=extracting)).epoch
    kept = read_run(WORLD.store(machine), epoch, QuickClock())
    assert kept.beginning is not None
    assert kept.record is not None
    first, second = kept.datasets
    assert kept.run.status is RunStatus.FAILED
    assert kept.run.reason.startswith("1 dataset was committed; b: ")
    assert (first.outcome.dataset, first.outcome.outcome, first.attempts.failed) == ("b", "failed", 1)
    assert "unreadable" in first.outcome.reason
    assert (second.outcome.outcome, second.outcome.records, second.attempts.attempts) == ("published", 3, 1)
    assert second.attempts.records_read == 3


def test_a_run_that_retention_has_taken_is_told_from_one_that_never_was() -> None:
    machine = Machine()
    first, second = (go(WORLD, machine, source(a=number)).epoch for number in (1, 2))
    for name in (record_name(first), record_name(first, BEGUN)):
        machine.remove(f"{FOLDER}/{name}")
    store = WORLD.store(machine)
    with pytest.raises(ConfigurationError, match="retention has deleted"):
        read_run(store, first, QuickClock())
    with pytest.raises(ConfigurationError, match=f"the newest epoch is {second}"):
        read_run(store, second + 7, QuickClock())
    for epoch in (0, -1, second - 1):
        with pytest.raises(ConfigurationError, match="there is no record of that run"):
            read_run(store, epoch, QuickClock())


def test_a_record_that_can_not_be_read_is_told_in_its_row() -> None:
    machine = Machine()
    epoch = go(WORLD, machine, source(a=1)).epoch
    path = f"{FOLDER}/{record_name(epoch)}"
    machine.put(path, b"{}")
    (row,) = read_runs(WORLD.store(machine), QuickClock()).runs
    assert (row.status, row.died, "corrupt" in row.reason) == (RunStatus.FAILED, False, True)
    assert read_runs(WORLD.store(machine), QuickClock()).failed_in_a_row == 0, "nobody knows whether it has"
