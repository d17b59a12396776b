"""Invariants I2 and I4: one of several twins wins, and a fenced run does nothing more, at each interleaving."""

from __future__ import annotations

import errno
import os
from functools import partial

import pytest

from distcommit.core.errors import FencedError, SourceUnavailableError
from distcommit.core.records.sealed_sequences import SealedSequence, SequenceName
from distcommit.core.support.io_batching import BatchedWork, run_alone
from distcommit.core.watermark import Watermark, as_offset
from distcommit.core.work_units import WorkUnit
from distcommit.engine.committing.bucket_committer import BucketCommitter
from distcommit.engine.committing.drain import drain_partition, publish_partition
from distcommit.engine.committing.record_commit_failures import record_failed_attempt, record_pending_reasons
from distcommit.engine.committing.recover import delete_superseded_files, recover_partition
from distcommit.engine.driver.run import decide_run, new_run_id, run
from distcommit.engine.planning.plan_partition import plan_partition
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.protocol.log_state import Fold
from distcommit.steps.failure_classification import Failure
from distcommit.stores.history.retention import Retention, expire_history
from distcommit.stores.logs.fencing import fence_bucket, fence_job
from distcommit.stores.state.task_states import record_ingest_ended
from distcommit.testing.fakes.faulty_calls import Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import World
from tests.unit.engine.committing.situations import WORLD, check_recovery, sealed_but_not_published, twins
from tests.unit.engine.driver.machines import (
    STAGING,
    Machine,
    Meeting,
    OddSource,
    audit,
    begin_ingest,
    fails,
    go,
    ingest_all,
    launch,
    published,
    reading,
    source,
)

# -- I2: one winner


@pytest.mark.thorough
def test_concurrent_twins_of_one_task_publish_each_record_once() -> None:
    data = source(a=[2, 1])
    ends = [(number, WORLD.violation(machine, data, {})) for number, machine in twins(WORLD, data, data)]
    assert len(ends) > 30
    assert [end for end in ends if end[1]] == []


@pytest.mark.thorough
def test_attempts_with_different_ranges_yield_one_winner_with_its_own_outputs_and_watermark() -> None:
    data, shorter = source(a=5), ModelSource({"a": ModelDataset({"0": 5}, short=2)})
    highs = set()
    for number, machine in twins(WORLD, data, shorter):
        audit_result = audit(WORLD, machine)
        high = WORLD.watermarks(machine)["a"].positions["0"]
        assert (audit_result.exact, audit_result.records, audit_result.files) == (True, high, 1), (number, audit_result)
        highs.add(high)
        check_recovery(machine, data)
    assert highs == {3, 5}


@pytest.mark.parametrize("first_is_shorter", [True, False])
def test_one_of_two_attempts_present_at_the_seal_wins_as_a_whole(first_is_shorter: bool) -> None:
    machine, data = Machine(), source(a=[5, 3])
    shorter = ModelSource({"a": ModelDataset({"0": 5, "1": 3}, short=2)})
    settings, tasks = begin_ingest(WORLD, machine, data)
    machine.faults.append(fails(errno.EIO, "scandir", "/task_states/"))  # no seal, so no twin sees the other
    for twin_source in (shorter, data) if first_is_shorter else (data, shorter):
        ingest_all(reading(settings, twin_source), tasks)
    machine.restart()
    assert len(machine.paths(STAGING)) == 4
    record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
    assert drain_partition(settings, 0).counts.datasets_published == 1
    result = audit(WORLD, machine)
    assert (result.exact, result.files) == (True, 2)
    assert result.records == sum(as_offset(p) for p in WORLD.watermarks(machine)["a"].positions.values())
    check_recovery(machine, data)


def test_records_beyond_a_gap_wait_for_the_next_run() -> None:
    machine = Machine()
    short = ModelSource({"a": ModelDataset({"0": 9}, units=3, short=1)})
    go(WORLD, machine, short)
    assert WORLD.watermarks(machine) == {"a": Watermark({"0": 2})}
    assert audit(WORLD, machine).exact
    check_recovery(machine, source(a=9))


