"""Hazards that mutants of the product showed to be checked by nothing else, each through the product's entry points."""

from __future__ import annotations

import errno
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from distcommit.fs.local import LocalFileSystem
from distcommit.ingest.staging import new_attempt, prepare_bucket
from distcommit.model.errors import ConfigurationError, DistcommitError, FencedError
from distcommit.model.log_records import (
    DatasetState,
    DatasetStatus,
    Decide,
    Failed,
    Fence,
    Intent,
    SealedSequence,
    SequenceName,
)
from distcommit.model.source import DatasetProblem
from distcommit.model.steps import Lost, StepContext, Verdict
from distcommit.model.watermark import Watermark
from distcommit.model.work import DatasetPlan, WorkUnit
from distcommit.protocol.readiness import CommitPolicy
from distcommit.spark.ingest import drain_partition, ingest_partition
from distcommit.spark.recover import recover_partition
from distcommit.steps.registry import load_steps
from distcommit.steps.rename import FsRenameCommitStep
from distcommit.steps.watermark import HighWatermarkCommitStep
from distcommit.stores import by_hand
from distcommit.stores.commit_step_store import LogCommitStepStore
from distcommit.stores.fencing import fence_bucket, fence_job
from distcommit.stores.log import CommitLog
from distcommit.stores.retention import KEPT_RUNS
from distcommit.stores.segment import Segment, encode_segment
from distcommit.stores.task_states import record_ingest_ended
from distcommit.testing.model_source import ModelDataset, ModelSource
from distcommit.testing.simulated_posix import Crashed, Operation, SimulatedPosix
from distcommit.testing.world import ROOTS, SimulatedFileSystem, World
from tests.unit.spark.machines import (
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
    published,
    reading,
    source,
    states,
    statuses,
    with_folders,
    written,
)

WORLD = World()


def check_recovery(machine: Machine, data: ModelSource, world: World = WORLD) -> None:
    before = world.watermarks(machine)
    assert go(world, machine, data).succeeded
    assert world.violation(machine, data, before) == ""


def quarantined(machine: Machine, data: ModelSource) -> SealedSequence:
    """Dataset `a` sealed, with nothing of it published, and quarantined."""
    WORLD.store(machine)
    with_folders(machine, "a").faults.append(fails(errno.EIO, "rename", OUTPUT + "/a/"))
    go(WORLD, machine, data)
    machine.restart()
    assert not [path for path in published(machine) if path.startswith(OUTPUT + "/a/")]
    return quarantine(machine)


def quarantine(machine: Machine) -> SealedSequence:
    """Quarantines what is pending of dataset `a`."""
    log = WORLD.store(machine).bucket_log(0)
    fold = log.refresh()
    sequence = fold.state_of("a").sequence
    assert sequence is not None
    log.settle(Once(Failed(fold.fence_epoch, SequenceName("a", sequence.epoch), True, "by the test")))
    assert statuses(WORLD, machine)["a"] == "quarantined"
    return sequence


# -- fencing and the log


def test_of_two_runs_that_begin_at_once_each_has_an_epoch_of_its_own_or_none_wherever_they_meet() -> None:
    refused = 0
    for number in range(100):
        machine = Machine()
        store = WORLD.store(machine)
        meeting = Meeting(machine, number, lambda store=store: fence_job(store, "r2"))  # type: ignore[misc]
        machine.faults.append(meeting)
        try:
            mine = fence_job(store, "r1")
        except FencedError:
            refused += 1
        else:
            if meeting.result is None:
                break
            assert mine != meeting.result, number
    assert refused >= 3
    assert number >= refused


