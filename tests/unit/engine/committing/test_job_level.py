"""Job-level commits: decided sequences are published and undecided ones dropped, whichever process dies or is
overtaken.
"""

from __future__ import annotations

import errno
import random
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from distcommit.app.inspection.job_status import NextRun, read_status
from distcommit.core.errors import FencedError
from distcommit.core.interfaces.file_system import FolderEntry
from distcommit.core.records.job_log_records import Decide
from distcommit.core.records.run_counts import RunCounts
from distcommit.core.support.io_batching import run_alone
from distcommit.engine.committing.bucket_committer import BucketCommitter
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.committing.recover import recover_partition
from distcommit.engine.driver.run import RunResult, run
from distcommit.engine.driver.task_reports import Tally
from distcommit.engine.planning.plan_partition import plan_partition
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.protocol.paths.temporary_and_probes import OUTPUT_PROBE, TEMPORARY
from distcommit.stores.logs.fencing import fence_bucket, fence_job
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.job_store import JobStore
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem, World
from tests.unit.engine.committing.situations import SIX, WORLD, check_recovery, sealed_but_not_published
from tests.unit.engine.driver.machines import (
    BUCKET_LOG,
    NOTHING,
    OUTPUT,
    STAGING,
    Machine,
    Meeting,
    begin_ingest,
    dies,
    fails,
    go,
    ingest_all,
    launch,
    published,
    source,
    statuses,
    with_folders,
    written,
)

JOB = World(buckets=2, job_level=True)
JOB_DATASETS = World(buckets=2)
"""The job with the scope of single datasets."""
ONE_BUCKET = World(buckets=1, job_level=True)


def decided_and_half_published(machine: Machine, data: ModelSource = SIX) -> None:
    """Return a machine whose job-level run decided to publish and died after some of its files."""
    JOB.store(machine)
    with_folders(machine, *data.datasets).faults.append(dies("rename", OUTPUT + "/", nth=4))
    with pytest.raises(Crashed):
        go(JOB, machine, data)
    machine.restart()
    assert len(published(machine)) == 3


def test_decided_sequence_is_never_dropped_when_its_bucket_could_not_be_read() -> None:
    machine = Machine()
    for _ in range(30):
        fence_job(JOB.store(machine), f"earlier-{_}")  # so that the next run checkpoints the job log
    decided_and_half_published(machine)
    for bucket in range(2):
        machine.faults.append(fails(errno.EIO, "scandir", f"{BUCKET_LOG}{bucket:05d}"))
    result = go(JOB, machine, NOTHING)
    assert [reason.subject for reason in result.reasons.entries][:2] == ["bucket 0", "bucket 1"]
    assert JOB.store(machine).job_log().refresh().last_checkpoint > 1
    machine.restart()
    result = go(JOB, machine, SIX)
    assert (result.succeeded, result.totals.sequences_dropped) == (True, 0)
    assert JOB.violation(machine, SIX, {}) == ""


def test_decision_survives_a_recovery_whose_clean_up_fails() -> None:
    machine = Machine()
    for _ in range(30):
        fence_job(JOB.store(machine), f"earlier-{_}")
    decided_and_half_published(machine)
    for bucket in range(2):
        machine.put(f"{STAGING}/0000000003/bucket={bucket:05d}/x.1/left", b"")
    machine.faults.append(fails(errno.EPERM, "unlink", "/x.1/left"))
    machine.faults.append(fails(errno.EIO, "rename", OUTPUT + "/"))
    result = go(JOB, machine, NOTHING)
    assert {"bucket 0", "bucket 1"} <= {reason.subject for reason in result.reasons.entries}
    machine.restart()
    result = go(JOB, machine, SIX)
    assert (result.succeeded, result.totals.sequences_dropped) == (True, 0)
    assert JOB.violation(machine, SIX, {}) == ""


def dies_at_its_decision(machine: Machine) -> Callable[[Operation], None]:
    """Build a fault that kills the run at its decision, with all its sequences held."""

    def die(operation: Operation) -> None:
        if isinstance(written(machine, operation), Decide):
            raise Crashed

    return die


class StaleView(Machine):
    """An executor's mount with a stale listing of the job log, which ends at its second segment."""

    def __init__(self, real: Machine) -> None:
        super().__init__()
        self.__dict__.update({name: value for name, value in real.__dict__.items() if name != "gate"})

    def scandir(self, path: str) -> list[FolderEntry]:
        entries = super().scandir(path)
        return [entry for entry in entries if entry.name <= f"{2:012d}.seg"] if path.endswith("/log/job") else entries


