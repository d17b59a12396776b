"""Building blocks of casts for the interleaver: see `simulation.casts`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from msgspec import structs

from distcommit.app.auditing.audit import audit_store
from distcommit.core.errors import ConflictError
from distcommit.core.records.log_records import DatasetStatus
from distcommit.core.records.sealed_sequences import SequenceName
from distcommit.core.support.io_batching import run_alone
from distcommit.core.watermark import Watermark
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.committing.recover import recover_partition
from distcommit.engine.planning.plan_partition import build_manifest, plan_partition
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.engine.run_settings import RunSettings
from distcommit.fs.local_disk.posix_calls import PosixCalls
from distcommit.protocol import next_log_record
from distcommit.stores.logs.commit_log import CommitLog
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.job_store import JobStore
from distcommit.stores.state.run_plans import put_manifest
from distcommit.stores.state.task_states import record_ingest_ended
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import SimulatedClock, World

WORLD = World()
SOURCE = ModelSource({"a": ModelDataset({"0": 3, "1": 1}), "b": ModelDataset({"0": 2})})
LEASE_S = 30


class Scene:
    """State that the actors of one play share besides the machine: the time, and the assumed lock holders.

    Args:
        disturbed: whether errors strike, so that an actor may fail.
    """

    def __init__(self, *, disturbed: bool = False) -> None:
        self.clock = SimulatedClock()
        self.disturbed = disturbed
        self._held: dict[str, float] = {}

    def holds(self, run: str, since_s: float) -> None:
        """Record that a run has taken or renewed the lock.

        Raises:
            AssertionError: if another holder's lease has not expired.
        """
        self.lets_go(run)
        live = [other for other, since in self._held.items() if self.clock.monotonic_s() - since < LEASE_S]
        if live:
            raise AssertionError(f"{run} has the lock, and so have {live}")
        self._held[run] = since_s

    def lets_go(self, run: str) -> None:
        """Record that a run no longer relies on the lock."""
        self._held.pop(run, None)


Act = Callable[[JobStore, Scene], None]


def violation_of(cast: Cast, machine: SimulatedPosix, before: Mapping[str, Watermark]) -> str:
    """Return a violation after a play in which no operator has moved a watermark."""
    return cast.world.violation(machine, cast.source, before)


def violation_of_exact(cast: Cast, machine: SimulatedPosix, before: Mapping[str, Watermark]) -> str:
    """Return a violation for any flow and any publisher: watermarks are at the source's end, and the outcome of each
    position is known."""
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
        name: its name in histories.
        stage: prepares a machine and gives each actor's part.
        world, source: the job's configuration and input.
        violation: returns a violation after the actors and the last run, from the machine and the watermarks before.
        last_run: the run after all actors have ended; returns whether it succeeded.
        blind: actors that no error strikes: they fail where they cannot read.
        opens: how actors open the store.
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
        """Return the job's store on an actor's view of the machine."""
        return self.opens(self, calls)


def new_run(machine: SimulatedPosix, world: World = WORLD, source: ModelSource = SOURCE) -> RunSettings:
    """Return a run that has fenced, recovered and planned, and is about to ingest each partition by one task."""
    return planned(world.begin(machine, source))


def planned(settings: RunSettings) -> RunSettings:
    """Recover and plan a run that has begun."""
    for partition in range(settings.partitions):
        recover_partition(settings, partition)
    return plan_all(settings)


def plan_all(settings: RunSettings) -> RunSettings:
    """Plan a run that has recovered."""
    manifest = build_manifest(
        settings, [plan_partition(settings, partition) for partition in range(settings.partitions)]
    )
    put_manifest(
        settings.store.fs, settings.store.roots.store, structs.replace(manifest, large_units=(), lent_ranges=())
    )
    return settings


def on(settings: RunSettings, store: JobStore) -> RunSettings:
    """Return the same run on an actor's own view of the machine."""
    return replace(settings, store=store)


def ingests(settings: RunSettings, *tasks: int) -> Act:
    """Return a part that attempts these ingest tasks in turn, or all of them if none is named."""

    def act(store: JobStore, scene: Scene) -> None:
        for task in tasks or range(settings.partitions):
            ingest_partition(on(settings, store), task)

    return act


def drains(settings: RunSettings, *partitions: int) -> Act:
    """Return a part that drains: the driver has seen ingest end, while tasks of ingest may still be alive."""

    def act(store: JobStore, scene: Scene) -> None:
        record_ingest_ended(store.fs, store.roots.store, settings.run_id)
        for partition in partitions or range(settings.partitions):
            drain_partition(on(settings, store), partition)

    return act


def in_turn(*acts: Act) -> Act:
    """Return a part that runs these parts in turn."""

    def act(store: JobStore, scene: Scene) -> None:
        for item in acts:
            item(store, scene)

    return act


def finishes(settings: RunSettings) -> Act:
    """Return a part that runs a run's tasks from ingest to drain, however late."""
    return in_turn(ingests(settings), drains(settings))


def runs(world: World = WORLD, source: ModelSource = SOURCE, *, beside_people: bool = False) -> Act:
    """Return a part that makes a whole run.

    If no other run fences it and no error strikes, it must succeed, unless an operator may have quarantined a dataset.
    """

    def act(store: JobStore, scene: Scene) -> None:
        result = world.run(store.fs._calls, source)  # type: ignore[attr-defined]
        if not (result.succeeded or scene.disturbed or beside_people):
            raise AssertionError(f"an unfenced run does not succeed: {result}")

    return act


def reprocesses(world: World, source: ModelSource) -> Act:
    """Return a part that reprocesses all errors.

    If no other run fences it and no error strikes, it must succeed.
    """

    def act(store: JobStore, scene: Scene) -> None:
        result = world.reprocess(store.fs._calls, source, "")  # type: ignore[attr-defined]
        if not (result.succeeded or scene.disturbed):
            raise AssertionError(f"errors cannot be reprocessed: {result}")

    return act


def quarantine(log: CommitLog, name: SequenceName) -> None:
    """Quarantine a pending sequence, by a log of its run's epoch."""
    run_alone(
        log.settle(partial(next_log_record.fail, epoch=log.epoch, name=name, reason="by the test", for_good=True))
    )


def let_go(store: JobStore) -> None:
    """Abandon all quarantined sequences and those that are being abandoned."""
    for bucket in range(store.buckets):
        for state in store.bucket_log(bucket).refresh().datasets.values():
            if state.status in (DatasetStatus.QUARANTINED, DatasetStatus.REVOKING):
                with suppress(ConflictError):
                    operator_actions.abandon(store, state.dataset_urn, "person")
