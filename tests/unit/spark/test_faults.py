"""What went wrong once, or was attacked in review: one bad thing touches only what depends on it, and is told."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from distcommit.model.errors import (
    FencedError,
    OutcomeUnknownError,
    SourceError,
    SourceUnavailableError,
    TransientError,
)
from distcommit.model.log_records import Decide
from distcommit.model.ports import FolderEntry
from distcommit.model.source import DatasetProblem
from distcommit.model.watermark import Watermark
from distcommit.model.work import DatasetPlan, TaskOutcome, TaskState, WorkUnit
from distcommit.protocol.readiness import CommitPolicy
from distcommit.spark.committer import BucketCommitter
from distcommit.spark.ingest import drain_partition, ingest_partition
from distcommit.spark.recover import recover_partition
from distcommit.spark.reports import Report
from distcommit.spark.settings import RunSettings
from distcommit.steps import registry
from distcommit.steps.rename import FsRenameCommitStep
from distcommit.stores.fencing import fence_job
from distcommit.stores.job_store import JobStore
from distcommit.stores.plans import read_bucket_plan, read_manifest
from distcommit.stores.retention import forget_runs
from distcommit.stores.task_states import TaskStateReader, TaskStateWriter, record_ingest_ended
from distcommit.testing.model_source import ModelDataset, ModelSource
from distcommit.testing.simulated_posix import Crashed, Operation
from distcommit.testing.world import ROOTS, SimulatedFileSystem, World
from tests.unit.spark.machines import (
    BUCKET_LOG,
    NOTHING,
    OUTPUT,
    STAGING,
    Machine,
    OddSource,
    audit,
    begin_ingest,
    dies,
    fails,
    go,
    ingest_all,
    published,
    source,
    states,
    statuses,
    with_folders,
    written,
)

WORLD = World()
JOB = World(buckets=2, job_level=True)
SIX = source(a=[2, 2], b=3, c=1, g=1, h=1, i=1)


def sealed_but_not_published(machine: Machine, data: ModelSource, world: World = WORLD) -> None:
    """A run that could seal and stage, but publish nothing: all of it is pending."""
    world.store(machine)
    machine.faults.append(fails(errno.EIO, "rename", OUTPUT + "/"))
    assert not go(world, machine, data).succeeded
    machine.restart()
    assert set(statuses(world, machine).values()) == {"pending"}


def decided_and_half_published(machine: Machine, data: ModelSource = SIX) -> None:
    """A job-level run that decided to publish, and died after some of its files."""
    JOB.store(machine)
    with_folders(machine, *data.datasets).faults.append(dies("rename", OUTPUT + "/", nth=4))
    with pytest.raises(Crashed):
        go(JOB, machine, data)
    machine.restart()
    assert len(published(machine)) == 3


def check_recovery(machine: Machine, data: ModelSource, world: World = WORLD) -> None:
    before = world.watermarks(machine)
    assert go(world, machine, data).succeeded
    assert world.violation(machine, data, before) == ""


def rows(settings: RunSettings, bucket: int = 0) -> list[TaskState]:
    return TaskStateReader(settings.store.fs, settings.store.roots.store, settings.run_id, bucket).poll()


# -- job-level: decisions


def test_a_held_sequence_that_was_decided_is_never_dropped_though_its_bucket_could_not_be_read() -> None:
    machine = Machine()
    for _ in range(30):
        fence_job(JOB.store(machine), f"earlier-{_}")  # so that the next run checkpoints the job log
    decided_and_half_published(machine)
    for bucket in range(2):
        machine.faults.append(fails(errno.EIO, "scandir", f"{BUCKET_LOG}{bucket:05d}"))
    result = go(JOB, machine, NOTHING)
    assert [reason.subject for reason in result.totals.reasons][:2] == ["bucket 0", "bucket 1"]
    assert JOB.store(machine).job_log().refresh().last_checkpoint > 1
    machine.restart()
    result = go(JOB, machine, SIX)
    assert (result.succeeded, result.totals.sequences_dropped) == (True, 0)
    assert JOB.violation(machine, SIX, {}) == ""


def test_a_decision_outlives_a_recovery_whose_clean_up_fails() -> None:
    machine = Machine()
    for _ in range(30):
        fence_job(JOB.store(machine), f"earlier-{_}")
    decided_and_half_published(machine)
    for bucket in range(2):
        machine.put(f"{STAGING}/0000000003/bucket={bucket:05d}/x.1/left", b"")
    machine.faults.append(fails(errno.EPERM, "unlink", "/x.1/left"))
    machine.faults.append(fails(errno.EIO, "rename", OUTPUT + "/"))
    result = go(JOB, machine, NOTHING)
    assert {"bucket 0", "bucket 1"} <= {reason.subject for reason in result.totals.reasons}
    machine.restart()
    result = go(JOB, machine, SIX)
    assert (result.succeeded, result.totals.sequences_dropped) == (True, 0)
    assert JOB.violation(machine, SIX, {}) == ""


class StaleView(Machine):
    """An executor's mount whose listing of the job log is as old as its second segment."""

    def __init__(self, real: Machine) -> None:
        super().__init__()
        self.__dict__.update({name: value for name, value in real.__dict__.items() if name != "gate"})

    def scandir(self, path: str) -> list[FolderEntry]:
        found = super().scandir(path)
        return [entry for entry in found if entry.name <= f"{2:012d}.seg"] if path.endswith("/log/job") else found