def test_nothing_is_dropped_when_the_job_log_view_lacks_the_run_s_own_fence() -> None:
    machine = Machine()
    decided_and_half_published(machine)
    settings = JOB.begin(machine, SIX)
    stale = JobStore(SimulatedFileSystem(StaleView(machine)), ROOTS, "job", 2)
    report = recover_partition(replace(settings, store=stale), 0).report
    assert report.counts.sequences_dropped == 0
    assert [(reason.kind, "older job log" in reason.text) for reason in report.reasons] == [
        ("EXECUTOR_READS_OLD_STORE", True)
    ]
    check_recovery(machine, SIX, JOB)


@pytest.mark.thorough
def test_recovery_overtaken_while_it_drops_is_fenced_and_drops_nothing() -> None:
    """The held sequences were never decided. A newer run interrupts the recovery that drops them at each of
    its calls.
    """
    fenced = 0
    for number in range(1000):
        machine = Machine()
        machine.faults.append(dies_at_its_decision(machine))
        with pytest.raises(Crashed):
            go(JOB, machine, SIX)
        machine.restart()
        settings = JOB.begin(machine, SIX)
        newer = Meeting(machine, number, partial(go, JOB, machine, SIX))
        machine.faults.append(newer)
        reports = [recover_partition(settings, bucket).report for bucket in range(2)]
        if newer.result is None:
            break
        dropped = [report.counts.sequences_dropped for report in reports]
        assert newer.result.succeeded, number
        assert sum(dropped) + newer.result.totals.sequences_dropped <= 6, (number, dropped)  # by one of them
        fenced += any(report.fenced for report in reports)
        check_recovery(machine, SIX, JOB)
    assert (number > 10, fenced > 10) == (True, True)


def test_job_level_run_publishes_nothing_if_one_dataset_fails_and_everything_once_none_does() -> None:
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
def test_job_level_crash_around_the_decision_publishes_nothing_or_everything(before: bool) -> None:
    machine = Machine()
    operations: list[Operation] = []

    def die(operation: Operation) -> None:
        decision = isinstance(written(machine, operation), Decide)
        if operations or (decision and before):
            raise Crashed
        if decision:
            operations.append(operation)

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


def test_job_level_run_with_nothing_new_succeeds() -> None:
    machine = Machine()
    assert go(JOB, machine, NOTHING).succeeded
    assert go(JOB, machine, SIX).succeeded
    result = go(JOB, machine, SIX)
    assert (result.succeeded, result.reasons.entries) == (True, ())


def test_late_twin_of_recovery_leaves_the_sequences_of_its_own_run_alone() -> None:
    machine = Machine()
    settings, tasks = begin_ingest(JOB, machine, SIX)
    ingest_all(settings, tasks)
    for bucket in range(2):
        committer = BucketCommitter(settings, bucket, Tally())
        run_alone(committer.replay(frozenset()))
        assert committer.tally.counts == RunCounts()
    assert not recover_partition(settings, 0).report.reasons
    assert set(statuses(JOB, machine).values()) == {"pending"}


def test_decision_whose_answer_was_lost_is_durable_before_anything_is_published() -> None:
    machine = Machine()
    ONE_BUCKET.store(machine)
    observed = {"decided": 0, "failed": 0, "published": 0}
    forgotten: list[str] = []

    def watch(operation: Operation) -> None:
        if isinstance(written(machine, operation), Decide):
            observed["decided"] += 1
        elif observed["decided"] and not observed["failed"] and operation.kind == "fsync_folder":
            observed["failed"] += 1
            raise OSError(errno.EIO, "the answer is lost", operation.path)
        elif operation.kind == "rename" and re.match(rf"{OUTPUT}/[ab]", operation.path):
            observed["published"] += 1
            for after in machine.after_power_loss(random.Random(1), 4, 8):
                log = ONE_BUCKET.store(after).job_log()
                if not log.refresh().decided_epochs:
                    forgotten.append(operation.path)

    machine.faults.append(watch)
    assert go(ONE_BUCKET, machine, source(a=2, b=1)).succeeded
    assert (observed["decided"], observed["failed"], observed["published"]) == (1, 1, 2)
    assert forgotten == []


# -- nothing is published unless everything can be


def told(result: RunResult) -> dict[str, str]:
    return {reason.subject: f"{reason.kind}: {reason.text}" for reason in result.reasons.entries}


def check_held_back(machine: Machine, result: RunResult, held: int) -> None:
    """Check that the run published nothing, that its result counts the held datasets, and that the next run publishes
    all of them.
    """
    assert (result.succeeded, result.decided, result.totals.datasets_held) == (False, False, held)
    assert (result.totals.datasets_published, published(machine)) == (0, set())
    machine.restart()
    check_recovery(machine, SIX, JOB)


