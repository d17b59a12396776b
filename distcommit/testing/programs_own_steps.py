"""Programs for the crash explorer: a user's own commit steps, in the user's own store and in a job's log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Self

import msgspec

from distcommit.model.errors import ConfigurationError, ConflictError, LostError, TransientError
from distcommit.model.log_records import DatasetStatus, Intent, Record, SealedSequence, StepBatch
from distcommit.model.steps import CommitSequence, CommitStep, StepContext
from distcommit.model.watermark import Watermark
from distcommit.protocol.fold import Fold
from distcommit.spark.recover import recover_partition
from distcommit.steps import registry
from distcommit.steps.registry import dump_steps, register
from distcommit.steps.rename import FsRenameCommitStep
from distcommit.steps.watermark import HighWatermarkCommitStep
from distcommit.stores import by_hand
from distcommit.stores.commit_step_store import LogCommitStepStore
from distcommit.testing.program_parts import ASIDE, SOURCE, Program, new_machine, put_file, require_refused
from distcommit.testing.simulated_posix import SimulatedPosix
from distcommit.testing.world import ROOTS, SimulatedFileSystem, World

_WORLD = World(max_attempts=1)
_BROKEN = f"{ROOTS.staging}.broken"


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
    machine = new_machine()
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
            _put_round(store, context, number, name)
            store.seal("job", "d")
            sequence = store.get_commit_sequence("job", "d")
        assert sequence is not None
        sequence.commit()


def _put_round(store: LogCommitStepStore, context: StepContext, number: int, name: str) -> None:
    low = None if number == 0 else Watermark({"": number})
    store.put("job", "d", FsRenameCommitStep(context, name, f"out/{name}"))
    store.put("job", "d", NoticeCommitStep(context, f"note-{name}"))
    store.put("job", "d", HighWatermarkCommitStep("d", low, Watermark({"": number + 1})))


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


def _half_sealed() -> SimulatedPosix:
    """The first round is sealed and not committed; another process sealed it and is gone."""
    machine = _own_steps_machine()
    store, context = _store_of(machine)
    store.create("job")
    _put_round(store, context, 0, "one")
    store.seal("job", "d")
    machine.syncfs("/")
    return machine


def _store_refusals(machine: SimulatedPosix) -> None:
    """What a store refuses, and what those see who only look."""
    looker, context = _store_of(machine)
    if looker.exists("no job") or looker.remove("no job") or not looker.exists("job", "d") or looker.exists("job", "x"):
        raise AssertionError("a process that only looks sees something else")
    if looker.watermark("job", "d") is not None or looker.get_commit_sequence("job", "x") is not None:
        raise AssertionError("something was published")
    store, _ = _store_of(machine)
    if store.create("job") or not store.create("job", "x") or store.create("job", "x") or store.create("job"):
        raise AssertionError("create tells the wrong thing")
    low, high = Watermark({"": 1}), Watermark({"": 2})
    two_moves = [HighWatermarkCommitStep("x", None, high), HighWatermarkCommitStep("y", low, high)]
    require_refused(
        (
            partial(store.put, "no job", "d", two_moves[0]),
            partial(store.seal, "job", "x"),
            partial(FsRenameCommitStep, context, "no such file", "out/x"),
            partial(FsRenameCommitStep, context, "one", "../out"),
            partial(register, type("Other", (NoticeCommitStep,), {})),
        ),
        ConfigurationError,
    )
    for move in two_moves:
        store.put("job", "x", move)
    require_refused([partial(store.seal, "job", "x")], ConfigurationError)
    if not store.remove("job", "x") or store.remove("job", "x"):
        raise AssertionError("remove tells the wrong thing")
    require_refused(
        (
            partial(store.put, "job", "d", two_moves[0]),
            partial(store.seal, "job", "d"),
            partial(store.remove, "job", "d"),
            partial(store.remove, "job"),
        ),
        ConflictError,
    )
    store.put("job", "x", NoticeCommitStep(context, "note-x"))
    _store_of(machine)[0].create("job")
    require_refused([partial(store.seal, "job", "x")], ConflictError)
    machine.rename_noreplace(f"{ROOTS.staging}/one", ASIDE)
    sequence = _store_of(machine)[0].get_commit_sequence("job", "d")
    if sequence is None:
        raise AssertionError("the pending sequence is gone")
    require_refused([sequence.commit, sequence.steps[0].execute], LostError)
    machine.rename_noreplace(ASIDE, f"{ROOTS.staging}/one")


def _put_back_and_commit(machine: SimulatedPosix) -> str:
    fs = SimulatedFileSystem(machine)
    if fs.status(f"{ROOTS.staging}/one") is None and fs.status(ASIDE) is not None:
        fs.rename(ASIDE, f"{ROOTS.staging}/one")
    return _own_steps_again(machine)


class _FileWatermarks:
    """A user's own store of watermarks: one numbered file for each."""

    def __init__(self, machine: SimulatedPosix) -> None:
        self._fs = SimulatedFileSystem(machine)

    def watermark(self, urn: str) -> Watermark | None:
        numbers = [entry.name for entry in self._fs.list_folder(ROOTS.output) if entry.name.isdecimal()]
        return Watermark({"": max(map(int, numbers))}) if numbers else None

    def compare_and_set(self, urn: str, low: Watermark | None, high: Watermark) -> bool:
        if self.watermark(urn) != low:
            return False
        self._fs.sync([ROOTS.output], ROOTS.output)
        return self._fs.put_if_absent(f"{ROOTS.output}/{high.positions['']}", b"")


