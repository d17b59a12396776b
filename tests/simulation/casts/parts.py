"""What casts for the interleaver are made of: see `simulation.casts`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from msgspec import structs

from distcommit.app.auditing.audit import audit_store
from distcommit.core.errors import ConflictError
from distcommit.core.records.log_records import DatasetStatus, SequenceName
from distcommit.core.watermark import Watermark
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.committing.recover import recover_partition
from distcommit.engine.planning.planner import build_manifest, plan_partition
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.engine.settings import RunSettings
from distcommit.fs.posix_calls.posix import PosixCalls
from distcommit.protocol import next_record
from distcommit.stores.logs.log import CommitLog
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.job_store import JobStore
from distcommit.stores.state.plans import put_manifest
from distcommit.stores.state.task_states import record_ingest_ended
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import SimulatedClock, World

WORLD = World()
SOURCE = ModelSource({"a": ModelDataset({"0": 3, "1": 1}), "b": ModelDataset({"0": 2})})
LEASE_S = 30


class Scene:
    """What the actors of one play share besides the machine: the time, and who believes to hold the lock since when.

    Args:
        disturbed: whether errors strike, so that an actor may fail to do what it came for.
    """

    def __init__(self, *, disturbed: bool = False) -> None:
        self.clock = SimulatedClock()
        self.disturbed = disturbed
        self._held: dict[str, float] = {}

    def holds(self, run: str, since_s: float) -> None:
        """A run has taken or renewed the lock.

        Raises:
            AssertionError: if another one's lease has not run out.
        """
        self.lets_go(run)
        live = [other for other, since in self._held.items() if self.clock.monotonic_s() - since < LEASE_S]
        if live:
            raise AssertionError(f"{run} has the lock, and so have {live}")
        self._held[run] = since_s

    def lets_go(self, run: str) -> None:
        """A run does not count on the lock any more."""
        self._held.pop(run, None)


Act = Callable[[JobStore, Scene], None]


def violation_of(cast: Cast, machine: SimulatedPosix, before: Mapping[str, Watermark]) -> str:
    """What is wrong where nobody has moved a watermark by hand."""
    return cast.world.violation(machine, cast.source, before)


def violation_of_exact(cast: Cast, machine: SimulatedPosix, before: Mapping[str, Watermark]) -> str:
    """What is wrong whatever the flow makes of records, and whether or not files are replaced: watermarks are at the
    source's end, and of each position it is known what became of it."""
    after = cast.world.watermarks(machine)
    ends = {urn: dict(dataset.partitions) for urn, dataset in cast.source.datasets.items()}
    behind = any(not after[urn].covers(watermark) for urn, watermark in before.items())
    if behind or {urn: dict(watermark.positions) for urn, watermark in after.items()} != ends:
        return f"watermarks are {after}, were {before}, expected {ends}"
    audit = audit_store(cast.world.store(machine), cast.source.provenance, deep=True)
    return cast.world.violation_beside(machine) if audit.exact else f"not exact: {audit}"


def _run(cast: Cast, machine: SimulatedPosix) -> bool:
    return cast.world.run(machine, cast.source).succeeded


def _opened(cast: Cast, calls: PosixCalls) -> JobStore:
    return cast.world.store(calls)


@dataclass(frozen=True, slots=True)
class Cast:
    """A cast of actors.

    Attributes:
        name: what it is called in histories.
        stage: prepares a machine and gives each actor's part.
        world, source: how the job is configured, and what it reads.
        violation: what is wrong once the actors are gone and a run came, from the machine and the watermarks before.
        last_run: the run that comes once the actors are gone; whether it succeeded.
        blind: actors that no error strikes: they fail where they can't see.
        opens: how actors come to the store.
    """

    name: str
    stage: Callable[[SimulatedPosix], Mapping[str, Act]]
    violation: Callable[[Cast, SimulatedPosix, Mapping[str, Watermark]], str] = violation_of
    world: World = WORLD
    source: ModelSource = SOURCE
    last_run: Callable[[Cast, SimulatedPosix], bool] = _run
    blind: frozenset[str] = frozenset()
    opens: Callable[[Cast, PosixCalls], JobStore] = _opened

    def open(self, calls: PosixCalls) -> JobStore:
        """The job's store, as an actor has it."""
        return self.opens(self, calls)


