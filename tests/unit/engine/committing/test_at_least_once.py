"""At-least-once delivery: after any crash or race no record is missing, and no watermark is ahead of its data."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from functools import partial

import pytest

from distcommit.app.auditing.audit import AuditResult, audit_store
from distcommit.core.errors import FencedError
from distcommit.core.records.log_records import Done, Gate, Intent, SetWatermark
from distcommit.core.records.sealed_sequences import SealedSequence
from distcommit.core.support.io_batching import run_alone
from distcommit.core.watermark import Watermark
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.driver.run import run
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.stores.state.task_states import record_ingest_ended
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.explore import crashes_of
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import World
from tests.unit.engine.committing.situations import twins
from tests.unit.engine.driver.machines import (
    NOTHING,
    OUTPUT,
    STAGING,
    Machine,
    Once,
    begin_ingest,
    dies,
    fails,
    go,
    ingest_all,
    launch,
    published,
    source,
    states,
    statuses,
    with_folders,
    written,
)

WORLD = World(at_least_once=True)
EXACTLY = World()


def audit(machine: SimulatedPosix, world: World = WORLD) -> AuditResult:
    return audit_store(world.store(machine), ModelSource.provenance, deep=True, at_least_once=True)


def check_next_run(machine: Machine, data: ModelSource, duplicates: int) -> None:
    """Run the job once without faults. Check that everything is complete and that `duplicates` records are published
    twice.
    """
    before = WORLD.watermarks(machine)
    assert go(WORLD, machine, data).succeeded
    assert WORLD.violation(machine, data, before) == ""
    assert audit(machine).duplicates == duplicates


def test_run_without_failures_publishes_each_record_once_and_logs_one_record_without_steps() -> None:
    machine, data = Machine(), source(a=[2, 1], b=3)
    sealed: list[Intent] = []

    def note(operation: Operation) -> None:
        record = written(machine, operation)
        assert not isinstance(record, Done)
        if isinstance(record, Intent):
            assert len(published(machine)) >= sum(s.files for s in record.sequences), (
                "the record is published before it is logged"
            )
            sealed.append(record)

    machine.faults.append(note)
    result = go(WORLD, machine, data)
    assert (result.succeeded, result.totals.datasets_published, result.totals.records_published) == (True, 2, 6)
    assert all(record.gate is Gate.PASSED and not s.steps for record in sealed for s in record.sequences)
    assert sorted(s.dataset_urn for record in sealed for s in record.sequences) == ["a", "b"]
    audit_result = audit(machine)
    assert (audit_result.exact, audit_result.passed, audit_result.at_least_once, audit_result.unrecorded_files) == (
        True,
        True,
        True,
        0,
    )
    assert EXACTLY.violation(machine, data, {}) == ""


@pytest.mark.thorough
@pytest.mark.parametrize("world", [WORLD, World(buckets=2, at_least_once=True)], ids=["one bucket", "two"])
def test_crash_leaves_no_watermark_ahead_of_its_data_and_the_next_run_completes_everything(world: World) -> None:
    machine, data, tried = SimulatedPosix(), source(a=[2, 1], b=1), 0
    machine.mkdir("/job")
    world.store(machine)
    reached: list[dict[str, Watermark]] = []
    for crash, survivor, _ in crashes_of(machine, partial(world.run, source=data), random.Random(1)):
        if crash.state > 1:
            continue  # the explorer tries them all
        tried += 1
        audit_result = audit(survivor, world)
        assert (audit_result.gaps, audit_result.pending, audit_result.unknown_files) == (0, [], []), crash
        reached.append(world.watermarks(survivor))
        assert world.run(survivor, data).succeeded, crash
        assert world.violation(survivor, data, reached[-1]) == "", crash
    assert tried > 100
    assert max(map(len, reached)) == 2, "some crashes come after the last record was written"


@pytest.mark.parametrize(("moved", "records"), [(1, 0), (2, 2), (3, 3)])
def test_next_run_republishes_exactly_the_records_that_were_published_before_a_crash(moved: int, records: int) -> None:
    machine, data = with_folders(Machine(), "a"), source(a=[2, 1])
    machine.faults.append(dies("rename", f"{OUTPUT}/a/", moved) if moved < 3 else dies_at_intent(machine))
    with pytest.raises(Crashed):
        go(WORLD, machine, data)
    machine.restart()
    assert statuses(WORLD, machine) == {}, "nothing is logged"
    audit_result = audit(machine)
    assert (audit_result.unrecorded_files, audit_result.gaps, audit_result.unknown_files) == (moved - 1, 0, [])
    check_next_run(machine, data, records)
    assert machine.paths(STAGING) == {}


def dies_at_intent(machine: Machine) -> Callable[[Operation], None]:
    return dies("rename", "/bucket=", 1, Intent, machine)


def test_exactly_once_audit_reports_the_duplicates_that_a_crash_left() -> None:
    machine, data = with_folders(Machine(), "a"), source(a=[2, 1])
    machine.faults.append(dies("rename", f"{OUTPUT}/a/", 2))
    with pytest.raises(Crashed):
        go(WORLD, machine, data)
    machine.restart()
    audit_result = audit_store(EXACTLY.store(machine), ModelSource.provenance, deep=True)
    assert (
        audit_result.exact,
        audit_result.passed,
        audit_result.unknown_files_count,
        audit_result.unrecorded_files,
    ) == (False, False, 1, 0)
    go(WORLD, machine, data)
    audit_result = audit_store(EXACTLY.store(machine), ModelSource.provenance, deep=True)
    assert (audit_result.exact, audit_result.passed, audit_result.duplicates) == (False, False, 2)
    audit_result = audit(machine)
    assert (audit_result.exact, audit_result.passed, audit_result.duplicates) == (False, True, 2)


def test_audit_at_least_once_still_reports_gaps_and_foreign_files() -> None:
    machine, data = Machine(), source(a=[2, 1])
    assert go(WORLD, machine, data).succeeded
    machine.remove(min(published(machine)))
    audit_result = audit(machine)
    assert audit_result.gaps > 0
    assert not audit_result.passed
    machine.put(f"{OUTPUT}/a/x.parquet", b"not ours")
    assert audit(machine).unknown_files_count == 1


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_run_completes_a_dead_task_s_half_published_dataset_without_duplicates(nth: int) -> None:
    machine, data = with_folders(Machine(), "a"), source(a=[2, 1])
    settings, tasks = begin_ingest(WORLD, machine, data)
    machine.faults.append(dies("rename", f"{OUTPUT}/a/", nth) if nth < 3 else dies_at_intent(machine))
    with pytest.raises(Crashed):
        ingest_all(settings, tasks)
    machine.restart()
    assert len(published(machine)) == nth - 1
    record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
    drained = drain_partition(settings, 0)
    assert (drained.counts.datasets_published, drained.counts.sequences_postponed, [*drained.reasons]) == (1, 0, [])
    assert audit(machine).exact


@pytest.mark.thorough
@pytest.mark.parametrize("short", [0, 2])
def test_twins_that_both_publish_leave_the_watermark_of_one_whose_files_all_exist(short: int) -> None:
    data, other = source(a=5), ModelSource({"a": ModelDataset({"0": 5}, short=short)})
    highs, met = set(), 0
    for number, machine in twins(WORLD, data, other):
        audit_result, met = audit(machine), met + 1
        assert audit_result.passed, (number, audit_result)
        highs.add(WORLD.watermarks(machine)["a"].positions["0"])
        assert go(WORLD, machine, data).succeeded
        assert WORLD.violation(machine, data, {}) == "", number
    assert met > 20
    assert highs == {5, 5 - short}


def test_zombie_fenced_while_publishing_moves_no_watermark() -> None:
    machine, data, more = with_folders(Machine(), "a"), source(a=3), source(a=5)
    settings, tasks = begin_ingest(WORLD, machine, data)
    newer: list[bool] = []

    def fence(operation: Operation) -> None:
        if operation.kind == "rename" and "/output/a/" in operation.path and not newer:
            newer.append(True)
            quiet, machine.faults = machine.faults, []
            assert go(WORLD, machine, more).succeeded
            machine.faults = quiet

    machine.faults.append(fence)
    reports = [ingest_partition(settings, task) for task in range(tasks)]
    assert newer
    assert any("a newer run has fenced this one" in report.fenced for report in reports)
    assert WORLD.violation(machine, more, {}) == ""
    with pytest.raises(FencedError):
        run(launch, settings)


def test_file_that_cannot_be_renamed_leaves_its_dataset_to_the_next_run_and_others_continue() -> None:
    machine, data = with_folders(Machine(), "a", "b"), source(a=[2, 1], b=1)
    machine.faults.append(fails(errno.EACCES, "rename", "/output/a/", first=2))
    result = go(WORLD, machine, data)
    assert (result.succeeded, result.totals.datasets_published, result.totals.sequences_postponed) == (False, 1, 1)
    assert [(reason.subject, reason.kind) for reason in result.reasons.entries] == [("a", "unpublished")]
    machine.restart()
    assert sorted(WORLD.watermarks(machine)) == ["b"]
    check_next_run(machine, data, 2)


def test_rename_that_fails_temporarily_causes_no_duplicates() -> None:
    machine, data = with_folders(Machine(), "a"), source(a=[2, 1])
    machine.faults.append(fails(errno.EACCES, "rename", "/output/a/", first=2, times=3))
    assert go(WORLD, machine, data).succeeded
    machine.restart()
    assert EXACTLY.violation(machine, data, {}) == ""


def test_staged_file_that_vanishes_is_read_again_by_the_next_run() -> None:
    machine, data = with_folders(Machine(), "a"), source(a=[2, 1])

    def vanish(operation: Operation) -> None:
        if operation.kind == "rename" and "/output/a/" in operation.path and ".parquet" in operation.path:
            machine.faults.clear()
            machine.remove(max(path for path in machine.paths(STAGING) if path.endswith(".parquet")))

    machine.faults.append(vanish)
    result = go(WORLD, machine, data)
    assert (result.succeeded, result.totals.datasets_failed, result.totals.datasets_quarantined) == (False, 1, 0)
    assert "staged files of every attempt are missing" in result.reasons.entries[0].text
    assert WORLD.watermarks(machine) == {}
    check_next_run(machine, data, 2)


def test_watermark_set_by_an_operator_during_publishing_is_preserved() -> None:
    machine, data = with_folders(Machine(), "a"), source(a=3)
    by_hand = SetWatermark("a", Watermark({"0": 1}), "person")

    def hand(operation: Operation) -> None:
        if operation.kind == "rename" and "/output/a/" in operation.path:
            machine.faults.clear()
            run_alone(WORLD.store(machine).bucket_log(0).settle(Once(by_hand)))

    machine.faults.append(hand)
    go(WORLD, machine, data)
    assert WORLD.watermarks(machine) == {"a": Watermark({"0": 1})}


def test_sealed_exactly_once_sequence_is_replayed_before_at_least_once_reads() -> None:
    machine, data = with_folders(Machine(), "a"), source(a=[2, 1])
    machine.faults.append(dies("rename", f"{OUTPUT}/a/", 2))
    with pytest.raises(Crashed):
        go(EXACTLY, machine, data)
    machine.restart()
    assert statuses(WORLD, machine) == {"a": "pending"}
    result = go(WORLD, machine, source(a=[3, 1]))
    assert (result.succeeded, result.totals.sequences_replayed, result.totals.datasets_published) == (True, 1, 1)
    assert EXACTLY.violation(machine, source(a=[3, 1]), {}) == ""


def test_older_program_closes_the_unknown_record_and_moves_the_same_watermark() -> None:
    """The older program finds a pending sequence without steps, so it replays nothing."""
    machine = Machine()
    settings, _ = begin_ingest(WORLD, machine, NOTHING)
    log = settings.store.bucket_log(0, settings.epoch)
    intent = Intent(settings.epoch, (SealedSequence("a", settings.epoch, None, Watermark({"0": 2}), ()),))
    run_alone(log.settle(Once(intent)))
    assert go(EXACTLY, machine, NOTHING).totals.sequences_replayed == 1
    assert states(EXACTLY, machine)["a"].watermark == Watermark({"0": 2})