def test_dataset_that_cannot_be_planned_holds_back_all_others_and_is_named() -> None:
    machine = Machine()
    odd = ModelSource({**SIX.datasets, "odd": ModelDataset({"0": 1}, problem="no such topic")})
    result = go(JOB, machine, odd)
    assert told(result) == {"odd": "not planned: no such topic"}
    assert result.totals.records_read == 0, "datasets that can't be published are not read"
    check_held_back(machine, result, 6)


def test_run_without_plannable_datasets_decides_nothing() -> None:
    result = go(JOB, Machine(), ModelSource({"odd": ModelDataset({"0": 1}, problem="no such topic")}))
    assert (result.succeeded, result.decided, result.totals.datasets_held) == (False, False, 0)


@pytest.mark.parametrize("how", ["quarantined", "pending"])
def test_dataset_that_is_not_idle_holds_back_all_others(how: str) -> None:
    machine = Machine()
    with_folders(machine, "a")
    sealed_but_not_published(machine, source(a=1), JOB_DATASETS)
    blocked = fails(errno.EACCES, "rename", OUTPUT + "/a/")
    for _ in range(3 if how == "quarantined" else 1):
        machine.faults.append(blocked)
        result = go(JOB, machine, SIX)
        machine.restart()
    assert statuses(JOB, machine)["a"] == how
    assert f"skipped, {how}: " in f"{told(result)}"
    if how == "quarantined":
        result = go(JOB, machine, SIX)
        operator_actions.retry(JOB.store(machine), "a", "person")
    check_held_back(machine, result, 5)


@pytest.mark.parametrize("kind", ["scandir", "read"])
def test_bucket_that_cannot_be_read_holds_back_all_others(kind: str) -> None:
    machine = Machine()
    JOB.store(machine)
    machine.faults.append(fails(errno.EIO, kind, f"{BUCKET_LOG}00000"))
    result = go(JOB, machine, SIX)
    assert "bucket 0" in told(result)
    check_held_back(machine, result, result.totals.datasets_planned)
    assert result.totals.datasets_planned > 0


@pytest.mark.parametrize("drop_report", [plan_partition, drain_partition])
def test_partition_whose_report_is_missing_holds_back_all_datasets(drop_report: Callable[..., Any]) -> None:
    world, machine = World(buckets=2, partitions=2, job_level=True), Machine()

    def without(function: Any, settings: Any, tasks: int, kind: Any) -> list[Any]:
        results = launch(function, settings, tasks, kind)
        return results[:1] if function is drop_report else results

    result = run(without, world.begin(machine, SIX))
    assert (result.succeeded, result.decided, published(machine)) == (False, False, set())
    assert told(result)["partition 1"].startswith("no report: ")


def test_failed_dataset_and_the_datasets_it_holds_back_are_counted_and_named() -> None:
    machine = Machine()
    failing = ModelSource({**SIX.datasets, "c": ModelDataset({"0": 1}, fails=frozenset({"0"}))})
    result = go(JOB, machine, failing)
    assert (result.totals.datasets_failed, list(told(result))) == (1, ["c"])
    assert "a partition cannot be read" in told(result)["c"]
    check_held_back(machine, result, 5)


def test_bucket_that_could_not_be_drained_is_reported() -> None:
    machine = Machine()
    machine.faults.append(fails(errno.EIO, "read", "/bucket=00000/"))
    result = go(JOB, machine, SIX)
    assert "bucket 0" in told(result)
    assert not result.decided
    assert published(machine) == set()


def next_runs(machine: Machine) -> set[NextRun]:
    return {row.next_run for row in read_status(JOB.store(machine)).datasets if row.status == "pending"}


def test_status_predicts_what_the_next_run_does_with_held_sequences() -> None:
    machine = Machine()
    failing = ModelSource({**SIX.datasets, "c": ModelDataset({"0": 1}, fails=frozenset({"0"}))})
    go(JOB, machine, failing)
    assert next_runs(machine) == {NextRun.DROPS}
    result = go(JOB, machine, NOTHING)
    assert (result.totals.sequences_dropped, result.totals.sequences_replayed, next_runs(machine)) == (5, 0, set())


@pytest.mark.parametrize("decided", [True, False])
def test_status_reports_held_sequences_of_dead_runs_too(decided: bool) -> None:
    machine = Machine()
    if decided:
        decided_and_half_published(machine)
    else:
        JOB.store(machine)
        machine.faults.append(dies("rename", "/log/job/", record=Decide, machine=machine))
        with pytest.raises(Crashed):
            go(JOB, machine, SIX)
        machine.restart()
    assert next_runs(machine) == {NextRun.REPLAYS if decided else NextRun.UNDECIDED}
    fence_job(JOB.store(machine), "a run that dies at once")
    assert next_runs(machine) == {NextRun.REPLAYS if decided else NextRun.DROPS}
    machine.faults.append(fails(errno.EIO, "scandir", "/log/job"))
    assert next_runs(machine) == {NextRun.UNKNOWN}
    machine.restart()
    totals = go(JOB, machine, NOTHING).totals
    assert (totals.sequences_replayed > 0, totals.sequences_dropped > 0) == (decided, not decided)


