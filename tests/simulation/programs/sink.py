"""Programs for the crash explorer: whole runs of a job with a custom sink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal

import msgspec
import pyarrow as pa

from distcommit.core.dataset_urn import folder_of
from distcommit.core.errors import ConflictError, LostError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.interfaces.committer import (
    AlreadyCommitted,
    CommitOutcome,
    CommitRequest,
    Committed,
    CommitterContext,
    FailedForGood,
    RetryLater,
    SinkCommitter,
)
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.interfaces.sink import (
    BY_DATASET,
    AttemptIdentity,
    Origin,
    Origins,
    Prepared,
    SinkWriter,
    StagingArea,
)
from distcommit.core.records.log_records import DatasetStatus
from distcommit.core.support.decoding import from_json
from distcommit.core.watermark import Watermark
from distcommit.engine.driver.run import RunResult
from distcommit.fs.local_disk.posix_calls import PosixCalls
from distcommit.protocol.paths.shared_names import epoch_name
from distcommit.protocol.paths.temporary_and_probes import is_temporary
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.steps.step_registry import load_steps
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import SOURCE, Program, new_machine, require_refused, unsettled
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem, World, left_in_staging

_NOTES = f"{ROOTS.output}/notes"
_TAKEN_BACK = b"taken back"
_Mood = Literal["", "never", "later", "silent", "closed", "odd infos", "taken", "down", "clinging"]
_MORE = ModelSource(
    {
        **SOURCE.datasets,
        "a": ModelDataset({"0": 4, "1": 1}),
        "c": ModelDataset({"0": 1}),
        "holes": ModelDataset({"0": 2}, holes={"0": frozenset({0, 1})}),
    }
)


@dataclass(frozen=True, slots=True)
class NoteSink(CommitterSink):
    """Sink of one note for each dataset and epoch, put if absent: both data and proof.

    `mood`: the sink's fault. It can "never" commit dataset a, or only "later". It is "silent" when queried, or "closed"
    to committers. Its writers return "odd infos". At a withdrawal, a note is "taken", or the target is "down". Its
    committer is "clinging" when it is closed. `together`: all datasets are one commit group.
    """

    name: ClassVar[str] = "testing-notes"
    fs: FileSystem
    mood: _Mood = ""
    together: bool = False

    @property
    def grouped_by(self) -> str:
        return "folder" if self.together else BY_DATASET

    def commit_group(self, dataset_urn: str) -> str:
        return _NOTES if self.together else dataset_urn

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        return _NoteWriter(self.fs, area.folder, self.mood)

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        if self.mood == "closed":
            raise ConnectionError("no committer here")
        self.fs.make_folders(_NOTES)
        return _NoteCommitter(self.fs, self.mood)


@dataclass(slots=True)
class _NoteWriter(SinkWriter):
    fs: FileSystem
    folder: str
    mood: _Mood
    values: list[str] = field(default_factory=list)

    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        self.values += batch["value"].to_pylist()

    def prepare_commit(self) -> Prepared:
        if not self.values:
            return Prepared()
        file = self.fs.create(f"{self.folder}/values")
        file.write(msgspec.json.encode(self.values))
        file.close_file(sync=False)
        return Prepared([f"{self.folder}/values"] if self.mood != "odd infos" else [{1: "key"}])

    def abort(self) -> None:
        pass


@dataclass(slots=True)
class _NoteCommitter(SinkCommitter):
    fs: FileSystem
    mood: _Mood

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        return [self._commit(request) for request in requests] if self.mood != "silent" else []

    def close(self) -> None:
        if self.mood == "clinging":
            raise ConnectionError("no answer to the good-bye")

    def withdraw(self, requests: Sequence[CommitRequest]) -> None:
        if self.mood == "down":
            raise ConnectionError("the target is down")
        if self.mood == "taken":
            raise ConflictError("a note that stands can't be taken back")
        for request in requests:
            note = _note(request)
            if not self.fs.put_if_absent(note, _TAKEN_BACK) and self.fs.read(note) != _TAKEN_BACK:
                raise ConflictError("a note that stands can't be taken back", dataset=request.dataset_urn)
            self.fs.sync([_NOTES], _NOTES)

    def _commit(self, request: CommitRequest) -> CommitOutcome:
        if request.dataset_urn == "a" and self.mood in ("never", "later"):
            return FailedForGood("this dataset is refused") if self.mood == "never" else RetryLater("not now")
        note = _note(request)
        try:
            stored = self.fs.read(note)
        except FileNotFoundError:
            values = [value for path in request.infos for value in msgspec.json.decode(self.fs.read(path))]
            if self.fs.put_if_absent(note, msgspec.json.encode(values)):
                return Committed()
            stored = self.fs.read(note)
        self.fs.sync([_NOTES], _NOTES)  # it may be of a crashed process
        return FailedForGood("it was taken back") if stored == _TAKEN_BACK else AlreadyCommitted()


def _note(request: CommitRequest) -> str:
    return f"{_NOTES}/{folder_of(request.dataset_urn)}-{epoch_name(request.epoch)}"


def run_with_sink(calls: PosixCalls, source: ModelSource, world: World, mood: _Mood = "") -> RunResult:
    """Run the job whose sink leaves notes once, with all datasets together if several partitions read them."""
    return world.run(calls, source, sink=NoteSink(SimulatedFileSystem(calls), mood, world.partitions > 1))


def sink_violation(calls: PosixCalls, source: ModelSource, world: World) -> str:
    """Return a violation after an undisturbed whole run; empty if each record is in the notes once."""
    return violation_of([value for note in notes(calls) for value in note], calls, source, world)


def notes(calls: PosixCalls) -> list[list[str]]:
    """Return the contents of the notes that were not revoked."""
    fs = SimulatedFileSystem(calls)
    return [
        from_json(data, list[str])
        for entry in fs.list_folder(_NOTES)
        if not is_temporary(entry.name) and (data := fs.read(f"{_NOTES}/{entry.name}")) != _TAKEN_BACK
    ]


def violation_of(visible: Sequence[str], calls: PosixCalls, source: ModelSource, world: World) -> str:
    """Return a violation of a target that shows these records."""
    actual = sorted(visible)
    expected = sorted(
        f"{urn}/{partition}/{offset}"
        for urn, dataset in source.datasets.items()
        for partition, count in dataset.partitions.items()
        for offset in range(count)
        if offset not in dataset.holes.get(partition, ())
    )
    if actual != expected:
        return f"noted are {actual}, expected {expected}"
    ends = {urn: Watermark(dict(dataset.partitions)) for urn, dataset in source.datasets.items()}
    if world.watermarks(calls) != ends:
        return f"watermarks are {world.watermarks(calls)}, expected {ends}"
    orphaned = left_in_staging(calls)
    return f"left behind in task output: {orphaned}" if orphaned else ""


def _committed(world: World) -> SimulatedPosix:
    machine = new_machine()
    run_with_sink(machine, SOURCE, world)
    machine.syncfs("/")
    return machine


def _run_more(world: World, machine: SimulatedPosix) -> None:
    run_with_sink(machine, _MORE, world)


def _run_again(world: World, machine: SimulatedPosix) -> str:
    result = run_with_sink(machine, _MORE, world)
    return sink_violation(machine, _MORE, world) or ("" if result.succeeded else f"it does not succeed: {result}")


def _refused() -> SimulatedPosix:
    machine = new_machine()
    run_with_sink(machine, SOURCE, World(), "never")
    machine.syncfs("/")
    return machine


def _abandon(machine: SimulatedPosix, mood: _Mood = "") -> None:
    state = unsettled(machine)
    if state.status in (DatasetStatus.QUARANTINED, DatasetStatus.REVOKING):
        sink = NoteSink(SimulatedFileSystem(machine), mood)
        operator_actions.abandon(World().store(machine), state.dataset_urn, "person", sink.committers)


def _abandon_at_last(machine: SimulatedPosix) -> None:
    """Abandon: the target first cannot revoke, then is down, then revokes."""
    require_refused([partial(_abandon, machine, "taken")], ConflictError)
    require_refused([partial(_abandon, machine, "down")])
    _abandon(machine)


def _execute_by_itself(machine: SimulatedPosix) -> None:
    """Require that a stored sequence is committed by its step alone, any number of times, once the sink allows it."""
    state = unsettled(machine)
    batches = state.sequence.steps if state.sequence is not None else ()
    moods: tuple[_Mood, ...] = ("never", "", "")
    for mood in moods:
        sink = NoteSink(SimulatedFileSystem(machine), mood)
        for step in load_steps(batches, StepContext(sink.fs, ROOTS.staging, ROOTS.output, sink.committers)):
            if mood == "never":
                require_refused([step.execute], LostError)
            else:
                step.execute()


def _retry_and_run(machine: SimulatedPosix) -> str:
    state = unsettled(machine)
    if state.status is DatasetStatus.QUARANTINED:
        operator_actions.retry(World().store(machine), state.dataset_urn, "person")
    return _run_again(World(), machine)


def _abandon_and_run(machine: SimulatedPosix) -> str:
    _abandon(machine)
    return _run_again(World(), machine)


def _in_all_moods(machine: SimulatedPosix) -> None:
    """Run with every fault of a sink, and once without a sink."""
    for mood in ("odd infos", "later", "silent", "closed", "clinging"):
        run_with_sink(machine, _MORE, World(), mood)
    World().run(machine, ModelSource({}))


SINK = (
    *(
        Program(name, partial(_committed, world), partial(_run_more, world), partial(_run_again, world))
        for name, world in (
            ("own-sink", World(buckets=2)),
            ("own-sink-held", World(job_level=True)),
            ("own-sink-together", World(buckets=2, partitions=2)),
        )
    ),
    Program("own-sink-by-itself", _refused, _execute_by_itself, _retry_and_run),
    Program("own-sink-abandoned", _refused, _abandon_at_last, _abandon_and_run),
    Program("own-sink-moods", partial(_committed, World()), _in_all_moods, partial(_run_again, World(max_attempts=9))),
)
