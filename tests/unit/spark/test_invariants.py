"""The invariants of DESIGN.md, section 3, held by whole runs: crashes, twins, zombies, outages and hands in between."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import msgspec
import pytest

from distcommit.model.errors import FencedError, SourceUnavailableError
from distcommit.model.log_records import DatasetState, DatasetStatus, Done, Intent, SetWatermark
from distcommit.model.source import DatasetProblem
from distcommit.model.steps import StepContext
from distcommit.model.watermark import Watermark
from distcommit.model.work import DatasetPlan, WorkUnit
from distcommit.spark.ingest import drain_partition, ingest_partition, ingest_tasks, publish_partition
from distcommit.spark.planner import PlanReport, plan_partition, share_out
from distcommit.spark.recover import recover_partition
from distcommit.spark.run import decide_run, run
from distcommit.steps.execution import execute_sequences
from distcommit.steps.registry import load_steps
from distcommit.stores.plans import publish_manifest
from distcommit.stores.task_states import record_ingest_ended
from distcommit.testing.model_source import ModelDataset, ModelSource
from distcommit.testing.simulated_posix import Crashed, Operation
from distcommit.testing.world import World
from tests.unit.spark.machines import (
    BUCKET_LOG,
    NOTHING,
    OUTPUT,
    STAGING,
    Machine,
    Meeting,
    OddSource,
    Once,
    audit,
    begin_ingest,
    dies,
    fails,
    go,
    ingest_all,
    launch,
    published,
    reading,
    source,
    states,
    statuses,
    with_folders,
    written,
)

WORLD = World()


def killed_at(machine: Machine, kind: str, part: str, data: ModelSource, nth: int = 1, world: World = WORLD) -> None:
    """A run of the job that dies before its nth such call. Its datasets' folders are there already."""
    with_folders(machine, *data.datasets)
    machine.faults.append(dies(kind, part, nth))
    with pytest.raises(Crashed):
        go(world, machine, data)
    machine.restart()


def check_recovery(machine: Machine, data: ModelSource, world: World = WORLD) -> None:
    """One undisturbed run makes all as it must be."""
    before = world.watermarks(machine)
    assert go(world, machine, data).succeeded
    assert world.violation(machine, data, before) == ""


# -- I1: write-ahead, all or nothing


@pytest.mark.parametrize("kind", ["create", "write", "fsync", "rename"])
def test_a_crash_before_the_intent_stands_leaves_nothing_to_replay(kind: str) -> None:
    machine, data = Machine(), source(a=[2, 1], b=3)
    world = replace(WORLD, buckets=1)
    killed_at(machine, kind, f"{BUCKET_LOG}00000/", data, nth=3)
    assert states(world, machine) == {}
    assert not published(machine)
    result = go(world, machine, data)
    assert (result.succeeded, result.totals.sequences_replayed) == (True, 0)
    assert world.violation(machine, data, {}) == ""


def test_a_crash_after_the_intent_stands_leaves_all_of_it_to_replay() -> None:
    machine, data = Machine(), source(a=[2, 1], b=3)
    killed_at(machine, "rename", OUTPUT + "/a/", data, nth=2)
    assert len([path for path in published(machine) if "/a/" in path]) == 1
    state = states(WORLD, machine)["a"]
    assert state.sequence is not None
    assert (state.status.value, state.sequence.files, state.watermark) == ("pending", 2, None)
    result = go(WORLD, machine, data)
    assert (result.succeeded, result.totals.sequences_replayed) == (True, 1)
    assert WORLD.violation(machine, data, {}) == ""


def test_a_power_loss_at_the_first_effect_never_loses_the_intent_that_orders_it() -> None:
    machine, data = Machine(), source(a=[2, 1], b=3)
    survivors = Survivors(machine)
    machine.faults.append(survivors)
    assert go(WORLD, machine, data).succeeded
    assert survivors.number
    assert survivors.without_intent == []


def test_the_intent_of_a_committer_that_died_before_its_sync_is_synced_before_a_twin_acts_on_it() -> None:
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
    assert drain_partition(settings, 0).datasets_published == 1
    assert survivors.number
    assert survivors.without_intent == []


class Survivors:
    """What a power loss before each publishing rename may leave: does the dataset's sequence survive in all of it?"""

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