def _move_own_watermarks(machine: SimulatedPosix) -> None:
    """Two sequences that move a watermark where the user keeps it; the second was committed by a twin."""
    store = _FileWatermarks(machine)
    for number in range(2):
        low = None if number == 0 else Watermark({"": number})
        move = HighWatermarkCommitStep("d", low, Watermark({"": number + 1}), store)
        CommitSequence("d", (move,), lambda: None).commit()
        CommitSequence("d", (move,), lambda: None).commit()
    move.execute()
    late = HighWatermarkCommitStep("d", Watermark({"": 1}), Watermark({"": 3}), store)
    require_refused([CommitSequence("d", (late,), lambda: None).commit], ConflictError)


def _own_watermarks_again(machine: SimulatedPosix) -> str:
    _move_own_watermarks(machine)
    found = _FileWatermarks(machine).watermark("d")
    return "" if found == Watermark({"": 2}) else f"the watermark is {found}"


@register
class BrokenCommitStep(NoticeCommitStep):
    """A user's step that fails in one of many ways for as long as a certain file is there."""

    type_name: ClassVar[str] = "testing-broken"

    def __init__(self, context: StepContext, name: str, way: str) -> None:
        super().__init__(context, name)
        self.way = way

    def verify(self) -> bool:
        self._fail("verify")
        return super().verify()

    def execute(self) -> None:
        self._fail("execute")
        super().execute()

    def to_row(self) -> list[Any]:
        return [self.name, self.way]

    def _fail(self, where: str) -> None:
        if self.way.startswith(where) and self.context.fs.status(_BROKEN) is not None:
            raise _WAYS[self.way]


_WAYS: dict[str, Exception] = {
    "verify by the system": OSError("the device is gone"),
    "verify by us": TransientError("not now"),
    "execute by the system": OSError("the device is gone"),
    "execute by itself": KeyError("no such key"),
    "execute by loss": LostError("it is lost", expected="it", found="nothing"),
}


def _sealed(batches: dict[str, tuple[StepBatch, ...]]) -> SimulatedPosix:
    """A job whose log has sequences of these steps, by dataset, sealed by a run that is gone."""
    machine = new_machine()
    settings = _WORLD.begin(machine, SOURCE)
    recover_partition(settings, 0)
    epoch = settings.epoch
    sequences = tuple(SealedSequence(urn, epoch, None, None, steps) for urn, steps in batches.items())

    def decide(fold: Fold) -> Record | None:
        return None if fold.pending() else Intent(epoch, sequences)

    settings.store.bucket_log(0, epoch).settle(decide)
    put_file(machine, _BROKEN, b"")
    machine.syncfs("/")
    return machine


