"""Programs for the crash explorer: runs with a sink whose writers leave data at the target before any commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import msgspec
import pyarrow as pa

from distcommit.core.dataset_urn import folder_of
from distcommit.core.errors import ConflictError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.interfaces.committer import (
    AbortedAttempt,
    AlreadyCommitted,
    CommitOutcome,
    CommitRequest,
    Committed,
    CommitterContext,
    FailedForGood,
    SinkCommitter,
)
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, Origins, Prepared, SinkWriter, StagingArea
from distcommit.core.records.log_records import DatasetStatus
from distcommit.fs.local_disk.posix_calls import PosixCalls
from distcommit.protocol.paths.shared_names import epoch_name
from distcommit.protocol.paths.temporary_and_probes import is_temporary
from distcommit.protocol.seal_decision import CommitPolicy
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.steps.step_registry import load_steps
from distcommit.stores.folders.folder_trees import delete_tree
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import SOURCE, Program, new_machine, unsettled
from tests.simulation.programs.sink import notes, violation_of
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem, World

NOTES, PREPARED = f"{ROOTS.output}/notes", f"{ROOTS.output}/prepared"
_TAKEN_BACK = b"taken back"
_MORE = ModelSource({**SOURCE.datasets, "a": ModelDataset({"0": 4, "1": 1}, units=2), "c": ModelDataset({"0": 1})})
_BESIDE = ModelSource({**SOURCE.datasets, "c": ModelDataset({"0": 1, "1": 1}, units=2, fails=frozenset({"1"}))})
_FAILING = ModelSource({**_MORE.datasets, "a": replace(_MORE.datasets["a"], bad={"0": 3})})


@dataclass(frozen=True, slots=True)
class PreparingSink(CommitterSink):
    """Sink whose attempts write to the target before any commit.

    Each attempt's beginning and records are named by its id. A note for each dataset and epoch makes these visible, as
    a table's metadata does for its files. `down`: nothing can be aborted. `refuses`: dataset a can never be
    committed.
    """

    name: ClassVar[str] = "testing-prepared"
    prepares_at_target: ClassVar[bool] = True
    fs: FileSystem
    down: bool = False
    refuses: bool = False

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        self.fs.make_folders(PREPARED)
        return _PreparingWriter(self.fs, attempt.attempt)

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        for folder in (NOTES, PREPARED):
            self.fs.make_folders(folder)
        return _PreparedCommitter(self)


@dataclass(frozen=True, slots=True)
class InDoubtSink(PreparingSink):
    """Sink with prepared transactions, as a database: a prepared one can be removed by its name alone."""

    name: ClassVar[str] = "testing-in-doubt"

    @property
    def leaves_in_doubt(self) -> bool:
        return True


@dataclass(slots=True)
class _PreparingWriter(SinkWriter):
    fs: FileSystem
    attempt: str
    values: list[str] = field(default_factory=list)

    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        if not self.values:
            self.fs.put_if_absent(f"{PREPARED}/{self.attempt}.begun", b"")
        self.values += batch["value"].to_pylist()

    def prepare_commit(self) -> Prepared:
        if not self.values:
            return Prepared()
        self.fs.put_if_absent(f"{PREPARED}/{self.attempt}", msgspec.json.encode(self.values))
        return Prepared([self.attempt])

    def abort(self) -> None:
        pass


@dataclass(slots=True)
class _PreparedCommitter(SinkCommitter):
    sink: PreparingSink

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        return [self._commit(request) for request in requests]

    def withdraw(self, requests: Sequence[CommitRequest]) -> None:
        """Leave the prepared data; it is deleted by `abort` once it may not be committed again."""
        fs = self.sink.fs
        for request in requests:
            note = _note(request)
            if not fs.put_if_absent(note, _TAKEN_BACK) and fs.read(note) != _TAKEN_BACK:
                raise ConflictError("a note that stands can't be taken back", dataset=request.dataset_urn)

    def abort(self, aborted_attempts: Sequence[AbortedAttempt]) -> None:
        if self.sink.down:
            raise ConnectionError("the target is down")
        self._take_away([attempt.attempt for attempt in aborted_attempts])

    def _commit(self, request: CommitRequest) -> CommitOutcome:
        if request.dataset_urn == "a" and self.sink.refuses:
            return FailedForGood("this dataset is refused")
        fs, note = self.sink.fs, _note(request)
        outcome: CommitOutcome = AlreadyCommitted()
        try:
            prepared = fs.read(note)
        except FileNotFoundError:
            if not all(fs.status(f"{PREPARED}/{attempt}") for attempt in request.infos):
                return FailedForGood("the prepared data is gone")
            prepared = msgspec.json.encode(request.infos)
            outcome = Committed() if fs.put_if_absent(note, prepared) else AlreadyCommitted()
        fs.sync([NOTES], NOTES)
        if prepared == _TAKEN_BACK:
            return FailedForGood("it was taken back")
        self._end(request.infos)
        return outcome

    def _take_away(self, attempts: Sequence[str]) -> None:
        for attempt in attempts:
            self.sink.fs.delete(f"{PREPARED}/{attempt}")
        self._end(attempts)

    def _end(self, attempts: Sequence[str]) -> None:
        for attempt in attempts:
            self.sink.fs.delete(f"{PREPARED}/{attempt}.begun")
        self.sink.fs.sync([PREPARED], PREPARED)


def _note(request: CommitRequest) -> str:
    return f"{NOTES}/{folder_of(request.dataset_urn)}-{epoch_name(request.epoch)}"


def _run(
    world: World,
    machine: PosixCalls,
    source: ModelSource = _MORE,
    kind: type[PreparingSink] = PreparingSink,
    *,
    down: bool = False,
    refuses: bool = False,
) -> bool:
    sink = kind(SimulatedFileSystem(machine), down, refuses)
    return world.run(machine, source, sink=sink).succeeded


def in_doubt(calls: PosixCalls) -> list[str]:
    """Return the data at the target that is neither visible nor removed."""
    names = (entry.name for entry in SimulatedFileSystem(calls).list_folder(PREPARED))
    visible = {attempt for note in notes(calls) for attempt in note}
    return sorted(name for name in names if not is_temporary(name) and name not in visible)


def _act(world: World, machine: SimulatedPosix) -> None:
    """Ingest with attempts that fail, in two tries each, and attempts that win."""
    _run(world, machine, _FAILING)
    _run(world, machine)


def _settle(world: World, machine: SimulatedPosix, kind: type[PreparingSink] = PreparingSink) -> str:
    """Run once with an unreachable target, so that nothing is aborted, and once with a reachable one; return what
    is left."""
    _run(world, machine, _FAILING, kind, down=True)
    if not _run(world, machine, _MORE, kind) or not _run(world, machine, _MORE, kind):
        return "it does not succeed"
    if in_doubt_data := in_doubt(machine):
        return f"in doubt at the target: {in_doubt_data}"
    fs = SimulatedFileSystem(machine)
    try:
        visible = [
            value
            for note in notes(machine)
            for attempt in note
            for value in msgspec.json.decode(fs.read(f"{PREPARED}/{attempt}"))
        ]
    except FileNotFoundError as error:
        return f"taken away, though it is visible: {error}"
    return violation_of(visible, machine, _MORE, world)


def _begun(world: World) -> SimulatedPosix:
    machine = new_machine()
    _run(world, machine, SOURCE)
    machine.syncfs("/")
    return machine


def _quarantined(kind: type[PreparingSink] = PreparingSink, source: ModelSource = _BESIDE) -> SimulatedPosix:
    machine = new_machine()
    _run(World(), machine, source, kind, refuses=True)
    machine.syncfs("/")
    return machine


def _leave_it_alone(machine: SimulatedPosix) -> None:
    """Run several times beside the quarantined sequence."""
    for _ in range(2):
        _run(World(), machine, _FAILING)


def _retry(machine: SimulatedPosix, kind: type[PreparingSink] = PreparingSink) -> str:
    """Require that a run leaves nothing in doubt but the quarantined sequence, and that a retry then commits this."""
    state = unsettled(machine)
    if state.status is DatasetStatus.QUARANTINED and state.sequence is not None:
        _run(World(), machine, _MORE, kind)
        committers = kind(SimulatedFileSystem(machine)).committers
        context = StepContext(SimulatedFileSystem(machine), ROOTS.staging, ROOTS.output, committers)
        steps = load_steps(state.sequence.steps, context)
        sealed = {attempt for step in steps for attempt in step.prepared_by}
        beside = [name for name in in_doubt(machine) if name.removesuffix(".begun") not in sealed]
        if beside:
            return f"in doubt beside a quarantined sequence: {beside}"
        operator_actions.retry(World().store(machine), state.dataset_urn, "person")
    return _settle(World(), machine, kind)


def _abandon(machine: SimulatedPosix) -> None:
    state = unsettled(machine)
    if state.status in (DatasetStatus.QUARANTINED, DatasetStatus.REVOKING):
        sink = PreparingSink(SimulatedFileSystem(machine))
        operator_actions.abandon(World().store(machine), state.dataset_urn, "person", sink.committers)


def _abandon_and_settle(machine: SimulatedPosix) -> str:
    _abandon(machine)
    return _settle(World(), machine)


def _unstaged() -> SimulatedPosix:
    """Delete all staged files of the quarantined sequence."""
    machine = _quarantined(InDoubtSink, SOURCE)
    sequence = unsettled(machine).sequence
    if sequence is None:
        raise AssertionError("nothing is quarantined")
    delete_tree(SimulatedFileSystem(machine), f"{ROOTS.staging}/{epoch_name(sequence.epoch)}")
    machine.syncfs("/")
    return machine


def _accept(machine: SimulatedPosix, *, down: bool = False) -> None:
    state = unsettled(machine)
    if state.status is DatasetStatus.QUARANTINED:
        sink = InDoubtSink(SimulatedFileSystem(machine), down)
        operator_actions.accept(World().store(machine), state.dataset_urn, "person", sink.committers)


def _accept_and_settle(machine: SimulatedPosix) -> str:
    """Accept the sequence, and require that nothing of it is in doubt after a run with a reachable target."""
    _accept(machine, down=True)
    for down in (True, False):
        if not _run(World(), machine, SOURCE, InDoubtSink, down=down):
            return "it does not succeed"
    state = World().store(machine).bucket_log(0).refresh().datasets["a"]
    if state.status is not DatasetStatus.IDLE or not state.accepted_epochs:
        return f"not accepted: {state}"
    in_doubt_data = in_doubt(machine)
    return f"in doubt at the target: {in_doubt_data}" if in_doubt_data else ""


def _retry_unless_accepted(machine: SimulatedPosix) -> str:
    """Retry a sequence whose attempts have markers because the command that was to accept it has died."""
    if unsettled(machine).status is DatasetStatus.QUARANTINED:
        return _retry(machine, InDoubtSink)
    return _accept_and_settle(machine)


ABORTED_ATTEMPTS = (
    *(
        Program(f"losers{name}", partial(_begun, world), partial(_act, world), partial(_settle, world))
        for name, world in (
            ("", World(buckets=2, task_attempts=2)),
            ("-held", World(job_level=True)),
            ("-beside-winners", World(policy=CommitPolicy.SUCCESSFUL, task_attempts=2)),
        )
    ),
    Program(
        "losers-repartitioned",
        partial(_begun, World(buckets=2, partitions=2)),
        partial(_act, World(buckets=2, partitions=2, task_attempts=2)),
        partial(_settle, World(buckets=2, partitions=3)),
    ),
    Program("losers-quarantined", _quarantined, _leave_it_alone, _retry),
    Program("losers-abandoned", _quarantined, _abandon, _abandon_and_settle),
    Program("losers-accepted", partial(_quarantined, InDoubtSink), _accept, _accept_and_settle),
    Program("losers-accepted-or-retried", partial(_quarantined, InDoubtSink), _accept, _retry_unless_accepted),
    Program("losers-accepted-away", _unstaged, partial(_accept, down=True), _accept_and_settle),
)
