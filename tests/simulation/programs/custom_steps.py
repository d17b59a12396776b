"""Programs for the crash explorer: custom commit steps in custom stores."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Self

import msgspec

from distcommit.core.errors import ConfigurationError, ConflictError, CorruptError, LostError
from distcommit.core.interfaces.commit_step import CommitStep, StepContext
from distcommit.core.watermark import Watermark, as_offset
from distcommit.protocol.paths.store import SEGMENT_SUFFIX
from distcommit.steps.commit_sequence import CommitSequence
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.step_registry import register
from distcommit.steps.watermark_step import HighWatermarkCommitStep
from distcommit.stores.logs.commit_step_store import LogCommitStepStore
from tests.simulation.programs.parts import ASIDE, Program, new_machine, put_file, require_refused
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem

_ROWS = f"{ROOTS.output}.rows"


@register
class NoticeCommitStep(CommitStep):
    """A custom step: a note in a folder, put if absent, without batch methods."""

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
    """Commit two rounds of one dataset: each moves a file, adds a note and moves the watermark."""
    store, context = _store_of(machine)
    store.create("job")
    for number, name in enumerate(("one", "two")):
        reached = store.watermark("job", "d")
        if reached is not None and as_offset(reached.positions[""]) > number:
            continue
        sequence = store.get_commit_sequence("job", "d")
        if sequence is None:
            _put_round(store, context, number, name)
            store.seal("job", "d")
            sequence = store.get_commit_sequence("job", "d")
        assert sequence is not None
        sequence.commit()
        sequence.steps[0].execute()  # a late twin


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
        if fs.status(f"{ROOTS.output}/out/{name}") is None:  # its old name may return; here the user sweeps
            return f"{name} is not where it has to be"
        if fs.status(f"{ROOTS.output}/note-{name}") is None:
            return f"no note of {name}"
    if store.watermark("job", "d") != Watermark({"": 2}) or store.exists("job", "d"):
        return f"watermark {store.watermark('job', 'd')}, pending {store.exists('job', 'd')}"
    if wrong := _restored(machine):
        return wrong
    store.remove("job")
    return "the store is still there" if store.exists("job") else ""


def _restored(machine: SimulatedPosix) -> str:
    """Require that a log which is unreadable when the store is opened is used once it is restored."""
    newest = max(path for _, path, _ in machine.files() if "/bucket=00000/" in path and path.endswith(SEGMENT_SUFFIX))
    data = machine.read_file(newest)
    store, context = _store_of(machine)
    _replace(machine, newest, data[: len(data) // 2])
    step = NoticeCommitStep(context, "note-late")
    require_refused([partial(store.put, "job", "late", step)], CorruptError)
    _replace(machine, newest, data)
    store.put("job", "late", step)
    store.remove("job", "late")
    return "an unsealed effect is there" if store.exists("job", "late") else ""


def _replace(machine: SimulatedPosix, path: str, data: bytes) -> None:
    machine.unlink(path)
    put_file(machine, path, data)


def _half_sealed() -> SimulatedPosix:
    """Seal the first round without committing it, by another process that is gone."""
    machine = _own_steps_machine()
    store, context = _store_of(machine)
    store.create("job")
    _put_round(store, context, 0, "one")
    store.seal("job", "d")
    machine.syncfs("/")
    return machine


def _store_refusals(machine: SimulatedPosix) -> None:
    """Require the store's refusals, and the results of read-only callers."""
    looker, context = _store_of(machine)
    if looker.exists("no job") or looker.remove("no job") or not looker.exists("job", "d") or looker.exists("job", "x"):
        raise AssertionError("a process that only looks sees something else")
    if looker.watermark("job", "d") is not None or looker.get_commit_sequence("job", "x") is not None:
        raise AssertionError("something was published")
    store, _ = _store_of(machine)
    if store.create("job") or not store.create("job", "x") or store.create("job", "x") or store.create("job"):
        raise AssertionError("create returns the wrong value")
    low, high = Watermark({"": 1}), Watermark({"": 2})
    two_moves = [HighWatermarkCommitStep("x", None, high), HighWatermarkCommitStep("y", low, high)]
    require_refused(
        (
            partial(store.put, "no job", "d", two_moves[0]),
            partial(store.seal, "job", "x"),
            partial(store.release, "job", "d", "somehow"),
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
        raise AssertionError("remove returns the wrong value")
    require_refused(
        (
            partial(store.put, "job", "d", two_moves[0]),
            partial(store.seal, "job", "d"),
            partial(store.remove, "job", "d"),
            partial(store.quarantine, "job", "x"),
            partial(store.release, "job", "d", "accept"),
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
    with suppress(ConflictError):  # it had not been reported as lost
        _store_of(machine)[0].release("job", "d", "retry")
    return _own_steps_again(machine)


def _keep_own_rows(machine: SimulatedPosix) -> None:
    """Use a custom store: a file of rows, put if absent before any of its steps is executed."""
    fs = SimulatedFileSystem(machine)
    context = StepContext(fs, ROOTS.staging, ROOTS.output)
    try:
        rows = msgspec.json.decode(fs.read(_ROWS))
    except FileNotFoundError:
        steps = [FsRenameCommitStep(context, name, f"{name}.published") for name in ("one", "two")]
        fs.put_if_absent(_ROWS, msgspec.json.encode([step.to_row() for step in steps]))
        rows = msgspec.json.decode(fs.read(_ROWS))
    loaded = tuple(FsRenameCommitStep.from_row(row, FsRenameCommitStep.version, context) for row in rows)
    CommitSequence("d", loaded, lambda: None).commit()
    for step in loaded:
        step.execute()


def _own_rows_again(machine: SimulatedPosix) -> str:
    _keep_own_rows(machine)
    published = {name: machine.read_file(f"{ROOTS.output}/{name}.published") for name in ("one", "two")}
    return "" if published == {"one": b"one", "two": b"two"} else f"published are {published}"


class _FileWatermarks:
    """A custom store of watermarks: one numbered file for each."""

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
    """Seal two sequences that move a watermark in a custom store; a twin commits the second."""
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
    watermark = _FileWatermarks(machine).watermark("d")
    return "" if watermark == Watermark({"": 2}) else f"the watermark is {watermark}"


_TOPIC_FILES = ("2015-12-09/1.avro", "2015-12-09/2.avro", "2015-12-10/1.avro")
_TOPIC_REACHED = Watermark({"0": 100, "1": 200})


def _topic_machine() -> SimulatedPosix:
    """Return the machine of the original design's example: a task has staged three files of a topic with two
    partitions."""
    machine = new_machine()
    fs = SimulatedFileSystem(machine)
    fs.make_folders(ROOTS.output)
    for name in _TOPIC_FILES:
        fs.make_folders(f"{ROOTS.staging}/MyTopic/{name.partition('/')[0]}")
        writer = fs.create(f"{ROOTS.staging}/MyTopic/{name}")
        writer.write(name.encode())
        writer.close_file(sync=True)
    machine.syncfs("/")
    return machine


def _commit_topic(machine: SimulatedPosix) -> None:
    """Commit five steps, two of them watermarks of a partition each, or the remaining ones."""
    store, context = _store_of(machine)
    store.create("job")
    if store.watermark("job", "MyTopic") is not None:
        return
    if not store.exists("job", "MyTopic"):
        for name in _TOPIC_FILES:
            store.put("job", "MyTopic", FsRenameCommitStep(context, f"MyTopic/{name}", f"MyTopic/{name}"))
        for partition, position in _TOPIC_REACHED.positions.items():
            store.put("job", "MyTopic", HighWatermarkCommitStep("MyTopic", None, Watermark({partition: position})))
        store.seal("job", "MyTopic")
    sequence = store.get_commit_sequence("job", "MyTopic")
    assert sequence is not None
    sequence.commit()


def _topic_again(machine: SimulatedPosix) -> str:
    store, context = _store_of(machine)
    before = store.watermark("job", "MyTopic") if store.exists("job") else None
    if before not in (None, _TOPIC_REACHED):
        return f"one partition has moved without the other: {before}"
    _commit_topic(machine)
    missing = [n for n in _TOPIC_FILES if context.fs.status(f"{ROOTS.output}/MyTopic/{n}") is None]
    if missing or store.watermark("job", "MyTopic") != _TOPIC_REACHED or store.exists("job", "MyTopic"):
        return f"watermark {store.watermark('job', 'MyTopic')}, not published: {missing}"
    return ""


CUSTOM_STEPS = (
    Program("original-example", _topic_machine, _commit_topic, _topic_again),
    Program("own-steps", _own_steps_machine, _commit_own_steps, _own_steps_again),
    Program("own-store-refusals", _half_sealed, _store_refusals, _put_back_and_commit),
    Program("own-rows", _own_steps_machine, _keep_own_rows, _own_rows_again),
    Program("own-watermarks", _own_steps_machine, _move_own_watermarks, _own_watermarks_again),
)