def test_run_overtaken_before_its_decision_reports_that_it_is_fenced() -> None:
    machine = Machine()
    settings = JOB.begin(machine, SIX)

    def overtaken(function: Any, settings: Any, tasks: int, kind: Any) -> list[Any]:
        results = launch(function, settings, tasks, kind)
        if function is drain_partition:
            fence_job(JOB.store(machine), "a newer run")
        return results

    with pytest.raises(FencedError):
        run(overtaken, settings)
    assert not published(machine)


# -- recoveries and tasks that are overtaken


def held(machine: Machine) -> None:
    """Return a machine whose job-level run sealed everything and died before its decision."""
    ONE_BUCKET.store(machine)
    machine.faults.append(dies("rename", "/log/job/", record=Decide, machine=machine))
    with suppress(Crashed):
        go(ONE_BUCKET, machine, source(a=2, b=1))
    machine.restart()
    assert set(statuses(ONE_BUCKET, machine).values()) == {"pending"}


def pending(machine: Machine) -> None:
    """Return a machine whose run decided to publish and died first. Dataset `a` can't be published now."""
    ONE_BUCKET.store(machine)
    with_folders(machine, "a", "b").faults.append(dies("rename", OUTPUT + "/"))
    with suppress(Crashed):
        go(ONE_BUCKET, machine, source(a=2, b=1))
    machine.restart()
    machine.faults.append(fails(errno.EIO, "rename", OUTPUT + "/a/"))


@pytest.mark.thorough
@pytest.mark.parametrize("begin", [held, pending])
def test_recovery_overtaken_at_any_call_reports_that_it_is_fenced(begin: Callable[[Machine], None]) -> None:
    fenced = 0
    for number in range(200):
        machine = Machine()
        begin(machine)
        settings = ONE_BUCKET.begin(machine, source(a=2, b=1))
        meeting = Meeting(machine, number, lambda machine=machine: fenced_by_a_newer_run(machine))  # type: ignore[misc]
        machine.faults.append(meeting)
        report = recover_partition(settings, 0).report
        assert [reason.kind for reason in report.reasons if reason.kind == "AssertionError"] == [], number
        fenced += bool(report.fenced)
        if meeting.result is None:
            break
    assert fenced > 0


def probes(machine: SimulatedPosix) -> list[str]:
    """Return the probe files with which committers tested the output."""
    return [path for _, path, _ in machine.files() if OUTPUT_PROBE in path]


def test_output_probe_leaves_no_files_behind() -> None:
    machine = Machine()
    pending(machine)
    report = recover_partition(ONE_BUCKET.begin(machine, source(a=2, b=1)), 0).report
    assert report.counts.sequences_postponed + report.counts.sequences_dropped > 0
    assert probes(machine) == []
    assert probes(next(machine.after_power_loss(random.Random(1), 0, 0))) == []


def test_next_run_durably_deletes_the_probe_files_of_a_dead_committer() -> None:
    machine, data = Machine(), source(a=2, b=1)
    sealed_but_not_published(machine, data)
    for name in (".probe-0", f"{TEMPORARY}.probe-0-{'0' * 32}"):
        machine.put(f"{OUTPUT}/{name}", b"")
    machine.syncfs("/")
    check_recovery(machine, data)
    assert probes(next(machine.after_power_loss(random.Random(1), 0, 0))) == []


def test_ingest_task_overtaken_by_a_run_that_dies_reports_that_it_is_fenced() -> None:
    fenced = 0
    for number in range(200):
        machine = Machine()
        settings, _ = begin_ingest(WORLD, machine, source(a=2, b=1))
        meeting = Meeting(machine, number, lambda machine=machine: fenced_by_a_newer_run(machine))  # type: ignore[misc]
        machine.faults.append(meeting)
        fenced += bool(ingest_partition(settings, 0).fenced)
        if meeting.result is None:
            break
    assert fenced > 5
    machine.restart()
    check_recovery(machine, source(a=2, b=1))


def fenced_by_a_newer_run(machine: Machine) -> bool:
    """Let a newer run fence everything and die."""
    newer = ONE_BUCKET.begin(machine, source())
    run_alone(fence_bucket(newer.store.bucket_log(0, newer.epoch), newer.epoch, newer.run_id))
    return True
