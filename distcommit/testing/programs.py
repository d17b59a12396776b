"""Programs for the crash explorer beyond runs of the job: what people do by hand, own commit steps, the lock, damage.

Each has three parts: a machine as it is found, what is done on it (crashed at every operation), and what is done after
the crash, which must end with everything as it has to be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

from distcommit.model.errors import CorruptError, DistcommitError
from distcommit.model.log_records import DatasetState, DatasetStatus, StepBatch
from distcommit.model.ports import FileSystem
from distcommit.model.steps import CommitStep, StepContext
from distcommit.model.watermark import Watermark
from distcommit.steps.registry import load_steps, register
from distcommit.steps.rename import FsRenameCommitStep
from distcommit.steps.watermark import HighWatermarkCommitStep
from distcommit.stores import by_hand
from distcommit.stores.commit_step_store import LogCommitStepStore
from distcommit.stores.job_lock import JobLock
from distcommit.stores.job_store import open_store
from distcommit.stores.retention import KEPT_RUNS
from distcommit.testing.model_source import ModelDataset, ModelSource
from distcommit.testing.simulated_posix import Crashed, Operation, SimulatedPosix
from distcommit.testing.world import ROOTS, SimulatedClock, SimulatedFileSystem, World

SOURCE = ModelSource({"a": ModelDataset({"0": 2, "1": 1}), "b": ModelDataset({"0": 2})})
MORE = ModelSource({"a": ModelDataset({"0": 3, "1": 1}), "b": ModelDataset({"0": 2})})
_ASIDE = "/job/aside"


@dataclass(frozen=True, slots=True)
class Program:
    """`find` makes the machine, `act` is crashed, `recover` is done after it and returns what is wrong then."""

    name: str
    find: Callable[[], SimulatedPosix]
    act: Callable[[SimulatedPosix], None]
    recover: Callable[[SimulatedPosix], str]


def _new_machine() -> SimulatedPosix:
    machine = SimulatedPosix()
    machine.mkdir("/job")
    return machine


def _half_done(machine: SimulatedPosix, world: World, *, moved: int = 1) -> None:
    """A run that dies in its commit, with one file published and the others staged."""
    left = [moved]
    world.store(machine)  # which probes the output with renames of its own

    def gate(operation: Operation) -> None:
        if operation.kind == "rename" and operation.path.startswith(ROOTS.output):
            left[0] -= 1
            if left[0] < 0:
                raise Crashed

    machine.gate = gate
    try:
        world.run(machine, SOURCE)
    except Crashed:
        pass
    finally:
        machine.gate = None


def _staged(machine: SimulatedPosix) -> list[str]:
    return sorted(path for _, path, data in machine.files() if path.startswith(ROOTS.staging) and data is not None)


def _quarantined() -> SimulatedPosix:
    """A staged file of a sealed sequence is gone: the next run quarantines its dataset. The file lies aside."""
    machine, world = _new_machine(), World()
    _half_done(machine, world)
    machine.rename_noreplace(_staged(machine)[0], _ASIDE)
    world.run(machine, SOURCE)
    machine.syncfs("/")
    return machine


def _state(machine: SimulatedPosix) -> DatasetState:
    found = World().store(machine).bucket_log(0).refresh().datasets.values()
    return next((state for state in found if state.status is not DatasetStatus.IDLE), DatasetState(""))


def _run_and_look(machine: SimulatedPosix, world: World, source: ModelSource) -> str:
    before = world.watermarks(machine)
    world.run(machine, source)
    return world.violation(machine, source, before)


def _abandon(machine: SimulatedPosix) -> None:
    if urn := _state(machine).dataset_urn:
        by_hand.abandon(World().store(machine), urn, "person")


def _abandon_and_run(machine: SimulatedPosix) -> str:
    _abandon(machine)
    return _run_and_look(machine, World(), SOURCE)


def _mend_and_retry(machine: SimulatedPosix) -> None:
    state = _state(machine)
    if state.status is DatasetStatus.QUARANTINED:
        fs, store = SimulatedFileSystem(machine), World().store(machine)
        lost = next(
            (
                file.source
                for batch in (state.sequence.steps if state.sequence else ())
                for file in _renames(batch, store.fs)
                if fs.status(file.source) is None and fs.status(file.target) is None
            ),
            None,
        )
        if lost is not None:
            fs.rename(_ASIDE, lost)
            fs.sync([lost.rpartition("/")[0]], ROOTS.staging)
        by_hand.retry(store, state.dataset_urn, "person")


def _renames(batch: StepBatch, fs: FileSystem) -> list[FsRenameCommitStep]:
    steps = load_steps([batch], StepContext(fs, ROOTS.staging, ROOTS.output))
    return [step for step in steps if isinstance(step, FsRenameCommitStep)]


def _retry_and_run(machine: SimulatedPosix) -> str:
    _mend_and_retry(machine)
    return _run_and_look(machine, World(), SOURCE)


def _accept(machine: SimulatedPosix) -> None:
    if urn := _state(machine).dataset_urn:
        by_hand.accept(World().store(machine), urn, "person")


def _accept_and_run(machine: SimulatedPosix) -> str:
    _accept(machine)
    wrong = _run_and_look(machine, World(), SOURCE)
    accepted = [s for s in World().store(machine).bucket_log(0).refresh().datasets.values() if s.accepted_epochs]
    if len(accepted) != 1 or accepted[0].status is not DatasetStatus.IDLE:
        return f"accepted: {accepted}"
    only_a_gap = "duplicates=0" in wrong and "past_watermark=0" in wrong and "unreadable=[]" in wrong
    return "" if only_a_gap else wrong or "what was lost is not missing"


def _refusals(machine: SimulatedPosix) -> None:
    """What people may not do is refused, and changes nothing."""
    store = World().store(machine)
    urn = _state(machine).dataset_urn
    for refused in (
        partial(by_hand.retry, store, "b", "person"),
        partial(by_hand.accept, store, "b", "person"),
        partial(by_hand.abandon, store, "b", "person"),
        partial(by_hand.set_watermark, store, urn, None, "person"),
        partial(open_store, SimulatedFileSystem(machine), ROOTS, "another job", create=False),
        partial(open_store, SimulatedFileSystem(machine), ROOTS, "job", 7, create=True),
    ):
        try:
            refused()
        except DistcommitError:
            continue
        raise AssertionError("not refused")


@register
class NoticeCommitStep(CommitStep):
    """A step as a user writes it: a note in a folder, made by put-if-absent. No batch forms of its own."""

    type_name: ClassVar[str] = "testing-notice"

    def __init__(self, context: StepContext, name: str) -> None:
        self.context, self.name = context, name

    def verify(self) -> bool:
        return self.context.fs.status(self._path) is not None

    def execute(self) -> None:
        self.context.fs.put_if_absent(self._path, b"note")

    def make_durable(self) -> None:
        self.context.fs.sync([self.context.output_root], self.context.output_root)

    def to_row(self) -> list[Any]:
        return [self.name]

    @classmethod
    def from_row(cls, row: list[Any], version: int, context: StepContext) -> Self:
        return cls(context, *row)

    @property
    def _path(self) -> str:
        return f"{self.context.output_root}/{self.name}"


def _own_steps_machine() -> SimulatedPosix:
    machine = _new_machine()
    for folder in (ROOTS.staging, ROOTS.output):
        machine.mkdir(folder)
    for name in ("one", "two"):
        writer = SimulatedFileSystem(machine).create(f"{ROOTS.staging}/{name}")
        writer.write(name.encode())
        writer.close_file(sync=True)
    machine.syncfs("/")
    return machine


def _store_of(machine: SimulatedPosix) -> tuple[LogCommitStepStore, StepContext]:
    context = StepContext(SimulatedFileSystem(machine), ROOTS.staging, ROOTS.output)
    return LogCommitStepStore(context.fs, "/job/stores", context, buckets=1), context


def _commit_own_steps(machine: SimulatedPosix) -> None:
    """Two rounds of one dataset: each moves a file, leaves a note and moves the watermark."""
    store, context = _store_of(machine)
    store.create("job")
    for number, name in enumerate(("one", "two")):
        reached = store.watermark("job", "d")
        if reached is not None and int(reached.positions[""]) > number:
            continue
        sequence = store.get_commit_sequence("job", "d")
        if sequence is None:
            low = None if number == 0 else Watermark({"": number})
            store.put("job", "d", FsRenameCommitStep(context, name, f"out/{name}"))
            store.put("job", "d", NoticeCommitStep(context, f"note-{name}"))
            store.put("job", "d", HighWatermarkCommitStep("d", low, Watermark({"": number + 1})))
            store.seal("job", "d")
            sequence = store.get_commit_sequence("job", "d")
        assert sequence is not None
        sequence.commit()


def _own_steps_again(machine: SimulatedPosix) -> str:
    _commit_own_steps(machine)
    store, context = _store_of(machine)
    fs = context.fs
    for name in ("one", "two"):
        if fs.status(f"{ROOTS.output}/out/{name}") is None:  # its old name may come back; here the user sweeps
            return f"{name} is not where it has to be"
        if fs.status(f"{ROOTS.output}/note-{name}") is None:
            return f"no note of {name}"
    if store.watermark("job", "d") != Watermark({"": 2}) or store.exists("job", "d"):
        return f"watermark {store.watermark('job', 'd')}, pending {store.exists('job', 'd')}"
    store.remove("job")
    return "the store is still there" if store.exists("job") else ""


def _hold_lock(machine: SimulatedPosix) -> None:
    clock = SimulatedClock()
    with JobLock(SimulatedFileSystem(machine), ROOTS.store, "r1", 30, clock):
        clock.sleep(1)


def _lock_again(machine: SimulatedPosix) -> str:
    clock = SimulatedClock()
    clock.sleep(100)  # past any lease
    with JobLock(SimulatedFileSystem(machine), ROOTS.store, "r2", 30, clock):
        return ""


def _many_runs() -> SimulatedPosix:
    machine, world = _new_machine(), World()
    for number in range(KEPT_RUNS + 2):
        world.run(machine, ModelSource({"a": ModelDataset({"0": number + 1})}))
    machine.syncfs("/")
    return machine


def _one_more_run(machine: SimulatedPosix) -> None:
    World().run(machine, ModelSource({"a": ModelDataset({"0": KEPT_RUNS + 3})}))


def _forgotten(machine: SimulatedPosix) -> str:
    wrong = _run_and_look(machine, World(), ModelSource({"a": ModelDataset({"0": KEPT_RUNS + 4})}))
    kept = len(SimulatedFileSystem(machine).list_folder(f"{ROOTS.store}/task_states"))
    return wrong or ("" if kept <= KEPT_RUNS + 2 else f"{kept} runs are kept")


_TWO_BUCKETS = World(buckets=2, partitions=2)
_DAMAGED = f"{ROOTS.store}/log/bucket=00001/000000000001.seg"


def _damaged() -> SimulatedPosix:
    """The first segment of one of two buckets is gone; it lies aside."""
    machine = _new_machine()
    _half_done(machine, _TWO_BUCKETS)
    machine.rename_noreplace(_DAMAGED, _ASIDE)
    machine.syncfs("/")
    return machine


def _run_damaged(machine: SimulatedPosix) -> None:
    result = _TWO_BUCKETS.run(machine, MORE)
    if result.succeeded:
        raise AssertionError("a run succeeds though a bucket can't be read")


def _mend_and_run(machine: SimulatedPosix) -> str:
    try:
        _TWO_BUCKETS.watermarks(machine)
    except CorruptError:
        machine.rename_noreplace(_ASIDE, _DAMAGED)
    return _run_and_look(machine, _TWO_BUCKETS, MORE)


PROGRAMS = {
    program.name: program
    for program in (
        Program("abandon", _quarantined, _abandon, _abandon_and_run),
        Program("retry", _quarantined, _mend_and_retry, _retry_and_run),
        Program("accept", _quarantined, _accept, _accept_and_run),
        Program("refusals", _quarantined, _refusals, _abandon_and_run),
        Program("own-steps", _own_steps_machine, _commit_own_steps, _own_steps_again),
        Program("lock", _new_machine, _hold_lock, _lock_again),
        Program("retention", _many_runs, _one_more_run, _forgotten),
        Program("damaged-bucket", _damaged, _run_damaged, _mend_and_run),
    )
}