# -- I2: one winner


def twins(data: ModelSource, other: ModelSource) -> Iterator[tuple[int, Machine]]:
    """Machines after an ingest task was run twice at once: the twin as a whole before each call of the first."""
    for number in range(1000):
        machine = Machine()
        settings, tasks = begin_ingest(WORLD, machine, data)
        twin = Meeting(machine, number, partial(ingest_all, reading(settings, other), tasks))
        machine.faults.append(twin)
        ingest_all(settings, tasks)
        machine.restart()
        if twin.result is None:
            return
        record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
        drained = drain_partition(settings, 0)
        assert (drained.fenced, drained.reasons, drained.sequences_left) == ("", [], 0), number
        yield number, machine


def test_twins_of_one_task_at_once_publish_every_record_once_wherever_they_meet() -> None:
    data = source(a=[2, 1])
    ends = [(number, WORLD.violation(machine, data, {})) for number, machine in twins(data, data)]
    assert len(ends) > 30
    assert [end for end in ends if end[1]] == []


def test_of_attempts_with_different_ranges_one_wins_with_outputs_and_watermark_of_its_own() -> None:
    data, shorter = source(a=5), ModelSource({"a": ModelDataset({"0": 5}, short=2)})
    highs = set()
    for number, machine in twins(data, shorter):
        found = audit(WORLD, machine)
        high = WORLD.watermarks(machine)["a"].positions["0"]
        assert (found.exact, found.records, found.files) == (True, high, 1), (number, found)
        highs.add(high)
        check_recovery(machine, data)
    assert highs == {3, 5}


@pytest.mark.parametrize("first_is_shorter", [True, False])
def test_of_two_attempts_that_are_both_there_at_the_seal_one_wins_as_a_whole(first_is_shorter: bool) -> None:
    machine, data = Machine(), source(a=[5, 3])
    shorter = ModelSource({"a": ModelDataset({"0": 5, "1": 3}, short=2)})
    settings, tasks = begin_ingest(WORLD, machine, data)
    machine.faults.append(fails(errno.EIO, "scandir", "/task_states/"))  # nobody seals, no twin sees the other's rows
    for found in (shorter, data) if first_is_shorter else (data, shorter):
        ingest_all(reading(settings, found), tasks)
    machine.restart()
    assert len(machine.paths(STAGING)) == 4
    record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
    assert drain_partition(settings, 0).datasets_published == 1
    result = audit(WORLD, machine)
    assert (result.exact, result.files) == (True, 2)
    assert result.records == sum(int(p) for p in WORLD.watermarks(machine)["a"].positions.values())
    check_recovery(machine, data)


def test_what_lies_beyond_a_gap_waits_for_the_next_run() -> None:
    machine = Machine()
    short = ModelSource({"a": ModelDataset({"0": 9}, units=3, short=1)})
    go(WORLD, machine, short)
    assert WORLD.watermarks(machine) == {"a": Watermark({"0": 2})}
    assert audit(WORLD, machine).exact
    check_recovery(machine, source(a=9))


# -- I3: idempotent replay


def test_two_processes_that_replay_the_same_sequences_at_once_publish_once_wherever_they_meet() -> None:
    data = source(a=[2, 1], b=1)
    for number in range(1000):
        machine = Machine()
        killed_at(machine, "rename", OUTPUT + "/a/", data, nth=2)
        settings = WORLD.begin(machine, data)
        twin = Meeting(machine, number, partial(recover_partition, settings, 0))
        machine.faults.append(twin)
        report = recover_partition(settings, 0)
        assert (report.reasons, report.fenced, report.sequences_left) == ([], "", 0), number
        if twin.result is None:
            break
        assert twin.result.reasons == []
        assert statuses(WORLD, machine) == {"a": "idle"}
        check_recovery(machine, data)
    assert number > 15


@pytest.mark.parametrize("verify_first", [True, False])
def test_a_sequence_executed_again_after_later_ones_changes_nothing(verify_first: bool) -> None:
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


def test_a_file_that_a_dead_run_published_is_synced_before_its_sequence_is_closed() -> None:
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
            found = audit(WORLD, after)
            assert (found.records, found.gaps, found.unreadable) == (3, 0, [])