def test_a_zombie_s_record_on_a_number_that_was_truncated_while_it_was_read_does_not_count() -> None:
    machine = Machine()
    fs, folder = SimulatedFileSystem(machine), "/job/log"
    keeper, reader = CommitLog(fs, folder), CommitLog(fs, folder)
    keeper.create()
    keeper.settle(Once(Fence(2, "old")))
    assert reader.refresh().fence_epoch == 2
    keeper.settle(Once(Fence(3, "new")))
    place = f"{folder}/{keeper.last_number:012d}.seg"

    def truncated_and_written_anew(operation: Operation) -> None:
        if operation == Operation("read", place):
            machine.faults.clear()
            for epoch in (4, 5):
                keeper.settle(Once(Fence(epoch, "newer")))
                keeper.checkpoint(at_least=1)
            assert fs.put_if_absent(place, encode_segment(Segment(2, "ff", Decide(2))))

    machine.faults.append(truncated_and_written_anew)
    fold = reader.refresh()
    assert machine.faults == []
    assert (fold.fence_epoch, fold.decided_epochs) == (5, frozenset())


# -- readiness


def test_a_drain_that_comes_before_ingest_has_ended_takes_nothing_that_is_missing_for_failed() -> None:
    """A task that Spark runs again finds its dataset still open, and all of it is published by one run."""
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
    assert early.datasets_published == 0
    ingest_all(settings, tasks)
    record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
    assert drain_partition(settings, 0).datasets_published == 1
    found = audit(world, machine)
    assert (found.exact, found.records) == (True, 4)


# -- quarantine


def test_a_zombie_can_not_publish_what_a_person_abandons_wherever_they_meet() -> None:
    data = source(a=3, b=1)
    for number in range(100):
        machine = Machine()
        sequence = quarantined(machine, data)
        store = WORLD.store(machine)
        steps = list(load_steps(sequence.steps, StepContext(store.fs, ROOTS.staging, ROOTS.output)))

        def zombie(steps: list = steps) -> bool:  # type: ignore[type-arg]
            for step in steps:
                with suppress(DistcommitError):
                    step.execute()
            return True

        meeting = Meeting(machine, number, zombie)
        machine.faults.append(meeting)
        by_hand.abandon(store, "a", "person")
        machine.restart()
        zombie()
        assert not [path for path in published(machine) if path.startswith(OUTPUT + "/a/")], number
        assert statuses(WORLD, machine)["a"] == "idle"
        if meeting.result is None:
            break
    assert number > 5
    check_recovery(machine, data)


class EagerSource(ModelSource):
    """Plans its datasets whatever their state."""

    def plan(
        self, owned: Callable[[str], bool], states: Mapping[str, DatasetState]
    ) -> Iterator[DatasetPlan | DatasetProblem]:
        idle = {urn: msgspec.structs.replace(state, status=DatasetStatus.IDLE) for urn, state in states.items()}
        return ModelSource.plan(self, owned, idle)


@pytest.mark.parametrize("status", [DatasetStatus.QUARANTINED, DatasetStatus.REVOKING])
def test_a_dataset_that_a_person_must_look_at_is_not_read_again_though_its_source_plans_it(
    status: DatasetStatus,
) -> None:
    machine = Machine()
    quarantined(machine, source(a=3, b=1))
    if status is DatasetStatus.REVOKING:
        machine.faults.append(fails(errno.EIO, "unlink", "/job/staging/"))
        with pytest.raises(DistcommitError):
            by_hand.abandon(WORLD.store(machine), "a", "person")
        machine.restart()
    assert states(WORLD, machine)["a"].status is status
    result = go(WORLD, machine, EagerSource(source(a=9, b=2).datasets))
    assert (result.totals.datasets_planned, result.totals.records_read) == (1, 1)
    assert states(WORLD, machine)["a"].status is status


def test_no_power_loss_leaves_a_hole_in_a_log_above_what_a_dead_writer_put() -> None:
    machine = Machine()
    log = WORLD.store(machine).bucket_log(0, 1)
    machine.syncfs("/")
    put: list[str] = []

    def die(operation: Operation) -> None:
        if put and operation.kind == "fsync_folder":
            raise Crashed
        if operation.kind == "rename":
            put.append(operation.path)

    machine.faults.append(die)
    with suppress(Crashed):
        fence_bucket(log, 1, "dead")
    machine.restart()
    assert WORLD.store(machine).bucket_log(0).refresh().fence_epoch == 1
    seen: list[int] = []

    def look(after: SimulatedPosix, where: str) -> None:
        seen.append(WORLD.store(after).bucket_log(0).refresh().fence_epoch)

    on_every_power_loss(machine, look)
    fence_bucket(WORLD.store(machine).bucket_log(0, 2), 2, "alive")
    machine.mkdir("/end")
    assert {0, 1, 2} == set(seen)