# -- I4: fenced zombies


def test_old_run_that_continues_after_a_newer_one_seals_publishes_and_plans_nothing() -> None:
    machine, data = Machine(), source(a=3, b=2)
    old, tasks = begin_ingest(WORLD, machine, source(a=2, b=1))
    assert go(WORLD, machine, data).succeeded
    logs, files = machine.paths("/job/store/log"), published(machine)
    reports = [
        *ingest_all(old, tasks),
        drain_partition(old, 0),
        publish_partition(old, 0),
        plan_partition(old, 0).report,
        recover_partition(old, 0).report,
    ]
    assert all("a newer run has fenced this one" in report.fenced for report in reports)
    assert not decide_run(old.store, old.epoch)
    assert machine.paths("/job/store/log") == logs
    assert published(machine) == files
    check_recovery(machine, data)


@pytest.mark.thorough
def test_newer_run_at_any_call_of_an_older_ingest_leaves_each_record_published_once() -> None:
    for number in range(1000):
        machine = Machine()
        old, tasks = begin_ingest(WORLD, machine, source(a=2, b=1))
        newer = Meeting(machine, number, partial(go, WORLD, machine, source(a=3, b=2)))
        machine.faults.append(newer)
        reports = ingest_all(old, tasks)
        if newer.result is None:
            break
        assert newer.result.succeeded, number
        if number < 40:
            assert any(report.fenced for report in reports), number
        drain_partition(old, 0)
        check_recovery(machine, source(a=3, b=2))
    assert number > 45


@pytest.mark.thorough
@pytest.mark.parametrize("job_level", [False, True])
def test_newer_run_at_any_call_of_an_older_run_fences_it_or_finds_it_done(job_level: bool) -> None:
    world, fenced = World(job_level=job_level), 0
    for number in range(1000):
        machine = Machine()
        old = world.begin(machine, source(a=2, b=1))
        newer = Meeting(machine, number, partial(go, world, machine, source(a=3, b=2)))
        machine.faults.append(newer)
        try:
            done = run(launch, old).succeeded
        except (FencedError, SourceUnavailableError):  # the latter where the newer run swept the files of the plan
            fenced, done = fenced + 1, False
        if newer.result is None:
            break
        assert newer.result.succeeded, number
        if done:  # the newer one came after the last of its seals and decisions
            assert audit(world, machine).exact, number
        check_recovery(machine, source(a=3, b=2), world)
    assert fenced > 60


def test_fenced_run_raises_the_fencing_error() -> None:
    machine, data = Machine(), source(a=3)
    old = WORLD.begin(machine, data)
    go(WORLD, machine, data)
    with pytest.raises(FencedError, match="a newer run has fenced"):
        run(launch, old)


# -- zombies whose task output was swept


def test_zombie_whose_task_output_was_swept_cannot_write() -> None:
    machine, data = Machine(), source(a=3)
    settings, tasks = begin_ingest(WORLD, machine, data)
    check_recovery(machine, data)
    ingest_all(settings, tasks)
    assert machine.paths(STAGING) == {}
    assert audit(WORLD, machine).exact


def test_zombie_in_the_middle_of_an_attempt_cannot_write_after_the_sweep() -> None:
    machine, data = Machine(), source(a=3)
    settings, _ = begin_ingest(WORLD, machine, data)

    def swept(unit: WorkUnit) -> None:
        check_recovery(machine, data)

    ingest_partition(reading(settings, OddSource(data.datasets, extracting=swept)), 0)
    assert machine.paths(STAGING) == {}


