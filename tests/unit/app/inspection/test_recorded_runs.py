"""Run lists and run records: the status of each run, whatever its outcome, and of runs without a record."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress

import pytest

from distcommit.app.inspection.recorded_runs import RunStatus, failed_in_a_row, read_run, read_runs
from distcommit.core.errors import ConfigurationError, SourceUnavailableError
from distcommit.core.work_units import WorkUnit
from distcommit.engine.driver.run import run
from distcommit.engine.driver.run_recorder import recorded_run
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


def test_each_outcome_of_a_run_has_its_status() -> None:
    machine = Machine()
    go(WORLD, machine, source(a=1))
    no_source(machine)
    with suppress(KeyboardInterrupt), recorded_run(WORLD.begin(machine, source(a=1)), "run", "somebody"):
        raise KeyboardInterrupt
    result = read_runs(WORLD.store(machine), QuickClock())
    assert [row.status for row in result.runs] == [RunStatus.CANCELLED, RunStatus.FAILED, RunStatus.COMMITTED]
    assert "no route to the source" in result.runs[1].reason
    assert (result.failed_in_a_row, result.runs[2].datasets_published) == (1, 1)


def test_cancel_request_for_a_rebuild_is_not_listed_as_a_run() -> None:
    machine = Machine()
    epoch = go(WORLD, machine, source(a=1)).epoch
    assert put_cancel(WORLD.store(machine), CancelRequest(CANCEL_VERSION, epoch + 1, "ann@host", 0))
    assert [row.epoch for row in read_runs(WORLD.store(machine), QuickClock()).runs] == [epoch]
    with pytest.raises(ConfigurationError, match="no record"):
        read_run(WORLD.store(machine), epoch + 1, QuickClock())


def test_run_whose_commit_failed_after_reading_has_status_successful() -> None:
    machine = Machine()
    machine.faults.append(fails(errno.ENOSPC, "rename", "/output/a"))
    result = go(WORLD, machine, source(a=3))
    assert (result.succeeded, result.totals.sequences_postponed) == (False, 1)
    assert statuses_of(machine) == [RunStatus.SUCCESSFUL]


def test_run_of_a_held_job_has_status_failed() -> None:
    machine = Machine()

    def extracting(unit: WorkUnit) -> None:
        if unit.dataset_urn == "b":
            raise OSError(errno.EIO, "unreadable")

    go(JOB, machine, OddSource(source(a=3, b=1).datasets, extracting=extracting))
    assert statuses_of(machine) == [RunStatus.FAILED]


@pytest.mark.parametrize("shared", [False, True])
def test_killed_run_is_distinguished_from_a_live_run(shared: bool) -> None:
    machine, clock = Machine(), QuickClock()
    store = WORLD.store(machine)
    settings = WORLD.begin(machine, source(a=3))
    with JobLock(store.fs, ROOTS.store, "waiting", 30, clock, shared=True):
        rows = read_runs(store, clock).runs
        assert [(row.run_id, row.status, row.epoch) for row in rows] == [("waiting", RunStatus.PENDING, 0)]
    with JobLock(store.fs, ROOTS.store, settings.run_id, 30, clock, shared=shared) as lock:
        assert statuses_of(machine, clock) == [RunStatus.RUNNING], (
            "the run must be listed before its beginning is recorded"
        )
        machine.faults.append(dies("rename", "/output/a"))
        with suppress(BaseException), recorded_run(settings, "run", "ann", facts=RunFacts(host="there")):
            run(launch, settings)
        machine.restart()
        row = read_runs(store, clock).runs[0]
        assert (row.status, row.requested_by, row.host) == (RunStatus.RUNNING, "ann", "there")
        lock._stop.set()
        clock.seconds += 31
        result = read_runs(store, clock)
        assert [row.status for row in result.runs] == [RunStatus.FAILED]
        assert (result.failed_in_a_row, "it died" in result.runs[0].reason) == (1, True)


def test_cancelled_runs_do_not_reset_the_count_of_failed_runs() -> None:
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


def test_run_record_lists_its_datasets_with_failed_ones_first() -> None:
    machine = Machine()
    datasets = source(a=3, b=1).datasets

    def extracting(unit: WorkUnit) -> None:
        if unit.dataset_urn == "b":
            raise OSError(errno.EIO, "unreadable")

    epoch = go(WORLD, machine, OddSource(datasets, extracting=extracting)).epoch
    details = read_run(WORLD.store(machine), epoch, QuickClock())
    assert details.beginning is not None
    assert details.record is not None
    first, second = details.datasets
    assert details.run.status is RunStatus.FAILED
    assert details.run.reason.startswith("1 dataset was committed; b: ")
    assert (first.dataset, first.outcome, first.counts.attempts_failed) == ("b", "failed", 1)
    assert "unreadable" in first.reason
    assert (second.outcome, second.counts.records_published, second.counts.attempts) == ("published", 3, 1)
    assert second.counts.records_read == 3


def test_expired_run_and_unknown_run_raise_different_errors() -> None:
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


def test_unreadable_run_record_is_reported_in_its_row() -> None:
    machine = Machine()
    epoch = go(WORLD, machine, source(a=1)).epoch
    path = f"{FOLDER}/{record_name(epoch)}"
    machine.put(path, b"{}")
    (row,) = read_runs(WORLD.store(machine), QuickClock()).runs
    assert (row.status, row.is_dead, "corrupt" in row.reason) == (RunStatus.FAILED, False, True)
    assert read_runs(WORLD.store(machine), QuickClock()).failed_in_a_row == 0, (
        "a run with an unreadable record must not count as failed"
    )