# -- task output


def test_a_zombie_whose_task_output_was_swept_finds_no_place_to_write() -> None:
    machine, data = Machine(), source(a=3)
    settings, tasks = begin_ingest(WORLD, machine, data)
    check_recovery(machine, data)
    ingest_all(settings, tasks)
    assert machine.paths(STAGING) == {}
    assert audit(WORLD, machine).exact


def test_a_zombie_in_the_middle_of_an_attempt_finds_no_place_to_write_once_it_was_swept() -> None:
    machine, data = Machine(), source(a=3)
    settings, _ = begin_ingest(WORLD, machine, data)

    def swept(unit: WorkUnit) -> None:
        check_recovery(machine, data)

    ingest_partition(reading(settings, OddSource(data.datasets, extracting=swept)), 0)
    assert machine.paths(STAGING) == {}


def test_an_attempt_has_a_folder_that_no_other_has(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    fs = SimulatedFileSystem(machine)
    prepare_bucket(fs, "/job/staging", 1, 0)
    monkeypatch.setattr("uuid.uuid4", lambda: UUID(int=1))
    status = fs.status(new_attempt(fs, "/job/staging", 1, 0, "u").path)
    assert status is not None
    assert status.is_folder
    with pytest.raises(FileExistsError):
        new_attempt(fs, "/job/staging", 1, 0, "u")


# -- the rename step


class LinkMachine(Machine):
    """An old kernel, or NFS: no rename that does not replace."""

    def rename_noreplace(self, source: str, target: str) -> None:
        raise OSError(errno.ENOSYS, "not there", target)


def vanishing(machine: Machine, folder: str) -> Callable[[Operation], None]:
    """Somebody removes the empty target folder right before the first rename into it."""

    def fault(operation: Operation) -> None:
        if operation.kind == "rename" and operation.path.startswith(folder + "/"):
            machine.faults.clear()
            machine.rmdir(folder)

    return fault


def steps_of(machine: Machine, folders: Sequence[str]) -> list[FsRenameCommitStep]:
    """A durable staged file for each folder, and the steps that publish them."""
    for root in (STAGING, OUTPUT):
        machine.mkdir(root)
    for place, _ in enumerate(folders):
        machine.put(f"{STAGING}/{place}", b"data%d" % place)
    machine.syncfs("/")
    context = StepContext(SimulatedFileSystem(machine), STAGING, OUTPUT)
    return [FsRenameCommitStep(context, str(place), f"{folder}/f") for place, folder in enumerate(folders)]


def on_every_power_loss(machine: Machine, look: Callable[[SimulatedPosix, str], None]) -> None:
    """From now on, before every call that changes something: shows what a power loss there may leave."""
    inside = machine.gate
    assert inside is not None

    def gate(operation: Operation) -> None:
        for after in machine.after_power_loss(random.Random(1), 7, 8):
            look(after, f"{operation.kind} {operation.path}")
        inside(operation)

    machine.gate = gate


def lost_steps(steps: Sequence[FsRenameCommitStep]) -> tuple[Callable[[SimulatedPosix, str], None], list[str]]:
    """Notes where a power loss would leave a file neither at its source nor at its target."""
    lost: list[str] = []

    def look(after: SimulatedPosix, where: str) -> None:
        context = StepContext(SimulatedFileSystem(after), STAGING, OUTPUT)
        answers = [FsRenameCommitStep.of(context, step.file).verify() for step in steps]
        lost.extend(where for answer in answers if isinstance(answer, Lost))

    return look, lost


@pytest.mark.parametrize("kind", [Machine, LinkMachine])
@pytest.mark.parametrize("died_at", range(14))
def test_no_power_loss_takes_a_file_that_is_published_whatever_a_dead_twin_had_done(
    kind: type[Machine], died_at: int
) -> None:
    machine = kind()
    steps = steps_of(machine, ["a/b", "a/b/c"])
    machine.faults.append(dies_at(died_at))
    with suppress(Crashed):
        FsRenameCommitStep.execute_all(steps)
    machine.restart()
    look, lost = lost_steps(steps)
    on_every_power_loss(machine, look)
    assert FsRenameCommitStep.execute_all(steps) == [None, None]
    machine.rmdir(STAGING)  # one more look, and nothing is left there
    assert lost == []
    assert {path.rpartition("/")[0] for path in machine.paths(OUTPUT)} == {f"{OUTPUT}/a/b", f"{OUTPUT}/a/b/c"}


def test_nothing_is_removed_through_a_link_that_leads_out_of_the_root(tmp_path: Path) -> None:
    for name in ("staging", "output", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "staging/f").write_bytes(b"data")
    step = FsRenameCommitStep(
        StepContext(LocalFileSystem(), str(tmp_path / "staging"), str(tmp_path / "output")), "f", "a/f"
    )
    (tmp_path / "elsewhere/f").write_bytes(b"data")
    (tmp_path / "output/a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigurationError):
        step.undo()
    assert (tmp_path / "elsewhere/f").read_bytes() == b"data"


def test_a_target_folder_that_vanishes_is_made_again_and_no_power_loss_takes_the_file_with_it() -> None:
    machine = Machine()
    steps = steps_of(machine, ["a/b"])
    machine.faults.append(vanishing(machine, f"{OUTPUT}/a/b"))
    look, lost = lost_steps(steps)
    on_every_power_loss(machine, look)
    steps[0].execute()
    machine.rmdir(STAGING)
    assert lost == []
    assert machine.read_file(f"{OUTPUT}/a/b/f") == b"data0"


def test_many_folders_at_once_are_durable_when_their_steps_are() -> None:
    machine = Machine()
    steps = steps_of(machine, [f"a{place}/b" for place in range(20)])
    assert FsRenameCommitStep.execute_all(steps) == [None] * 20
    after = next(machine.after_power_loss(random.Random(1), 0, 0))
    context = StepContext(SimulatedFileSystem(after), STAGING, OUTPUT)
    assert {FsRenameCommitStep.of(context, step.file).verify() for step in steps} == {Verdict.DONE}


# -- what a person does


def half_published_then_quarantined(machine: Machine) -> SealedSequence:
    """Dataset `a` with one file published and one staged, both durable."""
    WORLD.store(machine)
    with_folders(machine, "a").faults.append(dies("rename", OUTPUT + "/a/", nth=2))
    with suppress(Crashed):
        go(WORLD, machine, source(a=[2, 2]))
    machine.restart()
    sequence = quarantine(machine)
    machine.syncfs("/")
    assert len(published(machine)) == 1
    assert len(machine.paths(STAGING)) == 1
    return sequence


@pytest.mark.parametrize("first_person_died", [False, True])
def test_whenever_power_is_lost_while_a_sequence_is_abandoned_none_of_it_is_half_there_unnoticed(
    first_person_died: bool,
) -> None:
    machine = Machine()
    sequence = half_published_then_quarantined(machine)
    if first_person_died:
        machine.faults.append(dies("fsync_folder", "/store/log/bucket=", 2))  # the first is before the put
        with suppress(Crashed):
            by_hand.abandon(WORLD.store(machine), "a", "person")
        machine.restart()
        assert statuses(WORLD, machine)["a"] == "revoking"
    left: list[SimulatedPosix] = []
    on_every_power_loss(machine, lambda after, where: left.append(after))
    by_hand.abandon(WORLD.store(machine), "a", "person")
    machine.mkdir("/end")  # a last look
    ended = 0
    for after in left:
        store = WORLD.store(after)
        state = store.bucket_log(0).refresh().state_of("a")
        context = StepContext(store.fs, STAGING, OUTPUT)
        steps = [step for step in load_steps(sequence.steps, context) if isinstance(step, FsRenameCommitStep)]
        there = sum(store.fs.status(path) is not None for step in steps for path in (step.source, step.target))
        ended += state.sequence is None
        assert there == 2 or state.status is not DatasetStatus.QUARANTINED
        assert there == 0 or state.sequence is not None
        assert state.watermark is None
    assert ended > 0
    durable = next(machine.after_power_loss(random.Random(1), 0, 0))
    assert WORLD.store(durable).bucket_log(0).refresh().state_of("a").sequence is None
    check_recovery(machine, source(a=[2, 2]))


def test_what_a_person_retries_is_published_by_the_next_run_and_what_is_accepted_is_not_read_again() -> None:
    machine, data = Machine(), source(a=3, b=1)
    quarantined(machine, data)
    by_hand.retry(WORLD.store(machine), "a", "person")
    check_recovery(machine, data)
    machine = Machine()
    sequence = quarantined(machine, data)
    by_hand.accept(WORLD.store(machine), "a", "person")
    state = states(WORLD, machine)["a"]
    assert (state.status, state.watermark, state.accepted_epochs) == (
        DatasetStatus.IDLE,
        sequence.high,
        (sequence.epoch,),
    )
    assert go(WORLD, machine, data).totals.records_read == 0


def test_a_watermark_that_another_person_died_in_setting_is_durable_once_it_was_set_again() -> None:
    machine = Machine()
    assert go(WORLD, machine, source(a=3)).succeeded
    machine.syncfs("/")
    machine.faults.append(dies("fsync_folder", "/store/log/bucket=", 2))  # the first is before the put
    with suppress(Crashed):
        by_hand.set_watermark(WORLD.store(machine), "a", Watermark({"0": 1}), "one")
    machine.restart()
    by_hand.set_watermark(WORLD.store(machine), "a", Watermark({"0": 1}), "two")
    durable = next(machine.after_power_loss(random.Random(1), 0, 0))
    assert WORLD.watermarks(durable) == {"a": Watermark({"0": 1})}


def test_a_watermark_that_is_set_to_what_it_is_is_set_once() -> None:
    machine = Machine()
    assert go(WORLD, machine, source(a=3)).succeeded
    written = []

    def counted(operation: Operation) -> None:
        if operation.kind == "rename":
            written.append(operation.path)
            if len(written) > 20:
                raise Crashed

    machine.faults.append(counted)
    with suppress(Crashed):
        for _ in range(3):
            by_hand.set_watermark(WORLD.store(machine), "a", Watermark({"0": 1}), "person")
    assert len(written) <= 3


# -- stores that go, and tables that are forgotten


def own_store(machine: Machine) -> LogCommitStepStore:
    return LogCommitStepStore(
        SimulatedFileSystem(machine), "/job/stores", StepContext(SimulatedFileSystem(machine), STAGING, OUTPUT), 2
    )


def one_round(store: LogCommitStepStore, low: Watermark | None, high: int) -> None:
    """Moves the watermark of `d` by a sequence of its own."""
    store.create("s", "d")
    store.put("s", "d", HighWatermarkCommitStep("d", low, Watermark({"": high})))
    store.seal("s", "d")
    sequence = store.get_commit_sequence("s", "d")
    assert sequence is not None
    sequence.commit()
    assert store.watermark("s", "d") == Watermark({"": high})


def test_of_a_store_that_is_removed_nothing_is_left() -> None:
    machine = Machine()
    store = own_store(machine)
    one_round(store, None, 3)
    machine.put("/job/stores/s/.tmp-store.json-1", b"left by a process that died")
    assert store.remove("s")
    assert machine.scandir("/job/stores") == []
    one_round(own_store(machine), None, 1)


def test_a_store_whose_removal_was_killed_anywhere_is_whole_or_made_anew() -> None:
    for number in range(100):
        machine = Machine()
        one_round(own_store(machine), None, 3)
        store = own_store(machine)
        assert store.watermark("s", "d") == Watermark({"": 3})
        machine.faults.append(dies_at(number))
        try:
            store.remove("s")
        except Crashed:
            machine.restart()
        else:
            break
        again = own_store(machine)
        if again.exists("s"):
            one_round(again, Watermark({"": 3}), 4)
        else:
            one_round(again, None, 1)
    assert number > 5


def test_whenever_power_is_lost_in_a_removal_the_store_is_whole_or_the_next_one_knows_nothing_of_it() -> None:
    machine = Machine()
    store = own_store(machine)
    one_round(store, None, 1)
    machine.syncfs("/")
    wrong: list[str] = []

    def look(after: SimulatedPosix, where: str) -> None:
        found = own_store_at(after)
        whole = found.exists("s")
        found.create("s", "d")
        if found.watermark("s", "d") != (Watermark({"": 1}) if whole else None):
            wrong.append(where)

    on_every_power_loss(machine, look)
    assert store.remove("s")
    machine.mkdir("/end")  # a last look
    assert wrong == []


def dies_at(number: int) -> Callable[[Operation], None]:
    """The process dies before its call of that number that changes something, counted from 0."""
    left = [number]

    def fault(operation: Operation) -> None:
        if operation.kind not in ("read", "lstat", "scandir"):
            if left[0] == 0:
                raise Crashed
            left[0] -= 1

    return fault


def test_of_runs_long_past_nothing_is_kept_in_the_tables() -> None:
    machine = Machine()
    for number in range(1, KEPT_RUNS + 4):
        assert go(WORLD, machine, source(a=number, b=number)).succeeded
    for table in ("plans", "task_states"):
        kept = sorted(entry.name for entry in machine.scandir(f"{ROOTS.store}/{table}"))
        assert len(kept) <= KEPT_RUNS + 1, table
        assert len({path.split("/")[4] for path in machine.paths(f"{ROOTS.store}/{table}")}) == len(kept)


# -- fences and decisions, once more


JOB = World(buckets=1, job_level=True)


def held(machine: Machine) -> None:
    """A job-level run that sealed all of it, and died before its decision."""
    JOB.store(machine)
    machine.faults.append(dies("rename", "/log/job/", record=Decide, machine=machine))
    with suppress(Crashed):
        go(JOB, machine, source(a=2, b=1))
    machine.restart()
    assert set(statuses(JOB, machine).values()) == {"pending"}


def pending(machine: Machine) -> None:
    """A run that decided to publish, and died before it did; dataset `a` can't be published now."""
    JOB.store(machine)
    with_folders(machine, "a", "b").faults.append(dies("rename", OUTPUT + "/"))
    with suppress(Crashed):
        go(JOB, machine, source(a=2, b=1))
    machine.restart()
    machine.faults.append(fails(errno.EIO, "rename", OUTPUT + "/a/"))


@pytest.mark.parametrize("begin", [held, pending])
def test_a_recovery_that_is_overtaken_says_that_it_is_fenced_wherever_it_is(begin: Callable[[Machine], None]) -> None:
    fenced = 0
    for number in range(200):
        machine = Machine()
        begin(machine)
        settings = JOB.begin(machine, source(a=2, b=1))
        meeting = Meeting(machine, number, lambda machine=machine: fenced_anew(machine))  # type: ignore[misc]
        machine.faults.append(meeting)
        report = recover_partition(settings, 0)
        assert [reason.kind for reason in report.reasons if reason.kind == "AssertionError"] == [], number
        fenced += bool(report.fenced)
        if meeting.result is None:
            break
    assert fenced > 0


def test_asking_whether_output_works_leaves_nothing_there() -> None:
    machine = Machine()
    pending(machine)
    report = recover_partition(JOB.begin(machine, source(a=2, b=1)), 0)
    assert report.sequences_left + report.sequences_dropped > 0
    assert [path for path in machine.paths(OUTPUT) if "probe" in path] == []


def test_an_ingest_task_that_is_overtaken_by_a_run_that_dies_says_that_it_is_fenced_wherever_it_is() -> None:
    fenced = 0
    for number in range(200):
        machine = Machine()
        settings, _ = begin_ingest(WORLD, machine, source(a=2, b=1))
        meeting = Meeting(machine, number, lambda machine=machine: fenced_anew(machine))  # type: ignore[misc]
        machine.faults.append(meeting)
        fenced += bool(ingest_partition(settings, 0).fenced)
        if meeting.result is None:
            break
    assert fenced > 5
    machine.restart()
    check_recovery(machine, source(a=2, b=1))


def fenced_anew(machine: Machine) -> bool:
    """A newer run fences everything, and dies."""
    newer = JOB.begin(machine, source())
    fence_bucket(newer.store.bucket_log(0, newer.epoch), newer.epoch, newer.run_id)
    return True


def test_a_decision_whose_answer_was_lost_is_durable_before_anything_is_published() -> None:
    machine = Machine()
    JOB.store(machine)
    seen = {"decided": 0, "failed": 0, "published": 0}
    forgotten: list[str] = []

    def watch(operation: Operation) -> None:
        if isinstance(written(machine, operation), Decide):
            seen["decided"] += 1
        elif seen["decided"] and not seen["failed"] and operation.kind == "fsync_folder":
            seen["failed"] += 1
            raise OSError(errno.EIO, "the answer is lost", operation.path)
        elif operation.kind == "rename" and re.match(rf"{OUTPUT}/[ab]", operation.path):
            seen["published"] += 1
            for after in machine.after_power_loss(random.Random(1), 4, 8):
                log = JOB.store(after).job_log()
                if not log.refresh().decided_epochs:
                    forgotten.append(operation.path)

    machine.faults.append(watch)
    assert go(JOB, machine, source(a=2, b=1)).succeeded
    assert (seen["decided"], seen["failed"], seen["published"]) == (1, 1, 2)
    assert forgotten == []


def test_a_store_executes_nothing_that_another_process_sealed_and_a_power_loss_may_take_back() -> None:
    machine = Machine()
    for root in (STAGING, OUTPUT):
        machine.mkdir(root)
    machine.put(f"{STAGING}/f", b"data")
    machine.syncfs("/")
    old, new = own_store(machine), own_store(machine)
    old.create("s")
    new.create("s", "d")
    new.put("s", "d", FsRenameCommitStep(StepContext(SimulatedFileSystem(machine), STAGING, OUTPUT), "f", "a/f"))
    sealing: list[bool] = []

    def die(operation: Operation) -> None:
        if isinstance(written(machine, operation), Intent):
            sealing.append(True)
        elif sealing:
            raise Crashed

    machine.faults.append(die)
    with pytest.raises(Crashed):
        new.seal("s", "d")
    machine.restart()
    sequence = old.get_commit_sequence("s", "d")
    assert sequence is not None
    early: list[str] = []

    def look(after: SimulatedPosix, where: str) -> None:
        if dict(after.walk("/")).get(f"{OUTPUT}/a/f") and not own_store_at(after).exists("s", "d"):
            early.append(where)

    on_every_power_loss(machine, look)
    with suppress(FencedError):
        sequence.commit()
    assert published_by_steps(machine) == [f"{OUTPUT}/a/f"]
    assert early == []


def own_store_at(after: SimulatedPosix) -> LogCommitStepStore:
    fs = SimulatedFileSystem(after)
    return LogCommitStepStore(fs, "/job/stores", StepContext(fs, STAGING, OUTPUT), 2)


def published_by_steps(machine: Machine) -> list[str]:
    return sorted(machine.paths(OUTPUT))


class ApartMachine(LinkMachine):
    """Staging and output on two file systems, and a kernel that says so only where the new name is free."""

    def link(self, source: str, target: str) -> None:
        if source.startswith(STAGING) and target.startswith(OUTPUT) and target not in dict(self.walk("/")):
            raise OSError(errno.EXDEV, "another device", target)
        super().link(source, target)


def test_staging_and_output_on_two_file_systems_are_refused_when_the_store_is_made() -> None:
    with pytest.raises(ConfigurationError, match="must share one file system"):
        WORLD.store(ApartMachine())
    WORLD.store(LinkMachine())
