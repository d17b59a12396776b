"""The drain publishes the remaining sequences, waits for tasks that are still running, and counts each dataset once."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from distcommit.core.watermark import Watermark
from distcommit.core.work_units import WorkUnit
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.protocol.seal_decision import CommitPolicy
from distcommit.stores.state.task_states import record_ingest_ended
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import World
from tests.unit.engine.committing.situations import SIX, WORLD, check_recovery
from tests.unit.engine.driver.machines import (
    BUCKET_LOG,
    OUTPUT,
    STAGING,
    Machine,
    OddSource,
    audit,
    begin_ingest,
    fails,
    go,
    ingest_all,
    reading,
    source,
    statuses,
    with_folders,
)


def test_drain_before_the_end_of_ingest_does_not_fail_incomplete_datasets() -> None:
    """A repeated Spark task still finds its dataset open, and one run publishes everything."""
    world = World(policy=CommitPolicy.SUCCESSFUL)
    machine, data = Machine(), ModelSource({"a": ModelDataset({"0": 4}, units=2)})
    settings, tasks = begin_ingest(world, machine, data)

    def dying(unit: WorkUnit) -> None:
        if unit.low.positions["0"]:
            raise Crashed

    with suppress(Crashed):
        ingest_partition(reading(settings, OddSource(data.datasets, extracting=dying)), 0)
    machine.restart()
    early = drain_partition(settings, 0)
    assert early.counts.datasets_published == 0
    ingest_all(settings, tasks)
    record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
    assert drain_partition(settings, 0).counts.datasets_published == 1
    audit_result = audit(world, machine)
    assert (audit_result.exact, audit_result.records) == (True, 4)


def test_drain_reports_a_quarantine_whose_task_report_was_lost() -> None:
    machine = Machine()
    settings, tasks = begin_ingest(WORLD, machine, source(a=3, b=3, c=3))

    def vanish(operation: Operation) -> None:
        if operation.kind == "rename" and OUTPUT + "/b/" in operation.path:
            for path in machine.paths(STAGING):
                machine.remove(path)

    with_folders(machine, "b").faults.append(vanish)
    ingest_all(settings, tasks)  # their reports die with the workers
    machine.restart()
    report = drain_partition(settings, 0)
    assert statuses(WORLD, machine)["b"] == "quarantined"
    assert (
        report.counts.datasets_quarantined,
        report.counts.sequences_postponed,
        report.counts.datasets_published,
    ) == (
        1,
        1,
        2,
    )
    assert [(reason.subject, reason.kind) for reason in report.reasons] == [("b", "left quarantined")]


@pytest.mark.parametrize("nth", range(1, 9))
def test_repeated_drain_counts_every_dataset_once(nth: int) -> None:
    machine = Machine()
    data = ModelSource({**source(a=3, c=1).datasets, "b": ModelDataset({"0": 2}, fails=frozenset({"0"}))})
    settings, tasks = begin_ingest(WORLD, machine, data)
    ingest_all(settings, tasks)
    record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
    machine.faults.append(fails(errno.EIO, "scandir", BUCKET_LOG, first=nth, times=1))
    report = drain_partition(settings, 0)
    assert (report.counts.datasets_published, report.counts.datasets_failed, report.counts.sequences_postponed) == (
        2,
        1,
        0,
    )
    assert [reason.subject for reason in report.reasons] == ["b"]


@pytest.mark.parametrize(("kind", "part"), [("rename", OUTPUT + "/c/"), ("rmdir", STAGING + "/0000000002")])
def test_drain_repeated_after_its_count_counts_every_dataset_once(kind: str, part: str) -> None:
    machine = Machine()
    data = ModelSource({**source(a=3, c=1).datasets, "b": ModelDataset({"0": 2}, fails=frozenset({"0"}))})
    settings, tasks = begin_ingest(WORLD, machine, data)
    machine.faults.append(fails(errno.EIO, "scandir", BUCKET_LOG))  # everything is left to the drain
    ingest_all(settings, tasks)
    machine.restart()
    record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
    machine.faults.append(fails(errno.EACCES, kind, part, times=2))
    report = drain_partition(settings, 0)
    assert (report.counts.datasets_published, report.counts.datasets_failed, report.counts.sequences_postponed) == (
        2,
        1,
        0,
    )
    assert (report.counts.records_published, report.counts.steps_executed) == (4, 2)
    assert [reason.subject for reason in report.reasons] == ["b"]


PARTLY = ModelSource({"a": ModelDataset({"0": 2, "1": 2}, fails=frozenset({"1"}))})


def test_dataset_with_a_failed_work_unit_is_reported_and_the_run_does_not_succeed() -> None:
    world, machine = World(policy=CommitPolicy.SUCCESSFUL), Machine()
    result = go(world, machine, PARTLY)
    assert (result.totals.datasets_published, result.totals.datasets_partial) == (1, 1)
    assert not result.succeeded
    assert [(reason.subject, reason.kind) for reason in result.reasons.entries] == [("a", "partly failed")]


def test_repeated_drain_also_reports_a_failed_work_unit() -> None:
    not_told = []
    for nth in range(1, 10):
        world, machine = World(policy=CommitPolicy.SUCCESSFUL), Machine()
        settings, tasks = begin_ingest(world, machine, PARTLY)
        ingest_all(settings, tasks)
        record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
        machine.faults.append(fails(errno.EIO, "scandir", BUCKET_LOG, first=nth, times=1))
        report = drain_partition(settings, 0)
        assert report.counts.datasets_published == 1
        if report.counts.datasets_partial != 1:
            not_told.append(nth)
    assert not_told == []


def test_policy_successful_leaves_the_failed_work_unit_to_the_next_run() -> None:
    world, machine = World(policy=CommitPolicy.SUCCESSFUL), Machine()
    go(world, machine, PARTLY)
    assert world.watermarks(machine) == {"a": Watermark({"0": 2, "1": 0})}
    assert audit(world, machine).exact
    check_recovery(machine, source(a=[2, 2]), world)


def test_counts_include_all_published_datasets_whichever_phase_published_them() -> None:
    machine = Machine()
    result = go(WORLD, machine, SIX)
    totals = result.totals
    assert (totals.datasets_planned, totals.datasets_published, totals.records_published) == (6, 6, 11)
    assert (totals.files_published, totals.work_units, totals.records_written) == (7, 7, 11)
    again = go(WORLD, machine, SIX).totals
    assert (again.datasets_planned, again.records_published, again.records_read) == (0, 0, 0)
