"""A traced run of the product in this process: each file system call, and the processor time between them, of the
driver and of each task."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from benchmarks.workloads.ingested import JOB, roots_of, run_settings
from benchmarks.workloads.requests import seam_of
from benchmarks.workloads.source import NumberedSource
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.engine.driver.run import run
from distcommit.engine.run_settings import RunSettings
from distcommit.sinks.files.sink import FileSink
from distcommit.stores.state.job_store import open_store

Result = TypeVar("Result", bound=msgspec.Struct)
_WRITES = ("put", "upload", "open", "mkdir", "make_folder", "rename", "link", "unlink", "rmdir", "delete")
_SYNCS = ("fsync", "fsync_folder", "syncfs")
FREE = ("close", "write", "fstat")
"""Calls on an open file, which need no metadata server."""
_FILE_A_RECORD = FileSink(compression="none", target_file_bytes=1)


@dataclass(frozen=True, slots=True)
class Load:
    """Size of a run.

    Attributes:
        datasets: with new records, each with an existing folder.
        files: of each.
        buckets: of the store.
        partitions: tasks that share them.
    """

    datasets: int
    files: int
    buckets: int
    partitions: int


@dataclass(slots=True)
class Trace:
    """Calls in their order, each with the processor seconds before it. `rest_s`: after the last one."""

    steps: list[tuple[float, str]] = field(default_factory=list)
    bytes_moved: int = 0
    rest_s: float = 0.0

    @property
    def calls(self) -> int:
        """Return the calls that a metadata server answers."""
        return len([kind for _, kind in self.steps if kind not in FREE])

    @property
    def writes(self) -> int:
        """Return the mutating ones of these."""
        return len([kind for _, kind in self.steps if kind.startswith(_WRITES)])

    @property
    def cpu_s(self) -> float:
        """Return the processor seconds, less those within calls."""
        return sum(cpu for cpu, _ in self.steps) + self.rest_s


@dataclass(slots=True)
class TracedRun:
    """`stages`: alternately the driver's work (one trace), and that of a job's tasks (one each)."""

    stages: list[list[Trace]]
    jobs: list[bool]

    @property
    def driver(self) -> list[Trace]:
        """Return the driver's traces."""
        return [trace for stage, job in zip(self.stages, self.jobs, strict=True) if not job for trace in stage]

    @property
    def tasks(self) -> list[Trace]:
        """Return all tasks' traces."""
        return [trace for stage, job in zip(self.stages, self.jobs, strict=True) if job for trace in stage]


class Tracer:
    """Passes calls on, and records them in the current trace.

    Syncs are recorded, and made only if `syncs`. With several threads the processor time is that of all of them.
    """

    def __init__(self, below: Any, *, syncs: bool) -> None:
        self._below, self._syncs, self._lock = below, syncs, threading.Lock()
        self.begin()

    def begin(self) -> Trace:
        """Begin a new trace."""
        self.trace, self._last = Trace(), time.process_time()
        return self.trace

    def end(self) -> None:
        """End the current trace."""
        self.trace.rest_s = time.process_time() - self._last

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._below, name)
        return self._noting(name, attribute) if callable(attribute) and not name.startswith("_") else attribute

    def _noting(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **named: Any) -> Any:
            with self._lock:
                self.trace.steps.append((max(0.0, time.process_time() - self._last), name))
                self.trace.bytes_moved += sum(map(_size, (*arguments, *named.values())))
                self._last = time.process_time()
            answer = None if name in _SYNCS and not self._syncs else call(*arguments, **named)
            with self._lock:
                self.trace.bytes_moved += _size(answer)
                self._last = time.process_time()
            return answer

        return noted


class _TracedLaunch:
    """Runs executor functions one after the other, each in a trace of its own."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self.run = TracedRun([[tracer.begin()]], [False])

    def __call__(
        self, function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
    ) -> list[Result]:
        self._tracer.end()
        results, traces = list[Result](), list[Trace]()
        for task in range(tasks):
            traces.append(self._tracer.begin())
            results.append(function(settings, task))
            self._tracer.end()
        self.run.stages += [traces, [self._tracer.begin()]]
        self.run.jobs += [True, False]
        return results


class WrongRunError(Exception):
    """A traced run did not commit its datasets."""


def traced_run(fs: FileSystem, root: str, load: Load, *, syncs: bool = True) -> TracedRun:
    """Trace the second of two runs over as many datasets, so that their folders exist.

    Args:
        fs: the file system, whose requests are traced from now on.
        root: an empty folder of it.
        load: the size.
        syncs: False to record syncs without waiting for them.

    Raises:
        WrongRunError: if it did not commit all of them.
    """
    store = open_store(fs, roots_of(root), JOB, load.buckets, create=True)
    seam = seam_of(fs)
    tracer = Tracer(getattr(fs, seam), syncs=syncs)
    setattr(fs, seam, tracer)
    for round_number in (1, 2):
        source = NumberedSource(load.datasets, load.files, round_number)
        settings = run_settings(store, source, load.partitions, _FILE_A_RECORD)
        launch = _TracedLaunch(tracer)
        result = run(launch, settings)
        tracer.end()
        if (result.totals.datasets_published, result.succeeded) != (load.datasets, True):
            raise WrongRunError(f"{result.totals.datasets_published} of {load.datasets} published: {result.error}")
    return launch.run


def totals_of(traces: Sequence[Trace]) -> dict[str, float]:
    """Return sums over traces: `calls`, `writes`, `bytes` and `cpu_s`."""
    return {
        "calls": float(sum(trace.calls for trace in traces)),
        "writes": float(sum(trace.writes for trace in traces)),
        "bytes": float(sum(trace.bytes_moved for trace in traces)),
        "cpu_s": sum(trace.cpu_s for trace in traces),
    }


def _size(value: object) -> int:
    return len(value) if isinstance(value, bytes | bytearray) else value.nbytes if isinstance(value, memoryview) else 0