# -- I4: fenced zombies


def test_an_old_run_that_goes_on_after_a_newer_one_seals_publishes_and_plans_nothing() -> None:
    machine, data = Machine(), source(a=3, b=2)
    old, tasks = begin_ingest(WORLD, machine, source(a=2, b=1))
    assert go(WORLD, machine, data).succeeded
    logs, files = machine.paths("/job/store/log"), published(machine)
    reports = [
        *ingest_all(old, tasks),
        drain_partition(old, 0),
        publish_partition(old, 0),
        plan_partition(old, 0).report,
        recover_partition(old, 0),
    ]
    assert all("a newer run has fenced this one" in report.fenced for report in reports)
    assert not decide_run(old.store, old.epoch)
    assert machine.paths("/job/store/log") == logs
    assert published(machine) == files
    check_recovery(machine, data)


def test_a_newer_run_at_any_moment_of_an_old_one_s_ingest_leaves_every_record_published_once() -> None:
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


@pytest.mark.parametrize("job_level", [False, True])
def test_a_newer_run_at_any_moment_of_an_old_one_fences_it_or_finds_it_done(job_level: bool) -> None:
    world, fenced = World(job_level=job_level), 0
    for number in range(1000):
        machine = Machine()
        old = world.begin(machine, source(a=2, b=1))
        newer = Meeting(machine, number, partial(go, world, machine, source(a=3, b=2)))
        machine.faults.append(newer)
        try:
            done = run(launch, old).succeeded
        except (FencedError, SourceUnavailableError):  # the latter where the newer run swept what planning had made
            fenced, done = fenced + 1, False
        if newer.result is None:
            break
        assert newer.result.succeeded, number
        if done:  # the newer one came after the last of its seals and decisions
            assert audit(world, machine).exact, number
        check_recovery(machine, source(a=3, b=2), world)
    assert fenced > 60


def test_a_run_that_finds_itself_fenced_ends_with_that_error() -> None:
    machine, data = Machine(), source(a=3)
    old = WORLD.begin(machine, data)
    go(WORLD, machine, data)
    with pytest.raises(FencedError, match="a newer run has fenced"):
        run(launch, old)


# -- I5: watermarks move by compare-and-set


@pytest.mark.parametrize("job_level", [False, True])
def test_a_watermark_set_by_hand_in_mid_run_is_kept_and_the_run_says_so(job_level: bool) -> None:
    world, machine = World(job_level=job_level), Machine()
    plain = source(a=3, b=4)

    def by_hand(unit: WorkUnit) -> None:
        if unit.dataset_urn == "a":
            log = world.store(machine).bucket_log(0)
            log.settle(Once(SetWatermark("a", Watermark({"0": 1}), "me")))

    result = go(world, machine, OddSource(plain.datasets, extracting=by_hand))
    assert not result.succeeded
    assert result.totals.datasets_planned == 2
    assert states(world, machine)["a"].watermark == Watermark({"0": 1})
    assert not [path for path in published(machine) if "/a/" in path]
    if not job_level:
        assert (result.totals.datasets_published, result.totals.datasets_failed) == (1, 1)
        assert [(r.subject, r.text) for r in result.totals.reasons] == [
            ("a", "its watermark was changed by hand while the run read it")
        ]
    assert go(world, machine, plain).succeeded
    assert world.watermarks(machine) == {"a": Watermark({"0": 3}), "b": Watermark({"0": 4})}
    found = audit(world, machine)
    assert (found.exact, found.records) == (True, 2 + 4)


# -- I6: replay before ingest


def test_a_dataset_that_can_not_be_replayed_is_not_planned_and_others_go_on() -> None:
    machine = Machine()
    killed_at(machine, "rename", OUTPUT + "/a/", source(a=3))
    machine.faults.append(fails(errno.EIO, "rename", OUTPUT + "/a/"))
    result = go(WORLD, machine, source(a=9, b=2))
    assert (result.totals.datasets_planned, result.totals.datasets_skipped) == (1, 1)
    assert (result.totals.records_read, result.succeeded) == (2, False)
    assert {r.kind for r in result.totals.reasons if r.subject == "a"} == {"TransientError", "skipped, pending"}
    assert statuses(WORLD, machine) == {"a": "pending", "b": "idle"}
    machine.restart()
    check_recovery(machine, source(a=9, b=2))