def _failing() -> SimulatedPosix:
    context = StepContext(SimulatedFileSystem(SimulatedPosix()), ROOTS.staging, ROOTS.output)
    return _sealed({way: dump_steps([BrokenCommitStep(context, f"note-{way}", way)]) for way in ("well", *_WAYS)})


def _rows(*rows: object) -> bytes:
    return msgspec.msgpack.encode(rows)


def _unknown() -> SimulatedPosix:
    """Steps of a newer program, and steps that no program ever wrote."""
    back = ["back", [{"": 2}, ""], [{"": 1}, ""]]
    return _sealed(
        {
            "late type": (StepBatch("testing-late", 1, _rows(["note-late type"])),),
            "late version": (StepBatch(NoticeCommitStep.type_name, 2, _rows(["note-late version"])),),
            "corrupt": (StepBatch(NoticeCommitStep.type_name, 1, b"\xc1"),),
            "no rename": (StepBatch(FsRenameCommitStep.type_name, 1, _rows(["one", "two"])),),
            "goes back": (StepBatch(HighWatermarkCommitStep.type_name, 1, _rows(back)),),
            "unbound": dump_steps([HighWatermarkCommitStep("unbound", None, Watermark({"": 1}))]),
            "well": (StepBatch(NoticeCommitStep.type_name, 1, _rows(["note-well"])),),
        }
    )


def _replay(machine: SimulatedPosix) -> None:
    recover_partition(_WORLD.begin(machine, SOURCE), 0)


@contextmanager
def _newer_program() -> Iterator[None]:
    """As if the program that wrote the newer steps had come back."""
    registry._types["testing-late"] = NoticeCommitStep
    NoticeCommitStep.version = 2
    try:
        yield
    finally:
        del registry._types["testing-late"]
        NoticeCommitStep.version = 1


def _mend_and_replay(machine: SimulatedPosix) -> str:
    """The run leaves what it can't do and publishes the rest; people and a newer program do what is left."""
    store = _WORLD.store(machine)
    store.fs.delete(_BROKEN)
    _WORLD.run(machine, SOURCE)
    log = store.bucket_log(0)
    known = _WORLD.watermarks(machine)
    if set(known) != set(SOURCE.datasets):
        return f"the other datasets are at {known}"
    with _newer_program():
        for _ in range(3):  # where all that is left fails, it counts as an outage the first time
            for state in log.refresh().datasets.values():
                if state.status is DatasetStatus.QUARANTINED:
                    can_be_mended = state.dataset_urn in _WAYS
                    (by_hand.retry if can_be_mended else by_hand.accept)(store, state.dataset_urn, "person")
            _WORLD.run(machine, SOURCE)
    for state in log.refresh().datasets.values():
        note = f"{ROOTS.output}/note-{state.dataset_urn}"
        if state.status is not DatasetStatus.IDLE:
            return f"{state.dataset_urn} is {state.status}: {state.reason}"
        if state.dataset_urn not in SOURCE.datasets and not state.accepted_epochs and store.fs.status(note) is None:
            return f"no {note}"
    for entry in store.fs.list_folder(ROOTS.output):
        if not entry.is_folder:  # notes, and what a note's step left as it was killed: the user's, not the job's
            store.fs.delete(f"{ROOTS.output}/{entry.name}")
    return _WORLD.violation(machine, SOURCE, known)


OWN_STEPS = (
    Program("own-steps", _own_steps_machine, _commit_own_steps, _own_steps_again),
    Program("own-store-refusals", _half_sealed, _store_refusals, _put_back_and_commit),
    Program("own-watermarks", _own_steps_machine, _move_own_watermarks, _own_watermarks_again),
    Program("own-steps-fail", _failing, _replay, _mend_and_replay),
    Program("unknown-steps", _unknown, _replay, _mend_and_replay),
)
