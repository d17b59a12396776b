"""Invariants I1, I3, I6 and I7: sequences are sealed as a whole, replayed before anything is read, and cleaned up only
after DONE.
"""

from __future__ import annotations

import errno
import random
from dataclasses import replace
from functools import partial

import pytest

from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.records.log_records import Done, Intent
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.committing.recover import recover_partition
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.steps.step_execution import execute_sequences
from distcommit.steps.step_registry import load_steps
from distcommit.stores.state.task_states import record_ingest_ended
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from tests.unit.engine.committing.situations import WORLD, check_recovery, killed_at
from tests.unit.engine.driver.machines import (
    BUCKET_LOG,
    NOTHING,
    OUTPUT,
    STAGING,
    EagerSource,
    Machine,
    Meeting,
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

# -- I1: write-ahead, all or nothing


@pytest.mark.parametrize("kind", ["create", "write", "fsync", "rename"])
def test_crash_before_the_intent_is_written_leaves_nothing_to_replay(kind: str) -> None:
    machine, data = Machine(), source(a=[2, 1], b=3)
    world = replace(WORLD, buckets=1)
    killed_at(machine, kind, f"{BUCKET_LOG}00000/", data, nth=3)
    assert states(world, machine) == {}
    assert not published(machine)
    result = go(world, machine, data)
    assert (result.succeeded, result.totals.sequences_replayed) == (True, 0)
    assert world.violation(machine, data, {}) == ""


def test_crash_after_the_intent_is_written_leaves_all_of_it_to_replay() -> None:
    machine, data = Machine(), source(a=[2, 1], b=3)
    killed_at(machine, "rename", OUTPUT + "/a/", data, nth=2)
    assert len([path for path in published(machine) if "/a/" in path]) == 1
    state = states(WORLD, machine)["a"]
    assert state.sequence is not None
    assert (state.status.value, state.sequence.files, state.watermark) == ("pending", 2, None)
    result = go(WORLD, machine, data)
    assert (result.succeeded, result.totals.sequences_replayed) == (True, 1)
    assert WORLD.violation(machine, data, {}) == ""


def test_power_loss_at_the_first_effect_never_loses_its_intent() -> None:
    machine, data = Machine(), source(a=[2, 1], b=3)
    survivors = Survivors(machine)
    machine.faults.append(survivors)
    assert go(WORLD, machine, data).succeeded
    assert survivors.number
    assert survivors.without_intent == []


def test_intent_of_a_committer_that_died_before_its_sync_is_synced_before_a_twin_executes_it() -> None:
    machine, data = Machine(), source(a=3)
    settings, tasks = begin_ingest(WORLD, machine, data)
    armed: list[Operation] = []

    def die_after_the_intent(operation: Operation) -> None:
        if isinstance(written(machine, operation), Intent):
            armed.append(operation)
        elif armed:
            raise Crashed

    machine.faults.append(die_after_the_intent)
    with pytest.raises(Crashed):
        ingest_all(settings, tasks)
    machine.restart()
    record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
    survivors = Survivors(machine)
    machine.faults.append(survivors)
    assert drain_partition(settings, 0).counts.datasets_published == 1
    assert survivors.number
    assert survivors.without_intent == []


class Survivors:
    """A check at each publishing rename that the dataset's sequence survives every possible power loss."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.number = machine, 0
        self.without_intent: list[str] = []

    def __call__(self, operation: Operation) -> None:
        if operation.kind != "rename" or f"{OUTPUT}/" not in operation.path or ".parquet" not in operation.path:
            return
        urn = operation.path.split("/")[3]
        for after in self.machine.after_power_loss(random.Random(1), 3, 8):
            self.number += 1
            state = states(WORLD, after).get(urn)
            if state is None or state.sequence is None:
                self.without_intent.append(operation.path)


# -- I3: idempotent replay


@pytest.mark.thorough
def test_two_processes_that_replay_the_same_sequences_publish_once_at_each_interleaving() -> None:
    data = source(a=[2, 1], b=1)
    for number in range(1000):
        machine = Machine()
        killed_at(machine, "rename", OUTPUT + "/a/", data, nth=2)
        settings = WORLD.begin(machine, data)
        twin = Meeting(machine, number, partial(recover_partition, settings, 0))
        machine.faults.append(twin)
        report = recover_partition(settings, 0).report
        assert ([*report.reasons], report.fenced, report.counts.sequences_postponed) == ([], "", 0), number
        if twin.result is None:
            break
        assert not twin.result.report.reasons
        assert statuses(WORLD, machine) == {"a": "idle"}
        check_recovery(machine, data)
    assert number > 15


@pytest.mark.parametrize("verify_first", [True, False])
def test_sequence_executed_again_after_later_ones_changes_nothing(verify_first: bool) -> None:
    machine = Machine()
    killed_at(machine, "rename", OUTPUT + "/a/", source(a=[3, 2]))
    old = states(WORLD, machine)["a"].sequence
    assert old is not None
    for more in ([4, 4], [6, 5]):
        assert go(WORLD, machine, source(a=more)).succeeded
    before = machine.paths("/job")
    store = WORLD.store(machine)
    context = StepContext(store.fs, store.roots.staging, store.roots.output)
    outcomes = execute_sequences({"old": list(load_steps(old.steps, context))}, verify_first=verify_first)
    assert (outcomes.failed, outcomes.lost) == ({}, {})
    assert machine.paths("/job") == before


def test_file_published_by_a_dead_run_is_synced_before_its_sequence_is_closed() -> None:
    machine, data = Machine(), source(a=3)
    renamed: list[Operation] = []

    def die_after_the_rename(operation: Operation) -> None:
        if renamed:
            raise Crashed
        if operation.kind == "rename" and OUTPUT + "/a/" in operation.path:
            renamed.append(operation)

    with_folders(machine, "a").faults.append(die_after_the_rename)
    with pytest.raises(Crashed):
        go(WORLD, machine, data)
    machine.restart()
    result = go(WORLD, machine, NOTHING)
    assert (result.totals.sequences_replayed, result.totals.steps_executed) == (1, 0)
    for after in machine.after_power_loss(random.Random(1), 6, 20):
        if WORLD.watermarks(after):
            audit_result = audit(WORLD, after)
            assert (audit_result.records, audit_result.gaps, audit_result.unreadable) == (3, 0, [])


# -- I6: replay before ingest


def test_dataset_that_cannot_be_replayed_is_not_planned_and_others_continue() -> None:
    machine = Machine()
    killed_at(machine, "rename", OUTPUT + "/a/", source(a=3))
    machine.faults.append(fails(errno.EIO, "rename", OUTPUT + "/a/"))
    result = go(WORLD, machine, source(a=9, b=2))
    assert (result.totals.datasets_planned, result.totals.datasets_skipped) == (1, 1)
    assert (result.totals.records_read, result.succeeded) == (2, False)
    assert {r.kind for r in result.reasons.entries if r.subject == "a"} == {"STORAGE_UNAVAILABLE", "skipped, pending"}
    assert statuses(WORLD, machine) == {"a": "pending", "b": "idle"}
    machine.restart()
    check_recovery(machine, source(a=9, b=2))


def test_pending_dataset_is_not_read_again_though_its_source_plans_it() -> None:
    machine = Machine()
    killed_at(machine, "rename", OUTPUT + "/a/", source(a=3))
    machine.faults.append(fails(errno.EIO, "rename", OUTPUT + "/a/"))
    result = go(WORLD, machine, EagerSource(source(a=9, b=2).datasets))
    assert (result.totals.datasets_planned, result.totals.datasets_published, result.totals.records_read) == (1, 1, 2)
    machine.restart()
    check_recovery(machine, source(a=9, b=2))


def test_quarantine_comes_after_max_attempts_runs_however_often_each_retries() -> None:
    machine = Machine()
    killed_at(machine, "rename", OUTPUT + "/a/", source(a=3))
    machine.faults.append(fails(errno.EIO, "rename", OUTPUT + "/a/"))
    observed = []
    for _ in range(3):
        settings = WORLD.begin(machine, NOTHING)
        for _ in range(4):  # Spark tries a task again
            recover_partition(settings, 0)
        observed.append((statuses(WORLD, machine)["a"], len(states(WORLD, machine)["a"].tried_epochs)))
    assert observed == [("pending", 1), ("pending", 2), ("quarantined", 3)]
    machine.restart()
    result = go(WORLD, machine, source(a=5, b=1))
    assert (result.totals.sequences_replayed, result.totals.datasets_planned, result.succeeded) == (0, 1, False)
    assert [r.kind for r in result.reasons.entries] == ["skipped, quarantined"]
    assert states(WORLD, machine)["a"].watermark is None


@pytest.mark.parametrize("urns", [("a",), ("a", "b", "c")])
def test_outage_of_everything_counts_as_no_dataset_s_failed_attempt(urns: tuple[str, ...]) -> None:
    machine, data = Machine(), source(**dict.fromkeys(urns, 3))
    WORLD.store(machine)
    machine.faults.append(fails(errno.EIO, "rename", OUTPUT + "/"))
    for _ in range(5):
        go(WORLD, machine, data)
    assert {(s.status.value, s.tried_epochs) for s in states(WORLD, machine).values()} == {("pending", ())}
    machine.restart()
    result = go(WORLD, machine, data)
    assert (result.totals.sequences_replayed, result.succeeded) == (len(urns), True)
    assert WORLD.violation(machine, data, {}) == ""


# -- I7: nothing is deleted before DONE is durable


def test_files_are_deleted_only_after_done_is_durable() -> None:
    machine, data = Machine(), source(a=[2, 3], b=1)
    settings, tasks = begin_ingest(WORLD, machine, data)
    settings = replace(settings, min_interval_s=1)  # one commit for all
    deleted_early, done = [], []

    def watch(operation: Operation) -> None:
        if isinstance(written(machine, operation), Done):
            done.append("renamed")
        elif done == ["renamed"] and operation.kind == "fsync_folder" and BUCKET_LOG in operation.path:
            done.append("durable")
        elif operation.kind in ("unlink", "rmdir") and "durable" not in done:
            deleted_early.append(operation)

    machine.faults.append(watch)
    ingest_partition(settings, tasks - 1)
    for task in range(tasks - 1):
        ingest_partition(settings, task)
    assert done[:2] == ["renamed", "durable"]
    assert deleted_early == []


def test_aborted_attempt_s_files_stay_until_the_winner_is_done() -> None:
    machine, data = Machine(), source(a=3)
    settings, tasks = begin_ingest(WORLD, machine, data)
    machine.faults.append(fails(errno.EIO, "scandir", "/task_states/"))  # no twin sees the rows of the other
    for _ in range(2):
        ingest_all(settings, tasks)
    staged = machine.paths(STAGING)
    assert len(staged) == 2
    machine.restart()
    record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
    machine.faults.append(dies("rename", f"{BUCKET_LOG}00000/000000000004.seg"))  # DONE
    with pytest.raises(Crashed):
        drain_partition(settings, 0)
    machine.restart()
    assert len(published(machine)) == 1
    assert len(machine.paths(STAGING)) == 1
    check_recovery(machine, data)


def test_crash_before_done_leaves_the_sequence_and_its_evidence() -> None:
    machine, data = Machine(), source(a=3)
    killed_at(machine, "rename", f"{BUCKET_LOG}00000/000000000004.seg", data)  # DONE
    assert statuses(WORLD, machine) == {"a": "pending"}
    assert [op.path for op in machine.made if op.kind == "unlink" and op.path.endswith(".seg")] == []
    check_recovery(machine, data)