def test_nothing_is_dropped_on_a_view_of_the_job_log_without_the_run_s_own_fence() -> None:
    machine = Machine()
    decided_and_half_published(machine)
    settings = JOB.begin(machine, SIX)
    stale = JobStore(SimulatedFileSystem(StaleView(machine)), ROOTS, "job", 2)
    report = recover_partition(replace(settings, store=stale), 0)
    assert report.sequences_dropped == 0
    assert [(reason.kind, "older job log" in reason.text) for reason in report.reasons] == [("TransientError", True)]
    check_recovery(machine, SIX, JOB)


def test_job_level_publishes_nothing_at_all_if_one_dataset_fails_and_all_of_it_once_none_does() -> None:
    machine = Machine()
    failing = ModelSource({**SIX.datasets, "c": ModelDataset({"0": 1}, fails=frozenset({"0"}))})
    result = go(JOB, machine, failing)
    assert (result.succeeded, result.decided) == (False, False)
    assert not published(machine)
    assert JOB.watermarks(machine) == {}
    result = go(JOB, machine, SIX)
    assert (result.succeeded, result.decided, result.totals.sequences_dropped) == (True, True, 5)
    assert JOB.violation(machine, SIX, {}) == ""


@pytest.mark.parametrize("before", [True, False])
def test_job_level_a_crash_around_the_decision_publishes_nothing_or_everything(before: bool) -> None:
    machine = Machine()
    seen: list[Operation] = []

    def die(operation: Operation) -> None:
        decision = isinstance(written(machine, operation), Decide)
        if seen or (decision and before):
            raise Crashed
        if decision:
            seen.append(operation)

    machine.faults.append(die)
    with pytest.raises(Crashed):
        go(JOB, machine, SIX)
    machine.restart()
    assert not published(machine)
    assert set(statuses(JOB, machine).values()) == {"pending"}
    result = go(JOB, machine, NOTHING)
    totals = result.totals
    assert (totals.sequences_dropped, totals.sequences_replayed) == ((6, 0) if before else (0, 6))
    assert bool(published(machine)) is not before
    check_recovery(machine, SIX, JOB)


def test_job_level_nothing_new_is_a_success() -> None:
    machine = Machine()
    assert go(JOB, machine, NOTHING).succeeded
    assert go(JOB, machine, SIX).succeeded
    result = go(JOB, machine, SIX)
    assert (result.succeeded, result.totals.reasons) == (True, [])


def test_a_late_twin_of_recover_leaves_the_sequences_of_its_own_run_alone() -> None:
    machine = Machine()
    settings, tasks = begin_ingest(JOB, machine, SIX)
    ingest_all(settings, tasks)
    for bucket in range(2):
        report = Report()
        BucketCommitter(settings, bucket, report).replay(frozenset())
        assert (report.sequences_dropped, report.sequences_replayed) == (0, 0)
    assert recover_partition(settings, 0).reasons == []
    assert set(statuses(JOB, machine).values()) == {"pending"}


