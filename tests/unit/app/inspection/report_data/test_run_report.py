"""Run reports are built from the engine's stored tables and records, whichever of them are missing."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from contextlib import suppress

import pytest
from msgspec.structs import replace

from distcommit.app.inspection.recorded_runs import RunStatus, newest_epoch
from distcommit.app.inspection.report_data.run_report import RunReport, make_report
from distcommit.app.inspection.verify_store import verify_store
from distcommit.core.errors import ConfigurationError, TransientError
from distcommit.core.interfaces.source import Lag
from distcommit.core.records.run_counts import RunCounts
from distcommit.core.work_units import WorkUnit
from distcommit.engine.driver.run import run
from distcommit.engine.driver.run_recorder import recorded_run
from distcommit.protocol.paths.store import BEGUN, RUNS, record_name
from distcommit.stores.history.run_table import RowKind, TableRow, decode_task_rows, encode_task_rows
from tests.simulation.world import ROOTS, World
from tests.unit.engine.committing.situations import WORLD
from tests.unit.engine.driver.machines import Machine, OddSource, QuickClock, dies, go, launch, source, with_folders


def reported(machine: Machine, epoch: int, world: World = WORLD) -> RunReport:
    return make_report(world.store(machine), epoch, QuickClock())


def test_run_report_shows_tasks_and_datasets() -> None:
    machine = Machine()
    report = reported(machine, go(WORLD, machine, source(a=3, b=[20, 10])).epoch)
    assert (report.run.status, report.outcomes) == (RunStatus.COMMITTED, {"published": 2})
    assert [row.dataset for row in report.datasets] == ["b", "a"], "the largest dataset must come first"
    assert [(row.records, row.attempts, row.failed) for row in report.datasets] == [(30, 2, 0), (3, 1, 0)]
    assert {lane.phase for lane in report.task_timelines} == {"ingest"}
    assert len({lane.task for lane in report.task_timelines}) == len(report.task_timelines)
    assert sum(len(lane.reads) for lane in report.task_timelines) == 3
    assert sum(lane.records for lane in report.task_timelines) == 33
    assert sum(lane.datasets for lane in report.task_timelines) == 2
    assert any(lane.commits for lane in report.task_timelines)
    assert report.visible is not None
    assert report.waited is not None
    assert (report.visible.count, report.waited.count) == (2, 2)
    assert all(row.commit_ms is not None and row.visible_ms is not None for row in report.datasets)
    assert {read.subject for read in report.slowest_reads} == {"a", "b"}
    for lane in report.task_timelines:
        assert report.began_ms <= lane.began_ms <= lane.ended_ms <= report.ended_ms
    assert (report.missing_datasets_reason, report.missing_times_reason) == ("", "")


def test_file_system_requests_are_counted_by_dataset_and_without_dataset() -> None:
    machine = Machine()
    result = go(WORLD, machine, source(a=3, b=1))
    tables = machine.paths(f"{ROOTS.store}/run_tables")
    (path,) = [path for path in tables if "/ingest-" in path][:1]
    rows = decode_task_rows(tables[path], path)
    requests = [
        TableRow(RowKind.DATASET, name, counts=RunCounts(storage_requests=number))
        for name, number in (("a", 7), ("a", 2), ("", 5))
    ]
    machine.put(path, encode_task_rows(replace(rows, rows=[*rows.rows, *requests])))
    report = reported(machine, result.epoch)
    assert {row.dataset: row.requests for row in report.datasets} == {"a": 9, "b": 0}
    assert (report.requests, report.requests_unattributed) == (14, 5)
    assert all(row.commit_ms is not None and row.visible_ms is not None for row in report.datasets)


def test_commit_times_of_a_job_scope_run_are_known_although_another_task_publishes() -> None:
    machine, world = Machine(), World(job_level=True)
    report = reported(machine, go(world, machine, source(a=3)).epoch, world)
    assert report.datasets[0].commit_ms is not None
    assert report.visible is not None


def test_outcomes_that_two_attempts_at_a_task_recorded_count_once() -> None:
    machine = Machine()
    epoch = go(WORLD, machine, source(a=3, b=1)).epoch
    tables = machine.paths(f"{ROOTS.store}/run_tables")
    for path in [path for path in tables if "/drain-" in path]:
        rows = decode_task_rows(tables[path], path)
        twin = replace(rows, task=replace(rows.task, writer="f" * 32))
        machine.put(path.replace(rows.task.writer, twin.task.writer), encode_task_rows(twin))
    report = reported(machine, epoch)
    assert {row.dataset: (row.outcome, row.records) for row in report.datasets} == {
        "a": ("published", 3),
        "b": ("published", 1),
    }
    assert report.outcomes == {"published": 2}
    assert verify_store(WORLD.store(machine)).problems == []


def test_failed_dataset_comes_first_in_the_report() -> None:
    machine = Machine()

    def extracting(unit: WorkUnit) -> None:
        if unit.dataset_urn == "z":
            raise OSError(errno.EIO, "unreadable")

    data = OddSource(source(a=9, z=1).datasets, extracting=extracting)
    report = reported(machine, go(WORLD, machine, data).epoch)
    assert [(row.dataset, bool(row.kind)) for row in report.datasets] == [("z", True), ("a", False)]
    assert sum(lane.failed for lane in report.task_timelines) == 1
    assert report.datasets[0].visible_ms is None


def test_report_of_a_killed_run_shows_its_reads_and_the_next_report_shows_the_replay() -> None:
    machine = with_folders(Machine(), "c")
    machine.faults.append(dies("rename", "/output/c/", nth=2))
    settings = WORLD.begin(machine, source(c=[2, 1]))
    with suppress(BaseException), recorded_run(settings, "run", "ann") as recorder:
        run(launch, settings, observer=recorder)
    machine.restart()
    died = reported(machine, settings.epoch)
    assert (died.run.status, died.record) == (RunStatus.FAILED, None)
    assert {lane.name for lane in died.task_timelines} == {"not ended"}
    assert sum(len(lane.reads) for lane in died.task_timelines) == 2
    assert not any(lane.commits for lane in died.task_timelines)
    assert "died before they recorded their commit times" in died.missing_times_reason
    assert [(row.dataset, row.outcome) for row in died.datasets] == [("c", "read")]
    assert died.visible is None
    after = reported(machine, go(WORLD, machine, source(c=[2, 1])).epoch)
    assert [(row.dataset, row.outcome, row.commit_ms) for row in after.datasets] == [("c", "replayed", None)]
    assert [(lane.phase, lane.datasets) for lane in after.task_timelines] == [("recover", 1)]


def test_replay_of_an_older_run_does_not_count_for_the_visibility_times_of_this_run() -> None:
    machine = with_folders(Machine(), "c")
    machine.faults.append(dies("rename", "/output/c/", nth=2))
    with suppress(BaseException):
        run(launch, WORLD.begin(machine, source(c=[2, 1])))
    machine.restart()

    def extracting(unit: WorkUnit) -> None:
        raise OSError(errno.EIO, "unreadable")

    report = reported(machine, go(WORLD, machine, OddSource(source(c=[5, 1]).datasets, extracting=extracting)).epoch)
    assert [(row.dataset, row.outcome) for row in report.datasets] == [("c", "failed")]
    assert sum(lane.datasets for lane in report.task_timelines) == 1, "the replayed dataset"
    assert (report.waited, report.visible) == (None, None)


def test_missing_or_damaged_tables_are_reported_and_the_rest_is_shown() -> None:
    machine = Machine()
    epoch = go(WORLD, machine, source(a=3)).epoch
    tables = machine.paths(f"{ROOTS.store}/run_tables")
    (ingested,) = (path for path in tables if "/ingest-" in path)
    machine.put(ingested, tables[ingested][:-5])
    report = reported(machine, epoch)
    assert "corrupt" in report.missing_times_reason
    assert [row.outcome for row in report.datasets] == ["published"]
    for table in ("task_states", "run_tables"):
        for path in machine.paths(f"{ROOTS.store}/{table}"):
            machine.remove(path)
    bare = reported(machine, epoch)
    assert (bare.run.status, bare.datasets, bare.task_timelines) == (RunStatus.COMMITTED, [], [])
    assert "retention has deleted them" in bare.missing_datasets_reason
    assert bare.record is not None


def test_report_of_an_unknown_run_raises_configuration_error() -> None:
    machine = Machine()
    with pytest.raises(ConfigurationError, match="no run of the job is recorded"):
        newest_epoch(WORLD.store(machine), QuickClock())
    first, second = (go(WORLD, machine, source(a=number)).epoch for number in (1, 2))
    assert newest_epoch(WORLD.store(machine), QuickClock()) == second
    with pytest.raises(ConfigurationError, match="the newest epoch is"):
        reported(machine, second + 7)
    for name in (record_name(first), record_name(first, BEGUN)):
        machine.remove(f"{ROOTS.store}/{RUNS}/{name}")
    with pytest.raises(ConfigurationError, match="retention has deleted"):
        reported(machine, first)


def test_run_report_shows_dataset_lags_or_the_reason_why_they_are_unknown() -> None:
    machine = Machine()
    epoch = go(WORLD, machine, source(a=3, b=1)).epoch
    store, clock = WORLD.store(machine), QuickClock()

    def lags(urns: Iterable[str]) -> list[Lag]:
        return [Lag(urn, 7, 1.5) for urn in urns if urn == "a"]

    def refused(urns: Iterable[str]) -> list[Lag]:
        raise TransientError("the brokers do not answer")

    lags_by_dataset = {
        row.dataset: (row.lag_records, row.lag_seconds) for row in make_report(store, epoch, clock, lags).datasets
    }
    assert lags_by_dataset == {"a": (7, 1.5), "b": (None, None)}
    report = make_report(store, epoch, clock, refused)
    assert "do not answer" in report.lag_unknown
    assert len(report.datasets) == 2
