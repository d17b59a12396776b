"""Storage failures: a failing operation affects only the datasets that depend on it, and is reported."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from distcommit.core.watermark import Watermark
from distcommit.core.work_units import TaskOutcome, TaskState
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.engine.run_settings import RunSettings
from distcommit.steps import step_registry
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.stores.state.run_plans import PlanReader, read_manifest
from distcommit.stores.state.task_states import TaskStateWriter, record_ingest_ended
from distcommit.testing.fakes.faulty_calls import Operation
from tests.simulation.world import World
from tests.unit.engine.committing.situations import SIX, WORLD, check_recovery, rows, sealed_but_not_published
from tests.unit.engine.driver.machines import (
    BUCKET_LOG,
    NOTHING,
    OUTPUT,
    STAGING,
    Fault,
    Machine,
    begin_ingest,
    fails,
    go,
    ingest_all,
    published,
    source,
    states,
    statuses,
    with_folders,
)

# -- one dataset's failure


def trouble_verifying(machine: Machine) -> None:
    machine.faults.append(fails(errno.EACCES, "lstat", OUTPUT + "/b/"))


def trouble_renaming(machine: Machine) -> None:
    machine.faults.append(fails(errno.EIO, "rename", OUTPUT + "/b/"))


def trouble_syncing(machine: Machine) -> None:
    machine.faults.append(fails(errno.EACCES, "fsync_folder", OUTPUT + "/b"))


def a_file_in_place_of_its_folder(machine: Machine) -> None:
    if f"{OUTPUT}/b" not in machine.paths(OUTPUT):
        with suppress(FileNotFoundError):
            machine.rmdir(f"{OUTPUT}/b")
        machine.put(f"{OUTPUT}/b", b"somebody put a file here")


TROUBLES = [trouble_verifying, trouble_renaming, trouble_syncing, a_file_in_place_of_its_folder]


@pytest.mark.parametrize("trouble", TROUBLES)
def test_output_failure_of_one_dataset_quarantines_only_that_dataset_after_max_attempts_runs(
    trouble: Callable[[Machine], None],
) -> None:
    machine = Machine()
    sealed_but_not_published(machine, source(a=3, b=3, c=3))
    tried = []
    for _ in range(4):
        trouble(machine)
        result = go(WORLD, machine, NOTHING)
        assert not result.succeeded
        assert {reason.subject for reason in result.reasons.entries} == {"b"}
        tried.append((statuses(WORLD, machine)["b"], len(states(WORLD, machine)["b"].tried_epochs)))
    assert tried == [("pending", 1), ("pending", 2), ("quarantined", 3), ("quarantined", 3)]
    assert WORLD.watermarks(machine) == {"a": Watermark({"0": 3}), "c": Watermark({"0": 3})}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_output_failure_in_the_reading_run_leaves_the_other_datasets_published(
    trouble: Callable[[Machine], None],
) -> None:
    machine = Machine()
    WORLD.store(machine)
    if trouble is not a_file_in_place_of_its_folder:
        with_folders(machine, "b")
    trouble(machine)
    result = go(WORLD, machine, source(a=3, b=3, c=3))
    totals = result.totals
    if trouble is trouble_verifying:  # a rename that works needs no verification
        assert result.succeeded
        return
    assert (result.succeeded, totals.datasets_published, totals.sequences_postponed) == (False, 2, 1)
    assert [reason.subject for reason in result.reasons] == ["b"]
    assert "To do: " in result.reasons.entries[0].text, "the cause is reported, not only that the sequence is pending"
    assert statuses(WORLD, machine) == {"a": "idle", "b": "pending", "c": "idle"}


def breaks_with_a_defect(operation: Operation) -> None:
    if operation.kind == "rename" and f"{OUTPUT}/b/" in operation.path:
        raise RuntimeError("a defect")


RENAME_FAULTS = pytest.mark.parametrize(
    "fault", [fails(errno.EIO, "rename", OUTPUT + "/b/"), breaks_with_a_defect], ids=["disk-error", "defect"]
)
TWO_BUCKETS = replace(WORLD, buckets=2)


@pytest.mark.parametrize(
    "world", [TWO_BUCKETS, replace(TWO_BUCKETS, at_least_once=True)], ids=["once", "at-least-once"]
)
@RENAME_FAULTS
def test_error_at_the_publishing_rename_names_bucket_dataset_and_step(world: World, fault: Fault) -> None:
    machine = Machine()
    store = world.store(machine)
    with_folders(machine, "b").faults.append(fault)
    text = go(world, machine, source(a=3, b=3, c=3)).reasons.entries[0].text
    step = re.search(r"step=FsRenameCommitStep\('\S+' -> 'b/\S+'\)", text)
    assert step is not None, text
    assert f"bucket={store.bucket_of('b')}" in text
    assert "dataset=b" in text


@RENAME_FAULTS
def test_recorded_reason_of_a_failed_replay_names_bucket_dataset_and_step(fault: Fault) -> None:
    machine = Machine()
    sealed_but_not_published(machine, source(a=3, b=3))
    machine.faults.append(fault)
    go(WORLD, machine, NOTHING)
    reason = states(WORLD, machine)["b"].reason
    assert "step=FsRenameCommitStep(" in reason
    assert f"dataset=b, epoch=2, bucket={WORLD.store(machine).bucket_of('b')}" in reason


def test_rename_that_fails_once_is_repeated_in_the_same_run() -> None:
    machine, data = Machine(), source(a=3, b=3, c=3)
    WORLD.store(machine)
    machine.faults.append(fails(errno.EIO, "rename", OUTPUT + "/b/", times=1))
    result = go(WORLD, machine, data)
    assert (result.succeeded, result.totals.sequences_postponed, result.reasons.entries) == (True, 0, ())
    assert WORLD.violation(machine, data, {}) == ""


# -- tables, plans and staged files that can't be read or written


def in_two_buckets(machine: Machine) -> tuple[World, RunSettings, int]:
    """Return two datasets in different buckets, each in a partition of its own."""
    world = World(buckets=2, partitions=2)
    settings, tasks = begin_ingest(world, machine, SIX)
    return world, settings, tasks


def datasets_of(settings: RunSettings, bucket: int) -> int:
    fs, root = settings.store.fs, settings.store.roots.store
    return len(PlanReader(fs, root, read_manifest(fs, root, settings.run_id)).of(bucket))


def test_corrupt_task_state_file_stops_no_task_and_no_other_partition() -> None:
    machine = Machine()
    world, settings, tasks = in_two_buckets(machine)
    machine.put(f"/job/store/task_states/run={settings.run_id}/partition=00000-of-00002/x.parquet", b"garbage")
    ingest_all(settings, tasks)
    record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
    report = drain_partition(settings, 0)
    assert report.counts.datasets_published >= datasets_of(settings, 1) > 0
    assert {reason.subject for reason in report.reasons} <= {"bucket 0"}
    check_recovery(machine, SIX, world)


def test_unreadable_plan_file_fails_only_its_own_buckets() -> None:
    machine = Machine()
    world, settings, tasks = in_two_buckets(machine)
    fs, root = settings.store.fs, settings.store.roots.store
    name = read_manifest(fs, root, settings.run_id).files[0]
    machine.faults.append(fails(errno.EIO, "read", f"/plans/run={settings.run_id}/{name}"))
    ingest_all(settings, tasks)
    record_ingest_ended(fs, root, settings.run_id)
    first, second = (drain_partition(settings, partition) for partition in range(2))
    assert first.counts.datasets_published == 0
    assert [(reason.subject, reason.kind) for reason in first.reasons] == [("bucket 0", "OSError")]
    assert second.counts.datasets_published == datasets_of(settings, 1) > 0
    machine.restart()
    check_recovery(machine, SIX, world)


def test_unreadable_plan_file_makes_the_run_unsuccessful() -> None:
    world, machine = World(buckets=2), Machine()

    def unreadable(operation: Operation) -> None:
        if operation.kind == "read" and "/plans/" in operation.path and operation.path.endswith(".parquet"):
            raise OSError(errno.EIO, "unreadable", operation.path)

    machine.faults.append(unreadable)
    result = go(world, machine, SIX)
    assert not result.succeeded
    assert result.totals.datasets_published < result.totals.datasets_planned or result.reasons.entries


def test_task_states_that_can_not_be_written_at_first_are_written_later() -> None:
    machine, data = Machine(), source(a=3, b=2, c=1)
    machine.faults.append(fails(errno.ENOSPC, "create", ".parquet-", first=2, times=1))  # the first is the plan
    machine.faults.append(fails(errno.ENOSPC, "fsync", "/task_states/", times=1))
    result = go(WORLD, machine, data)
    assert (result.succeeded, result.totals.records_read) == (True, 6)
    assert WORLD.violation(machine, data, {}) == ""


def test_task_states_that_can_never_be_written_fail_their_datasets() -> None:
    machine, data = Machine(), source(a=3, b=2)
    machine.faults.append(fails(errno.ENOSPC, "rename", "/partition=00000-of-00001/", first=1))
    result = go(WORLD, machine, data)
    assert not result.succeeded
    assert not published(machine)
    machine.restart()
    check_recovery(machine, data)


def test_staged_files_that_could_not_be_synced_are_never_published_and_their_records_are_read_again() -> None:
    machine, data = Machine(), source(a=3)
    settings, tasks = begin_ingest(WORLD, machine, data)
    machine.faults.append(fails(errno.EIO, "syncfs", STAGING, times=1))
    reports = ingest_all(replace(settings, task_attempts=2), tasks)
    assert sum(report.counts.work_units_failed for report in reports) == 0
    failed, read = sorted(rows(settings), key=lambda row: row.outcome)
    assert (failed.outcome, failed.branches, read.outcome) == (TaskOutcome.FAILED, (), TaskOutcome.SUCCEEDED)
    assert "could not be synced" in failed.error
    [file] = published(machine)
    assert read.attempt in file
    assert failed.attempt != read.attempt
    check_recovery(machine, data)


def test_staged_files_that_can_never_be_synced_fail_the_dataset_with_that_reason() -> None:
    machine, data = Machine(), source(a=3)
    machine.faults.append(fails(errno.EIO, "syncfs", STAGING))
    result = go(WORLD, machine, data)
    assert (result.succeeded, result.totals.datasets_failed, result.totals.work_units_failed) == (False, 1, 1)
    assert "could not be synced" in result.reasons.entries[0].text
    assert not published(machine)
    machine.restart()
    check_recovery(machine, data)


@pytest.mark.parametrize("part", [OUTPUT, OUTPUT + "/a"])
def test_output_folder_that_could_not_be_synced_leaves_its_sequence_pending(part: str) -> None:
    machine, data = Machine(), source(a=3)
    WORLD.store(machine)

    def not_synced(operation: Operation) -> None:
        if operation.kind in ("fsync_folder", "syncfs") and operation.path == part and published(machine):
            raise OSError(errno.EIO, "EIO", operation.path)

    with_folders(machine, "a").faults.append(not_synced)
    result = go(WORLD, machine, data)
    assert (result.succeeded, result.totals.sequences_postponed, statuses(WORLD, machine)) == (
        False,
        1,
        {"a": "pending"},
    )
    machine.restart()
    check_recovery(machine, data)


def test_commit_failure_never_fails_the_ingest_task() -> None:
    machine, data = Machine(), source(a=3, b=1)
    settings, tasks = begin_ingest(WORLD, machine, data)
    machine.faults.append(fails(errno.EIO, "create", BUCKET_LOG))
    reports = [ingest_partition(settings, task) for task in range(tasks)]
    assert [(r.counts.work_units_failed, r.fenced, [*r.reasons]) for r in reports] == [(0, "", [])] * tasks
    machine.restart()
    assert drain_partition(settings, 0).counts.datasets_published == 2
    check_recovery(machine, data)


def test_task_state_that_ends_before_it_begins_fails_only_its_own_dataset() -> None:
    machine, first, more = Machine(), source(a=1, b=3, c=1), source(a=2, b=5, c=2)
    go(WORLD, machine, first)
    settings, tasks = begin_ingest(WORLD, machine, more)
    fs, root = settings.store.fs, settings.store.roots.store
    plans = PlanReader(fs, root, read_manifest(fs, root, settings.run_id)).of(0)
    (unit,) = (unit for plan in plans for unit in plan.work_units if unit.dataset_urn == "b")
    odd = TaskState(
        *(settings.run_id, settings.epoch, "b", unit.work_unit_id, "odd", TaskOutcome.SUCCEEDED),
        *(unit.low, unit.expected_high, Watermark({"0": 2})),
    )
    TaskStateWriter(fs, root, settings.run_id, settings.partitions).append({0: [odd]})
    ingest_all(settings, tasks)
    record_ingest_ended(fs, root, settings.run_id)
    report = drain_partition(settings, 0)
    assert (report.counts.datasets_published, report.counts.datasets_failed, report.counts.sequences_postponed) == (
        2,
        1,
        0,
    )
    (reason,) = report.reasons
    assert (reason.subject, reason.kind) == ("b", "failed")
    assert "attempt odd reports the range" in reason.text
    assert WORLD.watermarks(machine)["b"] == Watermark({"0": 3})
    check_recovery(machine, more)


# -- a program that is too old


@pytest.fixture
def older_program(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def make(how: str) -> None:
        if how == "older version":
            monkeypatch.setattr(FsRenameCommitStep, "version", 0)
        else:
            monkeypatch.delitem(step_registry._types, "fs-rename")

    return make


@pytest.mark.parametrize("how", ["older version", "unregistered"])
def test_steps_unknown_to_this_program_are_left_for_a_newer_one(
    older_program: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    machine, data = Machine(), source(a=3, b=2)
    sealed_but_not_published(machine, data)
    older_program(how)
    for _ in range(4):
        result = go(WORLD, machine, NOTHING)
        assert (result.succeeded, result.totals.datasets_quarantined) == (False, 0)
    assert {(s.status.value, s.tried_epochs) for s in states(WORLD, machine).values()} == {("pending", ())}
    monkeypatch.undo()
    check_recovery(machine, data)