# -- one dataset's trouble


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
def test_trouble_with_one_dataset_s_output_quarantines_that_dataset_only_after_max_attempts_runs(
    trouble: Callable[[Machine], None],
) -> None:
    machine = Machine()
    sealed_but_not_published(machine, source(a=3, b=3, c=3))
    tried = []
    for _ in range(4):
        trouble(machine)
        result = go(WORLD, machine, NOTHING)
        assert not result.succeeded
        assert {reason.subject for reason in result.totals.reasons} == {"b"}
        tried.append((statuses(WORLD, machine)["b"], len(states(WORLD, machine)["b"].tried_epochs)))
    assert tried == [("pending", 1), ("pending", 2), ("quarantined", 3), ("quarantined", 3)]
    assert WORLD.watermarks(machine) == {"a": Watermark({"0": 3}), "c": Watermark({"0": 3})}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_trouble_with_one_dataset_s_output_in_the_run_that_reads_it_leaves_the_others_published(
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
    assert (result.succeeded, totals.datasets_published, totals.sequences_left) == (False, 2, 1)
    assert [reason.subject for reason in totals.reasons] == ["b"]
    assert statuses(WORLD, machine) == {"a": "idle", "b": "pending", "c": "idle"}


def test_a_rename_that_fails_once_is_mended_in_the_same_run() -> None:
    machine, data = Machine(), source(a=3, b=3, c=3)
    WORLD.store(machine)
    machine.faults.append(fails(errno.EIO, "rename", OUTPUT + "/b/", times=1))
    result = go(WORLD, machine, data)
    assert (result.succeeded, result.totals.sequences_left, result.totals.reasons) == (True, 0, [])
    assert WORLD.violation(machine, data, {}) == ""


def test_a_quarantine_in_a_task_whose_report_was_lost_is_told_by_the_drain() -> None:
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
    assert (report.datasets_quarantined, report.sequences_left, report.datasets_published) == (1, 1, 2)
    assert [(reason.subject, reason.kind) for reason in report.reasons] == [("b", "left quarantined")]


# -- sources that misbehave


def refuse(unit: WorkUnit) -> None:
    if unit.dataset_urn == "b":
        raise SourceError("bad header \udcff")


def behind(unit: WorkUnit, high: Watermark) -> Watermark:
    return Watermark({p: int(v) - 1 for p, v in unit.low.positions.items()}) if unit.dataset_urn == "b" else high


def beyond(unit: WorkUnit, high: Watermark) -> Watermark:
    return Watermark({p: int(v) + 1 for p, v in high.positions.items()}) if unit.dataset_urn == "b" else high


def elsewhere(unit: WorkUnit, high: Watermark) -> Watermark:
    return Watermark({**high.positions, "99": 1}) if unit.dataset_urn == "b" else high


def raising(unit: WorkUnit, high: Watermark) -> Watermark:
    if unit.dataset_urn == "b":
        raise ZeroDivisionError("a bug in the source")
    return high


@pytest.mark.parametrize(
    ("odd", "told"),
    [
        ({"extracting": refuse}, "SourceError: bad header \\udcff"),
        ({"highs": behind}, "outside its work unit"),
        ({"highs": beyond}, "outside its work unit"),
        ({"highs": elsewhere}, "outside its work unit"),
        ({"highs": raising}, "ZeroDivisionError: a bug in the source"),
    ],
)
def test_an_extraction_that_misbehaves_fails_its_own_dataset_and_says_how(odd: dict[str, Any], told: str) -> None:
    machine, good = Machine(), source(a=3, b=2, c=1)
    result = go(WORLD, machine, OddSource(good.datasets, **odd))
    assert not result.succeeded
    assert (result.totals.datasets_published, result.totals.datasets_failed) == (2, 1)
    assert [(r.subject, r.kind, told in r.text) for r in result.totals.reasons] == [("b", "failed", True)]
    assert set(WORLD.watermarks(machine)) == {"a", "c"}
    check_recovery(machine, good)


def gone() -> None:
    raise SourceError("broker gone \udcff")


@pytest.mark.parametrize("where", ["announcing", "opening"])
def test_a_source_that_can_not_be_opened_fails_its_work_units_not_the_run(where: str) -> None:
    machine, good = Machine(), source(a=3, b=2)
    odd: dict[str, Any] = {where: gone}
    result = go(WORLD, machine, OddSource(good.datasets, **odd))
    assert (result.succeeded, result.totals.datasets_failed, result.totals.work_units_failed) == (False, 2, 2)
    assert {r.text for r in result.totals.reasons} == {"SourceError: broker gone \\udcff"}
    check_recovery(machine, good)


def test_an_extractor_that_can_not_be_closed_costs_nothing() -> None:
    machine, good = Machine(), source(a=3, b=2)
    assert go(WORLD, machine, OddSource(good.datasets, closing=gone)).succeeded
    assert WORLD.violation(machine, good, {}) == ""


def test_a_source_that_fails_twice_and_then_reads_is_read_by_the_third_attempt_of_the_task() -> None:
    machine, good = Machine(), source(a=3)
    calls: list[int] = []

    def flaky() -> None:
        calls.append(1)
        if len(calls) < 3:
            gone()

    settings, tasks = begin_ingest(WORLD, machine, OddSource(good.datasets, opening=flaky))
    reports = ingest_all(replace(settings, task_attempts=3), tasks)
    assert sum(report.work_units_failed for report in reports) == 0
    assert sorted(row.outcome for row in rows(settings)) == ["failed", "failed", "succeeded"]
    check_recovery(machine, good)


def test_datasets_that_can_not_be_planned_or_named_are_skipped_with_their_reason() -> None:
    def bad() -> Iterator[DatasetPlan | DatasetProblem]:
        for urn in ("bad\udcff", "", "x" * 2000):
            unit = WorkUnit("", urn, Watermark({"0": 0}), Watermark({"0": 5}), 5)
            yield DatasetPlan(urn, None, Watermark({"0": 0}), (unit,))
        yield DatasetProblem("odd\udcff", "no such topic \udcff")

    machine, good = Machine(), source(a=3)
    result = go(WORLD, machine, OddSource(good.datasets, planning=bad))
    assert (result.succeeded, result.totals.datasets_skipped, result.totals.datasets_published) == (False, 4, 1)
    assert [reason.kind for reason in result.totals.reasons] == ["not planned"] * 4
    assert result.totals.reasons[3].subject == "odd\\udcff"
    assert WORLD.violation(machine, good, {}) == ""


def test_a_source_that_can_not_plan_at_all_is_told_after_what_was_pending_has_been_replayed() -> None:
    def broken() -> Iterator[DatasetPlan | DatasetProblem]:
        raise SourceError("broker gone")

    machine = Machine()
    sealed_but_not_published(machine, source(a=3))
    with pytest.raises(SourceUnavailableError, match="no dataset could be planned") as caught:
        go(WORLD, machine, OddSource(source(a=5).datasets, planning=broken))
    assert "broker gone" in caught.value.found
    assert WORLD.watermarks(machine) == {"a": Watermark({"0": 3})}
    check_recovery(machine, source(a=5))


@pytest.mark.parametrize("part", ["/store/plans/", STAGING + "/0000000002", "/store/task_states/"])
def test_storage_that_can_not_take_the_plan_is_not_blamed_on_the_source(part: str) -> None:
    machine = Machine()
    WORLD.store(machine)
    machine.faults.append(fails(errno.ENOSPC, "mkdir", part))
    with pytest.raises(TransientError, match="the plan can't be stored") as caught:
        go(WORLD, machine, source(a=3))
    assert not isinstance(caught.value, SourceUnavailableError)


def test_a_partition_whose_planning_breaks_off_is_a_reason_and_the_others_go_on() -> None:
    calls: list[int] = []

    def broken_once() -> Iterator[DatasetPlan | DatasetProblem]:
        calls.append(1)
        if len(calls) == 1:
            raise SourceError("broker gone")
        return iter(())

    world, machine = World(buckets=2, partitions=2), Machine()
    result = go(world, machine, OddSource(SIX.datasets, planning=broken_once))
    assert not result.succeeded
    assert result.totals.datasets_published == 3
    assert [(reason.subject, reason.kind) for reason in result.totals.reasons] == [("partition 0", "not planned")]
    check_recovery(machine, SIX, world)


# -- tables and plans that can't be read or written


def in_two_buckets(machine: Machine) -> tuple[World, RunSettings, int]:
    world = World(buckets=2)
    settings, tasks = begin_ingest(world, machine, SIX)
    return world, settings, tasks


def datasets_of(settings: RunSettings, bucket: int) -> int:
    fs, root = settings.store.fs, settings.store.roots.store
    return len(read_bucket_plan(fs, root, read_manifest(fs, root, settings.run_id), bucket))


def test_a_corrupt_row_file_stops_no_task_and_no_other_bucket() -> None:
    machine = Machine()
    world, settings, tasks = in_two_buckets(machine)
    machine.put(f"/job/store/task_states/run={settings.run_id}/bucket=00000/x.parquet", b"garbage")
    ingest_all(settings, tasks)
    record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
    report = drain_partition(settings, 0)
    assert report.datasets_published >= datasets_of(settings, 1) > 0
    assert {reason.subject for reason in report.reasons} <= {"bucket 0"}
    check_recovery(machine, SIX, world)


def test_an_unreadable_plan_file_fails_its_bucket_and_no_other() -> None:
    machine = Machine()
    world, settings, tasks = in_two_buckets(machine)
    machine.faults.append(fails(errno.EIO, "read", f"/plans/run={settings.run_id}/bucket=00000/"))
    ingest_all(settings, tasks)
    record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
    report = drain_partition(settings, 0)
    assert report.datasets_published == datasets_of(settings, 1) > 0
    assert [(reason.subject, reason.kind) for reason in report.reasons] == [("bucket 0", "OSError")]
    machine.restart()
    check_recovery(machine, SIX, world)


def test_an_unreadable_plan_file_is_a_run_that_did_not_succeed() -> None:
    world, machine = World(buckets=2), Machine()
    machine.faults.append(fails(errno.EIO, "read", "/bucket=00000/"))
    result = go(world, machine, SIX)
    assert not result.succeeded
    assert result.totals.datasets_published < result.totals.datasets_planned or result.totals.reasons


def test_task_states_that_can_not_be_written_at_first_are_written_later() -> None:
    machine, data = Machine(), source(a=3, b=2, c=1)
    machine.faults.append(fails(errno.ENOSPC, "create", ".parquet-", first=2, times=1))  # the first is the plan
    machine.faults.append(fails(errno.ENOSPC, "fsync", "/task_states/", times=1))
    result = go(WORLD, machine, data)
    assert (result.succeeded, result.totals.records_read) == (True, 6)
    assert WORLD.violation(machine, data, {}) == ""


def test_task_states_that_can_never_be_written_fail_their_datasets() -> None:
    machine, data = Machine(), source(a=3, b=2)
    machine.faults.append(fails(errno.ENOSPC, "rename", "/bucket=00000/", first=4))
    result = go(WORLD, machine, data)
    assert not result.succeeded
    assert not published(machine)
    machine.restart()
    check_recovery(machine, data)


def test_staged_files_that_could_not_be_synced_are_never_published_and_read_again_into_new_ones() -> None:
    machine, data = Machine(), source(a=3)
    settings, tasks = begin_ingest(WORLD, machine, data)
    machine.faults.append(fails(errno.EIO, "syncfs", STAGING, times=1))
    reports = ingest_all(replace(settings, task_attempts=2), tasks)
    assert sum(report.work_units_failed for report in reports) == 0
    failed, read = sorted(rows(settings), key=lambda row: row.outcome)
    assert (failed.outcome, failed.outputs, read.outcome) == (TaskOutcome.FAILED, (), TaskOutcome.SUCCEEDED)
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
    assert "could not be synced" in result.totals.reasons[0].text
    assert not published(machine)
    machine.restart()
    check_recovery(machine, data)


@pytest.mark.parametrize("part", [OUTPUT, OUTPUT + "/a"])
def test_an_output_folder_that_could_not_be_synced_leaves_its_sequence_pending(part: str) -> None:
    machine, data = Machine(), source(a=3)
    WORLD.store(machine)

    def not_synced(operation: Operation) -> None:
        if operation.kind in ("fsync_folder", "syncfs") and operation.path == part and published(machine):
            raise OSError(errno.EIO, "EIO", operation.path)

    with_folders(machine, "a").faults.append(not_synced)
    result = go(WORLD, machine, data)
    assert (result.succeeded, result.totals.sequences_left, statuses(WORLD, machine)) == (False, 1, {"a": "pending"})
    machine.restart()
    check_recovery(machine, data)


# -- a program that is too old


@pytest.fixture
def older_program(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def make(how: str) -> None:
        if how == "older version":
            monkeypatch.setattr(FsRenameCommitStep, "version", 0)
        else:
            monkeypatch.delitem(registry._types, "fs-rename")

    return make


@pytest.mark.parametrize("how", ["older version", "unregistered"])
def test_steps_that_this_program_does_not_know_are_left_alone_for_one_that_does(
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


# -- counts and outcomes


@pytest.mark.parametrize("nth", range(1, 9))
def test_a_drain_that_tries_again_counts_every_dataset_once(nth: int) -> None:
    machine = Machine()
    data = ModelSource({**source(a=3, c=1).datasets, "b": ModelDataset({"0": 2}, fails=frozenset({"0"}))})
    settings, tasks = begin_ingest(WORLD, machine, data)
    ingest_all(settings, tasks)
    record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
    machine.faults.append(fails(errno.EIO, "scandir", BUCKET_LOG, first=nth, times=1))
    report = drain_partition(settings, 0)
    assert (report.datasets_published, report.datasets_failed, report.sequences_left) == (2, 1, 0)
    assert [reason.subject for reason in report.reasons] == ["b"]


@pytest.mark.parametrize(("kind", "part"), [("rename", OUTPUT + "/c/"), ("rmdir", STAGING + "/0000000002")])
def test_a_drain_that_tries_again_after_it_counted_counts_every_dataset_once(kind: str, part: str) -> None:
    machine = Machine()
    data = ModelSource({**source(a=3, c=1).datasets, "b": ModelDataset({"0": 2}, fails=frozenset({"0"}))})
    settings, tasks = begin_ingest(WORLD, machine, data)
    machine.faults.append(fails(errno.EIO, "scandir", BUCKET_LOG))  # all of it is left to the drain
    ingest_all(settings, tasks)
    machine.restart()
    record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
    machine.faults.append(fails(errno.EACCES, kind, part, times=2))
    report = drain_partition(settings, 0)
    assert (report.datasets_published, report.datasets_failed, report.sequences_left) == (2, 1, 0)
    assert (report.records_published, report.steps_executed) == (4, 2)
    assert [reason.subject for reason in report.reasons] == ["b"]


PARTLY = ModelSource({"a": ModelDataset({"0": 2, "1": 2}, fails=frozenset({"1"}))})


def test_a_dataset_of_which_a_part_failed_is_told_and_the_run_did_not_succeed() -> None:
    world, machine = World(policy=CommitPolicy.SUCCESSFUL), Machine()
    result = go(world, machine, PARTLY)
    assert (result.totals.datasets_published, result.totals.datasets_partial) == (1, 1)
    assert not result.succeeded
    assert [(reason.subject, reason.kind) for reason in result.totals.reasons] == [("a", "partly failed")]


def test_a_part_that_failed_is_told_also_by_a_drain_that_had_to_try_again() -> None:
    not_told = []
    for nth in range(1, 10):
        world, machine = World(policy=CommitPolicy.SUCCESSFUL), Machine()
        settings, tasks = begin_ingest(world, machine, PARTLY)
        ingest_all(settings, tasks)
        record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
        machine.faults.append(fails(errno.EIO, "scandir", BUCKET_LOG, first=nth, times=1))
        report = drain_partition(settings, 0)
        assert report.datasets_published == 1
        if report.datasets_partial != 1:
            not_told.append(nth)
    assert not_told == []


def test_with_policy_successful_the_part_that_failed_is_read_by_the_next_run() -> None:
    world, machine = World(policy=CommitPolicy.SUCCESSFUL), Machine()
    go(world, machine, PARTLY)
    assert world.watermarks(machine) == {"a": Watermark({"0": 2, "1": 0})}
    assert audit(world, machine).exact
    check_recovery(machine, source(a=[2, 2]), world)


def test_counts_tell_what_was_published_whoever_published_it() -> None:
    machine = Machine()
    result = go(WORLD, machine, SIX)
    totals = result.totals
    assert (totals.datasets_planned, totals.datasets_published, totals.records_published) == (6, 6, 11)
    assert (totals.files_published, totals.work_units, totals.records_written) == (7, 7, 11)
    again = go(WORLD, machine, SIX).totals
    assert (again.datasets_planned, again.records_published, again.records_read) == (0, 0, 0)


def test_a_run_that_can_not_write_the_job_log_says_so_and_not_that_another_run_began() -> None:
    machine = Machine()
    store = WORLD.store(machine)
    machine.faults.append(fails(errno.ENOSPC, "write", "/log/job/"))
    with pytest.raises(OutcomeUnknownError, match="No space left"):
        fence_job(store, "r1")
    assert not [path for path in machine.paths("/job/store/log") if ".tmp-" in path]
    machine.restart()
    check_recovery(machine, source(a=1))


def test_a_fence_that_races_with_an_older_run_s_checkpoint_is_taken_all_the_same() -> None:
    machine = Machine()
    store = WORLD.store(machine)
    first = fence_job(store, "r1")

    def race(operation: Operation) -> None:
        if operation.kind == "rename" and "/log/job/" in operation.path:
            machine.faults.clear()
            store.job_log(first).checkpoint(at_least=1)

    machine.faults.append(race)
    assert fence_job(store, "r2") > first + 1


def test_a_bucket_log_that_lost_its_segments_is_damaged_never_new() -> None:
    machine = Machine()
    assert go(WORLD, machine, source(a=3)).succeeded
    files = published(machine)
    for path in machine.paths("/job/store/log/bucket=00000"):
        machine.remove(path)
    result = go(WORLD, machine, source(a=5))
    assert (result.succeeded, result.totals.datasets_planned) == (False, 0)
    assert {reason.kind for reason in result.totals.reasons} == {"CorruptError"}
    assert published(machine) == files


def test_a_commit_that_fails_never_fails_the_ingest_task() -> None:
    machine, data = Machine(), source(a=3, b=1)
    settings, tasks = begin_ingest(WORLD, machine, data)
    machine.faults.append(fails(errno.EIO, "create", BUCKET_LOG))
    reports = [ingest_partition(settings, task) for task in range(tasks)]
    assert [(r.work_units_failed, r.fenced, r.reasons) for r in reports] == [(0, "", [])] * tasks
    machine.restart()
    assert drain_partition(settings, 0).datasets_published == 2
    check_recovery(machine, data)


def test_a_task_state_that_ends_before_it_begins_fails_its_dataset_and_no_other() -> None:
    machine, first, more = Machine(), source(a=1, b=3, c=1), source(a=2, b=5, c=2)
    go(WORLD, machine, first)
    settings, tasks = begin_ingest(WORLD, machine, more)
    fs, root = settings.store.fs, settings.store.roots.store
    plans = read_bucket_plan(fs, root, read_manifest(fs, root, settings.run_id), 0)
    (unit,) = (unit for plan in plans for unit in plan.work_units if unit.dataset_urn == "b")
    odd = TaskState(
        *(settings.run_id, settings.epoch, "b", unit.work_unit_id, "odd", TaskOutcome.SUCCEEDED),
        *(unit.low, unit.expected_high, Watermark({"0": 2})),
    )
    TaskStateWriter(fs, root, settings.run_id).append(0, [odd])
    ingest_all(settings, tasks)
    record_ingest_ended(fs, root, settings.run_id)
    report = drain_partition(settings, 0)
    assert (report.datasets_published, report.datasets_failed, report.sequences_left) == (2, 1, 0)
    (reason,) = report.reasons
    assert (reason.subject, reason.kind) == ("b", "failed")
    assert "attempt odd reports the range" in reason.text
    assert WORLD.watermarks(machine)["b"] == Watermark({"0": 3})
    check_recovery(machine, more)


@pytest.mark.parametrize(("table", "part"), [("plans", "/manifest.json"), ("task_states", "/INGEST_ENDED")])
def test_a_run_whose_folders_a_newer_run_has_swept_says_that_it_is_fenced(table: str, part: str) -> None:
    machine = Machine()
    swept: list[str] = []

    def newer_run(operation: Operation) -> None:
        if operation.kind == "create" and part in operation.path.replace(".tmp-", "") and not swept:
            folder = os.path.dirname(operation.path)
            swept.append(folder)
            assert go(WORLD, machine, source(a=3)).succeeded
            store = WORLD.store(machine)
            forget_runs(store.fs, store.roots.store, range(store.buckets), 1)

    machine.faults.append(newer_run)
    with pytest.raises(FencedError, match="a newer run"):
        go(WORLD, machine, source(a=2))
    assert swept
    assert table in swept[0]
    machine.restart()
    assert go(WORLD, machine, source(a=3)).succeeded
    assert audit(WORLD, machine).exact