@pytest.mark.parametrize(("table", "part"), [("plans", "/_manifest.json"), ("task_states", "/_INGEST_ENDED")])
def test_run_whose_folders_were_swept_by_a_newer_run_reports_that_it_is_fenced(table: str, part: str) -> None:
    machine = Machine()
    swept: list[str] = []

    def newer_run(operation: Operation) -> None:
        if operation.kind == "create" and part in operation.path.replace(".tmp-", "") and not swept:
            folder = os.path.dirname(operation.path)
            swept.append(folder)
            assert go(WORLD, machine, source(a=3)).succeeded
            store = WORLD.store(machine)
            expire_history(store.fs, store.roots.store, new_run_id(), 0, 1, Retention(tables=1))

    machine.faults.append(newer_run)
    with pytest.raises(FencedError, match="a newer run"):
        go(WORLD, machine, source(a=2))
    assert swept
    assert table in swept[0]
    machine.restart()
    assert go(WORLD, machine, source(a=3)).succeeded
    assert audit(WORLD, machine).exact


def test_committer_fenced_right_before_its_seal_writes_nothing_to_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine()
    settings, tasks = begin_ingest(WORLD, machine, source(a=2))
    machine.faults.append(fails(errno.EIO, "scandir", "/task_states/"))  # no task seals
    ingest_all(settings, tasks)
    machine.restart()
    record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
    log, seal = settings.store.bucket_log(0, settings.epoch + 1), BucketCommitter._seal
    log.refresh()
    ended_by: list[Exception] = []

    def overtaken(committer: BucketCommitter, sequences: list[SealedSequence]) -> BatchedWork[Fold]:
        assert sequences
        run_alone(fence_bucket(log, settings.epoch + 1, "newer"))
        try:
            return (yield from seal(committer, sequences))
        except Exception as error:
            ended_by.append(error)
            raise

    monkeypatch.setattr(BucketCommitter, "_seal", overtaken)
    fenced_at = log.refresh().number + 1
    assert drain_partition(settings, 0).fenced
    assert [type(error) for error in ended_by] == [FencedError]
    assert log.refresh().fence_epoch == settings.epoch + 1
    assert log.refresh().number == fenced_at


def test_committer_fenced_right_before_it_closes_counts_nothing_as_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine, data = Machine(), source(a=2)
    settings, tasks = begin_ingest(WORLD, machine, data)
    log, close = settings.store.bucket_log(0, settings.epoch + 1), BucketCommitter._close
    ended_by: list[Exception] = []

    def overtaken(committer: BucketCommitter, names: list[SequenceName]) -> BatchedWork[Fold]:
        assert names
        run_alone(fence_bucket(log, settings.epoch + 1, "newer"))
        try:
            return (yield from close(committer, names))
        except Exception as error:
            ended_by.append(error)
            raise

    monkeypatch.setattr(BucketCommitter, "_close", overtaken)
    ingested = ingest_all(settings, tasks)
    assert [type(error) for error in ended_by] == [FencedError]
    assert sum(report.counts.datasets_committed for report in ingested) == 0
    monkeypatch.undo()
    check_recovery(machine, data)


def test_zombie_failure_is_not_counted_and_reports_that_a_newer_run_has_begun() -> None:
    machine, data = Machine(), source(a=3)
    sealed_but_not_published(machine, data)
    store = WORLD.store(machine)
    sequence = store.bucket_log(0).refresh().state_of("a").sequence
    assert sequence is not None
    older = fence_job(store, "older")
    run_alone(fence_bucket(store.bucket_log(0, older), older, "older"))
    newer = fence_job(store, "newer")
    run_alone(fence_bucket(store.bucket_log(0, newer), newer, "newer"))
    name, failure = SequenceName("a", sequence.epoch), Failure("lost", "gone", lost=True)
    with pytest.raises(FencedError):
        run_alone(record_failed_attempt(store.bucket_log(0, older), older, name, failure, 1))
    with pytest.raises(FencedError):
        run_alone(record_pending_reasons(store.bucket_log(0, older), older, {name: failure}))
    check_recovery(machine, data)


def test_fenced_run_deletes_no_superseded_files_and_reports_the_fence() -> None:
    machine, data = Machine(), source(a=1)
    settings = WORLD.begin(machine, data)
    go(WORLD, machine, data)
    assert "newer" in delete_superseded_files(settings, 0).report.fenced