def new_run(machine: SimulatedPosix, world: World = WORLD, source: ModelSource = SOURCE) -> RunSettings:
    """A run that has fenced, recovered and planned, and is about to ingest all of it, each partition's by one task."""
    return planned(world.begin(machine, source))


def planned(settings: RunSettings) -> RunSettings:
    """The same run, that has begun, once it has recovered and planned."""
    for partition in range(settings.partitions):
        recover_partition(settings, partition)
    return plan_all(settings)


def plan_all(settings: RunSettings) -> RunSettings:
    """The same run, that has recovered, once it has planned."""
    manifest = build_manifest(
        settings, [plan_partition(settings, partition) for partition in range(settings.partitions)]
    )
    put_manifest(settings.store.fs, settings.store.roots.store, structs.replace(manifest, large=(), lent=()))
    return settings


def on(settings: RunSettings, store: JobStore) -> RunSettings:
    """The same run, on an actor's own view of the machine."""
    return replace(settings, store=store)


def ingests(settings: RunSettings, *tasks: int) -> Act:
    """Attempts at these ingest tasks, one after the other; at all of them if none is named."""

    def act(store: JobStore, scene: Scene) -> None:
        for task in tasks or range(settings.partitions):
            ingest_partition(on(settings, store), task)

    return act


def drains(settings: RunSettings, *partitions: int) -> Act:
    """The driver has seen ingest end, and the drain begins, however many tasks of ingest are still alive."""

    def act(store: JobStore, scene: Scene) -> None:
        record_ingest_ended(store.fs, store.roots.store, settings.run_id)
        for partition in partitions or range(settings.partitions):
            drain_partition(on(settings, store), partition)

    return act


def in_turn(*acts: Act) -> Act:
    """One after the other, by one actor."""

    def act(store: JobStore, scene: Scene) -> None:
        for each in acts:
            each(store, scene)

    return act


def finishes(settings: RunSettings) -> Act:
    """A run's tasks from ingest to drain, however late they come."""
    return in_turn(ingests(settings), drains(settings))


def runs(world: World = WORLD, source: ModelSource = SOURCE, *, beside_people: bool = False) -> Act:
    """A whole run. If nobody fences it and no error strikes, it succeeds, whatever others do beside it; unless they are
    people, who may have a dataset left alone."""

    def act(store: JobStore, scene: Scene) -> None:
        result = world.run(store.fs._calls, source)  # type: ignore[attr-defined]
        if not (result.succeeded or scene.disturbed or beside_people):
            raise AssertionError(f"a run that nobody fenced does not succeed: {result}")

    return act


def reprocesses(world: World, source: ModelSource) -> Act:
    """All errors are fed again. If nobody fences that and no error strikes, it succeeds."""

    def act(store: JobStore, scene: Scene) -> None:
        result = world.reprocess(store.fs._calls, source, "")  # type: ignore[attr-defined]
        if not (result.succeeded or scene.disturbed):
            raise AssertionError(f"errors can't be fed again: {result}")

    return act


def quarantine(log: CommitLog, name: SequenceName) -> None:
    """Quarantines a pending sequence, by a log of its run's epoch."""
    log.settle(partial(next_record.fail, epoch=log.epoch, name=name, reason="by the test", for_good=True))


def let_go(store: JobStore) -> None:
    """A person abandons all that is quarantined, and what somebody has begun to abandon."""
    for bucket in range(store.buckets):
        for state in store.bucket_log(bucket).refresh().datasets.values():
            if state.status in (DatasetStatus.QUARANTINED, DatasetStatus.REVOKING):
                with suppress(ConflictError):
                    operator_actions.abandon(store, state.dataset_urn, "person")
