"""Machines for whole runs in one process: a recorded, fault-injected POSIX file system in memory, a clock that never
waits, and faulty sources.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pyarrow as pa

from distcommit.app.auditing.audit import AuditResult, audit_store
from distcommit.core.interfaces.file_system import FileStatus, FolderEntry
from distcommit.core.interfaces.source import Extraction, Extractor, Planned, SourceState
from distcommit.core.records.log_records import DatasetState, Record
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import WorkUnit
from distcommit.engine.committing.recover import recover_partition
from distcommit.engine.driver.launch_interface import Result
from distcommit.engine.driver.run import RunResult, run
from distcommit.engine.driver.run_recorder import recorded_run
from distcommit.engine.driver.task_reports import Report
from distcommit.engine.planning.plan_partition import build_manifest, plan_partition
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.engine.reading.task_plan import ingest_tasks
from distcommit.engine.run_settings import RunSettings
from distcommit.protocol.log_state import Fold
from distcommit.protocol.paths.shared_names import OWNERSHIP_FOLDER
from distcommit.stores.logs.fencing import end_run
from distcommit.stores.logs.segment_format import decode_segment
from distcommit.stores.state.run_plans import put_manifest
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import World

BUCKET_LOG = "/store/log/bucket="
OUTPUT, STAGING = "/job/output", "/job/staging"
Fault = Callable[[Operation], None]


class Machine(SimulatedPosix):
    """A file system that records every call, with the path of each file written or synced, and applies faults first.
    After a fault raised `Crashed`, no call has an effect until `restart`.
    """

    def __init__(self) -> None:
        super().__init__(self._enter)
        self.made: list[Operation] = []
        self.faults: list[Fault] = []
        self._dead = False
        self._paths: dict[str, str] = {}
        self.mkdir("/job")

    def restart(self) -> None:
        """Make the machine work again."""
        self._dead = False
        self.faults.clear()
        self.made.clear()

    def open_new(self, path: str) -> int:
        fd = super().open_new(path)
        self._paths[f"<{fd}>"] = path
        return fd

    def read_file(self, path: str) -> bytes:
        self._enter(Operation("read", path))
        return super().read_file(path)

    def lstat(self, path: str) -> FileStatus:
        self._enter(Operation("lstat", path))
        return super().lstat(path)

    def scandir(self, path: str) -> list[FolderEntry]:
        self._enter(Operation("scandir", path))
        return super().scandir(path)

    def paths(self, below: str) -> dict[str, bytes]:
        """Return all files below a folder with their bytes, without folder ownership files unless they are
        requested.
        """
        return {
            path: data
            for _, path, data in self.files()
            if data is not None and path.startswith(below + "/") and f"/{OWNERSHIP_FOLDER}/" not in path[len(below) :]
        }

    def put(self, path: str, data: bytes) -> None:
        """Put a file there as a foreign process would: replace it, create its folders, meet no fault."""
        quiet = self._quietly()
        folder = ""
        for part in path.strip("/").split("/")[:-1]:
            folder += f"/{part}"
            if all(existing != folder for existing, _ in self.walk("/")):
                super().mkdir(folder)
        if path in self.paths(os.path.dirname(path)):
            super().unlink(path)
        fd = super().open_new(path)
        super().write(fd, data)
        super().close(fd)
        self.faults = quiet

    def remove(self, path: str) -> None:
        """Remove a file as a foreign process would."""
        quiet = self._quietly()
        super().unlink(path)
        self.faults = quiet

    def _quietly(self) -> list[Fault]:
        quiet, self.faults = self.faults, []
        return quiet

    def _enter(self, operation: Operation) -> None:
        if self._dead:
            raise Crashed
        operation = Operation(operation.kind, self._paths.get(operation.path, operation.path))
        self.made.append(operation)
        try:
            for fault in list(self.faults):
                fault(operation)
        except Crashed:
            self._dead = True
            raise


class LinkMachine(Machine):
    """A machine of an old kernel or NFS, whose renames always replace."""

    def rename_noreplace(self, source: str, target: str) -> None:
        raise OSError(errno.ENOSYS, "not there", target)


def with_folders(machine: Machine, *urns: str) -> Machine:
    """Create the output folders of these datasets, as after an earlier run, so that files are published one by one."""
    for urn in urns:
        machine.put(f"{OUTPUT}/{urn}/x", b"")
        machine.remove(f"{OUTPUT}/{urn}/x")
    machine.syncfs("/")
    return machine


def _concerns(path: str, part: str) -> bool:
    """Return whether a fault at `part` applies to a path. A job's own bookkeeping files match only where the fault
    names them.
    """
    return part in path and (OWNERSHIP_FOLDER in part or f"/{OWNERSHIP_FOLDER}" not in path)


def fails(code: int, kind: str, part: str, *, times: int = 1_000_000, first: int = 1) -> Fault:
    """Build a fault that fails such calls on such a path, from the `first` one on, `times` times."""
    observed = 0

    def fault(operation: Operation) -> None:
        nonlocal observed
        if operation.kind == kind and _concerns(operation.path, part):
            observed += 1
            if first <= observed < first + times:
                raise OSError(code, os.strerror(code), operation.path)

    return fault


def dies(kind: str, part: str, nth: int = 1, record: type[Any] | None = None, machine: Machine | None = None) -> Fault:
    """Build a fault that kills the process before its nth such call on such a path (or before it publishes such a log
    record).
    """
    observed = 0

    def fault(operation: Operation) -> None:
        nonlocal observed
        if operation.kind == kind and _concerns(operation.path, part):
            if record is not None and machine is not None and not isinstance(written(machine, operation), record):
                return
            observed += 1
            if observed == nth:
                raise Crashed

    return fault


def written(machine: Machine, rename: Operation) -> Record | None:
    """Return the log record that this rename is about to publish, or None."""
    if rename.kind != "rename" or not rename.path.endswith(".seg"):
        return None
    folder, name = os.path.split(rename.path)
    data = next(d for p, d in reversed(machine.paths(folder).items()) if os.path.basename(p).startswith(f".tmp-{name}"))
    return decode_segment(data, rename.path).record


@dataclass
class Meeting:
    """A hook instead of a fault: before the mutating call of that number (from 0), another process acts without faults.
    `result` is the act's return value, None if the call never came.
    """

    machine: Machine
    number: int
    act: Callable[[], Any]
    result: Any = None

    def __call__(self, operation: Operation) -> None:
        if operation.kind in ("read", "lstat", "scandir"):
            return
        if self.number == 0:
            faults, self.machine.faults = self.machine.faults, []
            self.result = self.act()
            self.machine.faults = faults
        self.number -= 1


def dies_at(number: int) -> Callable[[Operation], None]:
    """Build a fault that kills the process before its mutating call of that number, counted from 0."""
    remaining = [number]

    def fault(operation: Operation) -> None:
        if operation.kind not in ("read", "lstat", "scandir"):
            if remaining[0] == 0:
                raise Crashed
            remaining[0] -= 1

    return fault


def on_every_power_loss(machine: Machine, look: Callable[[SimulatedPosix, str], None]) -> None:
    """Call a function with each state that a power loss may leave, before every mutating call from now on."""
    inside = machine.gate
    assert inside is not None

    def gate(operation: Operation) -> None:
        for after in machine.after_power_loss(random.Random(1), 7, 8):
            look(after, f"{operation.kind} {operation.path}")
        inside(operation)

    machine.gate = gate


class QuickClock:
    """A clock that advances only by sleeping and by `pass_s`."""

    def __init__(self, seconds: float = 1_000_000) -> None:
        self.seconds = seconds

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic_s(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def launch(
    function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
) -> list[Result]:
    """Launch tasks in this process as Spark would: results are encoded in transit."""
    results = [function(settings, task) for task in range(tasks)]
    return [msgspec.msgpack.decode(msgspec.msgpack.encode(result), type=kind) for result in results]


def go(world: World, machine: SimulatedPosix, source: ModelSource) -> RunResult:
    """Run the job once."""
    settings = world.begin(machine, source)
    with recorded_run(settings, "run", "somebody") as context:
        result = run(launch, settings, observer=context)
        end_run(settings.store, settings.epoch, clean=result.succeeded)
        return result


def begin_ingest(world: World, machine: SimulatedPosix, source: ModelSource) -> tuple[RunSettings, int]:
    """Run up to the published plan, and return the number of ingest tasks."""
    settings = world.begin(machine, source)
    for partition in range(settings.partitions):
        recover_partition(settings, partition)
    manifest = build_manifest(settings, [plan_partition(settings, p) for p in range(settings.partitions)])
    put_manifest(settings.store.fs, settings.store.roots.store, manifest)
    return settings, ingest_tasks(settings, manifest)


def ingest_all(settings: RunSettings, tasks: int) -> list[Report]:
    """Run all ingest tasks in order."""
    return [ingest_partition(settings, task) for task in range(tasks)]


def reading(settings: RunSettings, source: ModelSource) -> RunSettings:
    """Return the same run with executors that use another source."""
    return replace(settings, flow=replace(settings.flow, source=source))


def states(world: World, machine: SimulatedPosix) -> dict[str, DatasetState]:
    """Return the state of each dataset by the logs."""
    store = world.store(machine)
    return {
        urn: state
        for bucket in range(store.buckets)
        for urn, state in store.bucket_log(bucket).refresh().datasets.items()
    }


def statuses(world: World, machine: SimulatedPosix) -> dict[str, str]:
    """Return the status of each dataset."""
    return {urn: state.status.value for urn, state in sorted(states(world, machine).items())}


def audit(world: World, machine: SimulatedPosix) -> AuditResult:
    """Audit every published record."""
    return audit_store(world.store(machine), ModelSource.provenance, deep=True)


def published(machine: Machine) -> set[str]:
    """Return the paths of all published data files."""
    return {path for path in machine.paths(OUTPUT) if path.endswith(".parquet")}


def source(**partitions: int | Sequence[int]) -> ModelSource:
    """Build a source: datasets by name, each with a number of records in partition 0, or in several partitions."""
    return ModelSource(
        {
            urn: ModelDataset({str(place): n for place, n in enumerate([count] if isinstance(count, int) else count)})
            for urn, count in partitions.items()
        }
    )


NOTHING = ModelSource({})


@dataclass(frozen=True)
class OddSource(ModelSource):
    """A model source with an altered extractor."""

    extracting: Callable[[WorkUnit], None] = lambda unit: None
    highs: Callable[[WorkUnit, Watermark], Watermark] = lambda unit, high: high
    announcing: Callable[[], None] = lambda: None
    closing: Callable[[], None] = lambda: None
    opening: Callable[[], None] = lambda: None
    planning: Callable[[], Iterator[Any]] = lambda: iter(())

    def plan(self, owned: Any, states: Any) -> Iterator[Any]:
        yield from ModelSource.plan(self, owned, states)
        yield from self.planning()

    def open(self) -> Extractor:
        self.opening()
        return _OddExtractor(self, ModelSource.open(self))


@dataclass
class _OddExtractor(Extractor):
    source: OddSource
    inner: Extractor

    def announce(self, units: Sequence[WorkUnit]) -> None:
        self.source.announcing()

    def extract(self, unit: WorkUnit) -> Extraction:
        self.source.extracting(unit)
        return _OddExtraction(self.source, unit, self.inner.extract(unit))

    def close(self) -> None:
        self.source.closing()


@dataclass
class _OddExtraction(Extraction):
    source: OddSource
    unit: WorkUnit
    inner: Extraction

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self.inner)

    def actual_high(self) -> Watermark:
        return self.source.highs(self.unit, self.inner.actual_high())

    def bytes_read(self) -> int:
        return 0


@dataclass
class Once:
    """A hook that writes one record to a log, unless it was written before."""

    record: Record
    done: bool = field(default=False)

    def __call__(self, fold: Fold) -> Record | None:
        if self.done:
            return None
        self.done = True
        return self.record


class EagerSource(ModelSource):
    """A source that plans its datasets whatever their state."""

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        idle = {urn: msgspec.structs.replace(state, open=None) for urn, state in states.items()}
        return ModelSource.plan(self, owned, SourceState(idle))
