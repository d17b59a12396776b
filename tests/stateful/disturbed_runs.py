"""Disturbed runs of the job under test: process deaths, refused renames and repeated tasks; and the published files."""

from __future__ import annotations

import errno
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.interfaces.source import Source
from distcommit.core.records.log_records import DatasetState
from distcommit.core.records.sealed_sequences import SealedSequence
from distcommit.engine.driver.launch_interface import Result
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.engine.run_settings import RunSettings
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.sinks.files.footer import read_footer, read_records
from distcommit.sinks.files.sink import FileSink
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.step_registry import load_steps
from distcommit.stores.logs.fencing import begin_run
from distcommit.stores.state.job_store import JobStore
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from tests.models.histories import Crash, Run
from tests.models.job_model import Place
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedClock, World

ENDLESS = 1500
"""Mutating calls after which an event will never end."""
TASK_ATTEMPTS = 2


def begin(store: JobStore, source: Source, event: Run, number: int) -> RunSettings:
    """Begin a run as a job does. The run id follows from its number, so that a history can be replayed."""
    run_id = f"{number:06d}"
    return RunSettings(
        store=store,
        run_id=run_id,
        epoch=begin_run(store, run_id),
        partitions=2,
        flow=TaskFlow.straight(source, FileSink(compression="none")),
        policy=event.policy,
        job_level=event.job_level,
        min_interval_s=0,
        max_attempts=3,
        task_attempts=TASK_ATTEMPTS,
        clock=SimulatedClock(),
    )


def launch_twice(function: Any, settings: RunSettings, tasks: int, kind: type[Result]) -> list[Result]:
    """Run every ingest task twice, as after a retry or a lost speculative task."""
    results: list[Result] = []
    for _ in range(2 if function is ingest_partition else 1):
        results = [function(settings, task) for task in range(tasks)]
    return results


class Disturbance:
    """A disturbance that kills the process for good before the call that `crash` names, and refuses renames to blocked
    paths.
    """

    def __init__(self, crash: Crash | None, blocked: str = "") -> None:
        self._crash, self._blocked = crash, blocked
        self._left, self._calls = crash.nth if crash is not None else -1, 0
        self.dead = False

    def __call__(self, operation: Operation) -> None:
        self._calls += 1
        assert self._calls < ENDLESS, "the run does not end"
        crash = self._crash
        if crash is not None and (not crash.kind or crash.kind == operation.kind) and crash.path in operation.path:
            self._left -= 1
        if self.dead or self._left == 0:
            self.dead = True
            raise Crashed
        if self._blocked and operation.kind == "rename" and operation.path.startswith(self._blocked):
            raise OSError(errno.EACCES, "by the test", operation.path)


@dataclass
class Published:
    """The contents of the published files. Each file is read once, because none ever changes."""

    known: dict[str, tuple[str, int, Counter[Place]]] = field(default_factory=dict)

    def records(self, machine: SimulatedPosix, store: JobStore, never: AbstractSet[int]) -> dict[str, Counter[Place]]:
        """Return how often each record is published, by dataset. No file may have an epoch in `never`."""
        counts: dict[str, Counter[Place]] = {}
        for path, _ in machine.walk(ROOTS.output):
            if not path.endswith(".parquet"):
                continue
            if path not in self.known:
                footer, table = read_footer(store.fs, path), read_records(store.fs, path)
                assert footer is not None
                places = zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
                self.known[path] = (footer.dataset_urn, footer.epoch, Counter(places))
            urn, epoch, records = self.known[path]
            assert epoch not in never, f"{path} is published without a decision"
            counts.setdefault(urn, Counter()).update(records)
        return counts


class JobOnMachine:
    """A job's store on a simulated machine that may die. `_past` has its runs whose tasks may still execute."""

    def __init__(self, buckets: int) -> None:
        self.world = World(buckets=buckets, partitions=2)
        self.machine = SimulatedPosix()
        self.machine.mkdir("/job")
        self._past: list[RunSettings] = []
        self._decided: set[int] = set()

    def store(self) -> JobStore:
        return self.world.store(self.machine)

    def states(self) -> dict[str, DatasetState]:
        """Return the state of each dataset by the logs."""
        store = self.store()
        self._decided |= store.job_log().refresh().decided_epochs
        logs = [store.bucket_log(bucket).refresh() for bucket in range(store.buckets)]
        return {urn: state for fold in logs for urn, state in fold.datasets.items()}

    def _steps(self, sequence: SealedSequence) -> Iterator[FsRenameCommitStep]:
        context = StepContext(self.store().fs, ROOTS.staging, ROOTS.output)
        for step in load_steps(sequence.steps, context):
            assert isinstance(step, FsRenameCommitStep)
            yield step

    @contextmanager
    def _gated(self, crash: Crash | None, blocked: str = "") -> Iterator[Callable[[], bool]]:
        gate = Disturbance(crash, blocked)
        self.machine.gate = gate
        try:
            with suppress(Crashed):
                yield lambda: gate.dead
        finally:
            self.machine.gate = None

    def _restart(self, crash: Crash | None) -> None:
        if crash is None or not crash.power_loss:
            self.machine = self.machine.after_kill()
            return
        survivors = self.machine.after_power_loss(random.Random(crash.power_loss), 2, 3)
        self.machine = list(itertools.islice(survivors, crash.power_loss))[-1]
        self._past.clear()