class EagerSource(ModelSource):
    """Plans its datasets whatever their state."""

    def plan(
        self, owned: Callable[[str], bool], states: Mapping[str, DatasetState]
    ) -> Iterator[DatasetPlan | DatasetProblem]:
        return ModelSource.plan(
            self, owned, {urn: msgspec.structs.replace(s, status=DatasetStatus.IDLE) for urn, s in states.items()}
        )


def test_a_pending_dataset_is_not_read_again_though_its_source_plans_it() -> None:
    machine = Machine()
    killed_at(machine, "rename", OUTPUT + "/a/", source(a=3))
    machine.faults.append(fails(errno.EIO, "rename", OUTPUT + "/a/"))
    result = go(WORLD, machine, EagerSource(source(a=9, b=2).datasets))
    assert (result.totals.datasets_planned, result.totals.datasets_published, result.totals.records_read) == (1, 1, 2)
    machine.restart()
    check_recovery(machine, source(a=9, b=2))


def test_quarantine_comes_after_max_attempts_runs_however_often_each_of_them_tries() -> None:
    machine = Machine()
    killed_at(machine, "rename", OUTPUT + "/a/", source(a=3))
    machine.faults.append(fails(errno.EIO, "rename", OUTPUT + "/a/"))
    seen = []
    for _ in range(3):
        settings = WORLD.begin(machine, NOTHING)
        for _ in range(4):  # Spark tries a task again
            recover_partition(settings, 0)
        seen.append((statuses(WORLD, machine)["a"], len(states(WORLD, machine)["a"].tried_epochs)))
    assert seen == [("pending", 1), ("pending", 2), ("quarantined", 3)]
    machine.restart()
    result = go(WORLD, machine, source(a=5, b=1))
    assert (result.totals.sequences_replayed, result.totals.datasets_planned, result.succeeded) == (0, 1, False)
    assert [r.kind for r in result.totals.reasons] == ["skipped, quarantined"]
    assert states(WORLD, machine)["a"].watermark is None


@pytest.mark.parametrize("urns", [("a",), ("a", "b", "c")])
def test_an_outage_that_hits_everything_is_nobody_s_failed_attempt(urns: tuple[str, ...]) -> None:
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


def test_nothing_is_deleted_before_done_is_durable() -> None:
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


def test_a_loser_s_files_stay_until_the_winner_is_done() -> None:
    machine, data = Machine(), source(a=3)
    settings, tasks = begin_ingest(WORLD, machine, data)
    machine.faults.append(fails(errno.EIO, "scandir", "/task_states/"))  # no twin sees the other's rows
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


def test_a_crash_before_done_leaves_the_sequence_and_what_proves_it() -> None:
    machine, data = Machine(), source(a=3)
    killed_at(machine, "rename", f"{BUCKET_LOG}00000/000000000004.seg", data)  # DONE
    assert statuses(WORLD, machine) == {"a": "pending"}
    assert [op.path for op in machine.made if op.kind == "unlink" and op.path.endswith(".seg")] == []
    check_recovery(machine, data)


# -- I8: fail closed


@pytest.mark.parametrize("damage", ["gone", "other bytes staged", "other bytes published"])
def test_a_lost_step_quarantines_its_dataset_says_why_and_moves_no_watermark(damage: str) -> None:
    machine, data = Machine(), source(a=3, b=2, c=1)
    settings, tasks = begin_ingest(WORLD, machine, data)
    machine.faults.append(dies("rename", OUTPUT + "/"))
    with pytest.raises(Crashed):
        ingest_all(replace(settings, min_interval_s=1), tasks)
    machine.restart()
    state = states(WORLD, machine)
    lost = sorted(urn for urn in state if state[urn].sequence is not None)[0]
    sequence = state[lost].sequence
    assert sequence is not None
    store = WORLD.store(machine)
    [step] = load_steps(sequence.steps, StepContext(store.fs, store.roots.staging, store.roots.output))
    path = getattr(step, "target" if damage == "other bytes published" else "source")
    if damage == "gone":
        machine.remove(path)
    else:
        machine.put(path, b"not what was sealed")
    result = go(WORLD, machine, data)
    assert (result.totals.datasets_quarantined, result.succeeded) == (1, False)
    after = states(WORLD, machine)
    assert (after[lost].status.value, after[lost].watermark) == ("quarantined", None)
    assert "expected" in after[lost].reason
    assert ("neither is there" if damage == "gone" else "other bytes there (19 bytes") in after[lost].reason
    assert {urn: s.watermark for urn, s in after.items() if urn != lost} == {
        urn: Watermark(dict(data.datasets[urn].partitions)) for urn in data.datasets if urn != lost
    }


