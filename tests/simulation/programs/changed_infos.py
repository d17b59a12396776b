"""Programs for the crash explorer: commits in parts, whose infos the committer changes after each part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from distcommit.core.dataset_urn import folder_of
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.interfaces.committer import (
    AlreadyCommitted,
    CommitOutcome,
    CommitRequest,
    Committed,
    CommitterContext,
    RetryLater,
    SinkCommitter,
)
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, Origins, Prepared, SinkWriter, StagingArea
from distcommit.core.support.decoding import from_json
from distcommit.fs.local_disk.posix_calls import PosixCalls
from distcommit.protocol.paths.shared_names import epoch_name
from distcommit.protocol.paths.temporary_and_probes import is_temporary
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.steps.changed_steps import MAX_BYTES
from distcommit.steps.sink_step import SinkCommitStep
from distcommit.steps.step_registry import load_steps
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import SOURCE, Program, new_machine
from tests.simulation.programs.sink import violation_of
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem, World

_PARTS = f"{ROOTS.output}/parts"
_WHOLE = b"whole"
_MORE = ModelSource({**SOURCE.datasets, "a": ModelDataset({"0": 4, "1": 2}), "c": ModelDataset({"0": 1})})
_RUNS = 4
"""Runs that finish each commit: a run tries several times, and each try commits a part."""


@dataclass(frozen=True, slots=True)
class PartsSink(CommitterSink):
    """Sink whose committer publishes one record for each call, and marks it in the infos that it returns.

    `calls`: dataset, epoch and marks of each request that this process has received. `extra`: added to each changed
    info, for changes that cannot be recorded.
    """

    name: ClassVar[str] = "testing-parts"
    key: ClassVar[str] = "value"
    fs: FileSystem
    extra: Any = None
    calls: list[tuple[str, int, list[bool]]] = field(default_factory=list)

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        return _PartsWriter(self.key)

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        self.fs.make_folders(_PARTS)
        return _PartsCommitter(self)


@dataclass(slots=True)
class _PartsWriter(SinkWriter):
    key: str
    values: list[str] = field(default_factory=list)

    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        self.values += batch["value"].to_pylist()

    def prepare_commit(self) -> Prepared:
        return Prepared([{self.key: value, "is_done": False} for value in self.values])

    def abort(self) -> None:
        pass


@dataclass(slots=True)
class _PartsCommitter(SinkCommitter):
    sink: PartsSink

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        return [self._commit(request) for request in requests]

    def _commit(self, request: CommitRequest) -> CommitOutcome:
        fs, base = self.sink.fs, f"{_PARTS}/{folder_of(request.dataset_urn)}-{epoch_name(request.epoch)}"
        self.sink.calls.append((request.dataset_urn, request.epoch, [info["is_done"] for info in request.infos]))
        if fs.status(f"{base}-whole") is not None:
            fs.sync([_PARTS], _PARTS)
            return AlreadyCommitted()
        infos: list[dict[str, Any]] = [dict(info) for info in request.infos]
        due = next((index for index, info in enumerate(infos) if not info["is_done"]), len(infos))
        if due < len(infos):
            fs.put_if_absent(f"{base}-{due:04}", msgspec.json.encode(infos[due][self.sink.key]))
            fs.sync([_PARTS], _PARTS)
            infos[due]["is_done"] = True
        if not all(info["is_done"] for info in infos):
            return RetryLater("parts remain", [info | {"extra": self.sink.extra} for info in infos])
        fs.put_if_absent(f"{base}-whole", _WHOLE)
        fs.sync([_PARTS], _PARTS)
        return Committed()


class UpgradedSink(PartsSink):
    """The next version of the sink, whose infos have the key `text` in place of `value`."""

    infos_version: ClassVar[int] = 2
    key: ClassVar[str] = "text"

    def upgraded(self, info: Any, version: int) -> Any:
        if version != 1:
            raise ValueError(f"no infos of version {version} exist")
        return {"text": info["value"], "is_done": info["is_done"]}


def run_in_parts(
    world: World, calls: PosixCalls, source: ModelSource, version: type[PartsSink] = PartsSink
) -> tuple[bool, str]:
    """Run until everything is committed. Return whether it is, and a violation: a run that did not begin a commit with
    the infos that were durable."""
    succeeded = False
    for _ in range(_RUNS):
        sink = version(SimulatedFileSystem(calls))
        durable = _durable_marks(world, calls, sink)
        succeeded = world.run(calls, source, sink=sink).succeeded
        first: dict[tuple[str, int], list[bool]] = {}
        for urn, epoch, marks in sink.calls:
            first.setdefault((urn, epoch), marks)
        for name, marks in durable.items():
            if first.get(name, marks) != marks:
                return False, f"{name} was retried with {first[name]}, and {marks} was durable"
        if succeeded:
            break
    return succeeded, ""


def _durable_marks(world: World, calls: PosixCalls, sink: PartsSink) -> dict[tuple[str, int], list[bool]]:
    context = StepContext(sink.fs, ROOTS.staging, ROOTS.output, sink.committers)
    store = world.store(calls)
    return {
        (step.request.dataset_urn, step.request.epoch): [info["is_done"] for info in step.request.infos]
        for bucket in range(store.buckets)
        for state in store.bucket_log(bucket).refresh().datasets.values()
        if state.sequence is not None
        for step in load_steps(state.sequence.steps, context)
        if isinstance(step, SinkCommitStep)
    }


def parts_violation(calls: PosixCalls, source: ModelSource, world: World) -> str:
    """Return a violation after all commits: a record that is not at the target once."""
    fs = SimulatedFileSystem(calls)
    contents = [fs.read(f"{_PARTS}/{entry.name}") for entry in fs.list_folder(_PARTS) if not is_temporary(entry.name)]
    return violation_of([from_json(data, str) for data in contents if data != _WHOLE], calls, source, world)


def _lived(world: World) -> SimulatedPosix:
    machine = new_machine()
    run_in_parts(world, machine, SOURCE)
    machine.syncfs("/")
    return machine


def _run(world: World, extra: Any, machine: SimulatedPosix) -> None:
    for _ in range(2):
        world.run(machine, _MORE, sink=PartsSink(SimulatedFileSystem(machine), extra))


def _run_again(world: World, version: type[PartsSink], machine: SimulatedPosix) -> str:
    succeeded, violation = run_in_parts(world, machine, _MORE, version)
    return violation or parts_violation(machine, _MORE, world) or ("" if succeeded else "it does not succeed")


def _program(name: str, world: World, extra: Any = None, version: type[PartsSink] = PartsSink) -> Program:
    return Program(name, partial(_lived, world), partial(_run, world, extra), partial(_run_again, world, version))


_PLAIN, _NOT_PLAIN = World(buckets=2, max_attempts=9), {1: "a key that is not text"}
CHANGED_INFOS = (
    _program("changed-infos", _PLAIN),
    _program("changed-infos-held", World(job_level=True, max_attempts=9)),
    _program("changed-infos-not-plain", _PLAIN, _NOT_PLAIN),
    _program("changed-infos-too-large", _PLAIN, "x" * (MAX_BYTES + 1)),
    _program("changed-infos-upgraded", _PLAIN, _NOT_PLAIN, UpgradedSink),
)