def test_a_corrupt_log_record_stops_the_datasets_of_its_bucket_and_no_others() -> None:
    world, machine = World(buckets=3), Machine()
    data = source(a=1, b=1, c=1, d=1, e=1)
    assert go(world, machine, data).succeeded
    more = source(a=2, b=2, c=2, d=2, e=2)
    bucket = next(b for b in range(3) if world.store(machine).bucket_log(b).refresh().datasets)
    stuck = set(world.store(machine).bucket_log(bucket).refresh().datasets)
    newest = max(p for p in machine.paths(f"/job/store/log/bucket={bucket:05d}") if p.endswith(".seg"))
    whole = machine.paths("/job")[newest]
    machine.put(newest, whole[:-5])
    result = go(world, machine, more)
    assert not result.succeeded
    assert {r.kind for r in result.totals.reasons if r.subject == f"bucket {bucket}"} == {"CorruptError"}
    assert result.totals.datasets_published == 5 - len(stuck) > 0
    machine.put(newest, whole)
    check_recovery(machine, more, world)


# -- I9: the driver counts only


@pytest.mark.parametrize("failing", [False, True])
def test_what_reaches_the_driver_does_not_grow_with_datasets(failing: bool) -> None:
    sizes = []
    for number in (25, 1000):
        machine = Machine()
        fail = frozenset({"0"}) if failing else frozenset[str]()
        data = ModelSource(
            {f"dataset-{place:05d}": ModelDataset({"0": 100 if failing else 0}, fails=fail) for place in range(number)}
        )
        settings = replace(WORLD.begin(machine, data), min_interval_s=1)
        recover_partition(settings, 0)
        planned = plan_partition(settings, 0)
        manifest = share_out(settings, [planned])
        publish_manifest(settings.store.fs, settings.store.roots.store, manifest)
        ingested = ingest_partition(settings, ingest_tasks(settings, manifest) - 1)
        record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
        drained = drain_partition(settings, 0)
        assert planned.report.datasets_planned == number
        assert drained.datasets_failed + drained.datasets_published == number
        assert len(drained.reasons) + drained.reasons_more == (number if failing else 0)
        encoded = [msgspec.msgpack.encode(report) for report in (planned.report, ingested, drained)]
        sizes.append([len(data) for data in encoded])
        assert len(PlanReport(planned.report, planned.files, planned.largest).largest) <= 64
    assert [few + 40 >= many for few, many in zip(*sizes, strict=True)] == [True] * 3, sizes


# -- I10: skipping keeps the watermark


def test_datasets_skipped_for_whatever_reason_keep_their_watermarks_over_many_runs() -> None:
    machine = Machine()
    assert go(WORLD, machine, source(absent=2, problem=3, stuck=1, well=1)).succeeded
    killed_at(machine, "rename", OUTPUT + "/stuck/", source(stuck=4))
    [staged] = machine.paths(STAGING)
    machine.remove(staged)
    for number in range(2, 42):
        odd = OddSource(
            source(stuck=9, well=number).datasets, planning=lambda: iter([DatasetProblem("problem", "unreachable")])
        )
        result = go(WORLD, machine, odd)
        assert not result.succeeded
        assert {r.subject for r in result.totals.reasons} == {"problem", "stuck"}
    segments = [path for path in machine.paths("/job/store/log/bucket=00000") if path.endswith(".seg")]
    assert len(segments) < 2 * 40, "checkpoints were made and truncated"
    assert WORLD.watermarks(machine) == {
        "absent": Watermark({"0": 2}),
        "problem": Watermark({"0": 3}),
        "stuck": Watermark({"0": 1}),
        "well": Watermark({"0": 41}),
    }
