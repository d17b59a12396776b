"""Casts of actors for the interleaver: the product's own code, each in a role of its own, on one store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from msgspec import structs

from distcommit.app.audit import audit_store
from distcommit.app.status import read_status
from distcommit.model.errors import ConflictError, LockHeldError
from distcommit.model.log_records import Done, Failed, Record, SequenceName, SetWatermark
from distcommit.model.watermark import Watermark
from distcommit.protocol.fold import Fold
from distcommit.protocol.paths import SEGMENT_SUFFIX
from distcommit.spark.ingest import drain_partition, ingest_partition
from distcommit.spark.planner import plan_partition, share_out
from distcommit.spark.progress import progress_folder, read_progress
from distcommit.spark.recover import recover_partition
from distcommit.spark.settings import RunSettings
from distcommit.stores import by_hand
from distcommit.stores.job_store import JobStore
from distcommit.stores.plans import publish_manifest
from distcommit.stores.segment import decode_segment
from distcommit.stores.task_states import record_ingest_ended
from distcommit.testing.model_source import ModelDataset, ModelSource
from distcommit.testing.program_parts import publishing_at_most, violation_after_set_back
from distcommit.testing.simulated_posix import Crashed, SimulatedPosix
from distcommit.testing.stepped_lock import SteppedLock
from distcommit.testing.world import SimulatedClock, World

WORLD = World()
_AT_LEAST_ONCE = World(at_least_once=True)
SOURCE = ModelSource({"a": ModelDataset({"0": 3, "1": 1}), "b": ModelDataset({"0": 2})})
_LEASE_S = 30
_SET = Watermark({"0": 1, "1": 0})


class Scene:
    """What the actors of one play share besides the machine: the time, and who believes to hold the lock since when."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self._held: dict[str, float] = {}

    def holds(self, run: str, since_s: float) -> None:
        """A run has taken or renewed the lock.

        Raises:
            AssertionError: if another one's lease has not run out.
        """
        self.lets_go(run)
        live = [other for other, since in self._held.items() if self.clock.monotonic_s() - since < _LEASE_S]
        if live:
            raise AssertionError(f"{run} has the lock, and so have {live}")
        self._held[run] = since_s

    def lets_go(self, run: str) -> None:
        """A run does not count on the lock any more."""
        self._held.pop(run, None)


Act = Callable[[JobStore, Scene], None]


def _violation(machine: SimulatedPosix, before: Mapping[str, Watermark]) -> str:
    return WORLD.violation(machine, SOURCE, before)


@dataclass(frozen=True, slots=True)
class Cast:
    """A cast of actors: `stage` prepares a machine and gives each actor's part. `violation` tells what is wrong once
    they are gone and a run came, from the machine and the watermarks before that run."""

    name: str
    stage: Callable[[SimulatedPosix], Mapping[str, Act]]
    violation: Callable[[SimulatedPosix, Mapping[str, Watermark]], str] = _violation


def _planned(machine: SimulatedPosix, world: World = WORLD) -> RunSettings:
    """A run that has fenced, recovered and planned, and is about to ingest all of it with one task."""
    settings = world.begin(machine, SOURCE)
    recover_partition(settings, 0)
    manifest = share_out(settings, [plan_partition(settings, 0)])
    publish_manifest(settings.store.fs, settings.store.roots.store, structs.replace(manifest, large=()))
    return settings


def _on(settings: RunSettings, store: JobStore) -> RunSettings:
    """The same run, on an actor's own view of the machine."""
    return RunSettings(**{name: getattr(settings, name) for name in RunSettings.__slots__} | {"store": store})


def _ingests(settings: RunSettings) -> Act:
    return lambda store, scene: cast(None, ingest_partition(_on(settings, store), 0))


def _finishes(settings: RunSettings) -> Act:
    """A run's tasks from ingest to drain, however late they come."""

    def act(store: JobStore, scene: Scene) -> None:
        mine = _on(settings, store)
        ingest_partition(mine, 0)
        record_ingest_ended(store.fs, store.roots.store, mine.run_id)
        drain_partition(mine, 0)

    return act


def _runs(store: JobStore, scene: Scene) -> None:
    WORLD.run(store.fs._calls, SOURCE)  # type: ignore[attr-defined]


def _keeps(store: JobStore, scene: Scene) -> None:
    """Checkpoints and truncates, again and again."""
    for _ in range(3):
        for log in (store.bucket_log(0), store.job_log()):
            log.checkpoint(at_least=1)


def _sets(store: JobStore, scene: Scene) -> None:
    """A person sets a dataset's watermark, if nothing of it was ever committed."""
    if store.bucket_log(0).refresh().state_of("a").watermark is None:
        by_hand.set_watermark(store, "a", _SET, "person")


def _twins(machine: SimulatedPosix) -> Mapping[str, Act]:
    settings = _planned(machine)
    return {"owner": _ingests(settings), "twin": _ingests(settings)}


def _violation_at_least_once(machine: SimulatedPosix, before: Mapping[str, Watermark]) -> str:
    return _AT_LEAST_ONCE.violation(machine, SOURCE, before)


def _twins_at_least_once(machine: SimulatedPosix) -> Mapping[str, Act]:
    settings = _planned(machine, _AT_LEAST_ONCE)
    return {"owner": _ingests(settings), "twin": _ingests(settings), "drain": _finishes(settings)}


def _zombie_at_least_once(machine: SimulatedPosix) -> Mapping[str, Act]:
    return {"zombie": _finishes(_planned(machine, _AT_LEAST_ONCE)), "run": _runs}


def _twins_and_keeper(machine: SimulatedPosix) -> Mapping[str, Act]:
    return {**_twins(machine), "keeper": _keeps}


def _zombie(machine: SimulatedPosix) -> Mapping[str, Act]:
    return {"zombie": _finishes(_planned(machine)), "run": _runs}


def _zombie_and_keeper(machine: SimulatedPosix) -> Mapping[str, Act]:
    return {**_zombie(machine), "keeper": _keeps}


def _two_drivers(machine: SimulatedPosix) -> Mapping[str, Act]:
    return {"one": _runs, "two": _runs}


def _person_sets(machine: SimulatedPosix) -> Mapping[str, Act]:
    return {"run": _finishes(_planned(machine)), "person": _sets}


def _violation_after_set(machine: SimulatedPosix, before: Mapping[str, Watermark]) -> str:
    """Dataset a begins where the person said. Who comes too late, between a look and the command, sets it back."""
    store = WORLD.store(machine)
    folder = store.bucket_log(0).folder
    paths = sorted(f"{folder}/{e.name}" for e in store.fs.list_folder(folder) if e.name.endswith(SEGMENT_SUFFIX))
    for path in paths:
        record = decode_segment(store.fs.read(path), path).record
        if isinstance(record, SetWatermark):
            break
        if isinstance(record, Done) and any(name.dataset_urn == "a" for name in record.sequences):
            was_set = store.bucket_log(0).refresh().state_of("a").origin == _SET.positions
            return violation_after_set_back(machine, WORLD, SOURCE, 3) if was_set else _violation(machine, before)
    return WORLD.violation(machine, SOURCE, before, set_by_hand=True)


def _quarantined(machine: SimulatedPosix) -> RunSettings:
    """A run has sealed a sequence, died before it published a file, and the sequence is quarantined."""
    settings = _planned(machine)
    with publishing_at_most(machine, 0), suppress(Crashed):
        ingest_partition(settings, 0)
    log = settings.store.bucket_log(0, settings.epoch)
    name = SequenceName("a", settings.epoch)

    def decide(fold: Fold) -> Record | None:
        return Failed(settings.epoch, name, True, "by the test") if fold.state_of("a") in fold.pending() else None

    log.settle(decide)
    return settings


def _drains(settings: RunSettings) -> Act:
    return lambda store, scene: cast(None, drain_partition(_on(settings, store), 0))


def _abandons(store: JobStore, scene: Scene) -> None:
    by_hand.abandon(store, "a", "person")


def _changes_their_mind(store: JobStore, scene: Scene) -> None:
    """A person tries one thing after the other, as long as it is allowed."""
    for act in (
        partial(by_hand.retry, store, "a", "person"),
        partial(by_hand.abandon, store, "a", "person"),
        partial(by_hand.retry, store, "a", "person"),
    ):
        with suppress(ConflictError):
            act()


def _person_abandons(machine: SimulatedPosix) -> Mapping[str, Act]:
    """A sequence is quarantined while a zombie is about to execute it; a person abandons it, and a run comes."""
    return {"zombie": _drains(_quarantined(machine)), "person": _abandons, "run": _runs}


def _person_retries(machine: SimulatedPosix) -> Mapping[str, Act]:
    return {"zombie": _drains(_quarantined(machine)), "person": _changes_their_mind, "run": _runs}


def _stops(store: JobStore, scene: Scene) -> None:
    """A person lets nobody go on with what is pending, and then lets it go."""
    for act in (by_hand.quarantine, by_hand.abandon, by_hand.retry):
        with suppress(ConflictError):
            act(store, "a", "person")


def _person_stops(machine: SimulatedPosix) -> Mapping[str, Act]:
    """A sequence is pending, and a zombie is about to execute it; a person stops it, and a run comes."""
    settings = _planned(machine)
    with publishing_at_most(machine, 0), suppress(Crashed):
        ingest_partition(settings, 0)
    return {"zombie": _drains(settings), "person": _stops, "run": _runs}


def _sweeps(store: JobStore, scene: Scene) -> None:
    """Runs that get no further than their recovery, which takes away what older ones left."""
    for _ in range(2):
        settings = WORLD.begin(store.fs._calls, SOURCE)  # type: ignore[attr-defined]
        recover_partition(settings, 0)
        for log in (store.job_log(), store.bucket_log(0)):
            log.sweep_temporary()


def _sweeper(machine: SimulatedPosix) -> Mapping[str, Act]:
    """The next run's recovery sweeps attempt folders and temporary files while a zombie ingests."""
    return {"zombie": _finishes(_planned(machine)), "sweeper": _sweeps}


def _looks(settings: RunSettings) -> Act:
    """Somebody looks at progress, status and audit, which change nothing and never fail; no watermark goes back."""

    def act(store: JobStore, scene: Scene) -> None:
        reached: dict[str, Watermark] = {}
        for _ in range(4):
            read_progress(store.fs, progress_folder(store.roots.store, settings.run_id))
            for row in read_status(store).datasets:
                now = Watermark(row.positions, row.incarnation)
                if not now.covers(reached.setdefault(row.dataset, now)):
                    raise AssertionError(f"the watermark of {row.dataset} went back to {now}")
                reached[row.dataset] = now
            audit = audit_store(store, SOURCE.provenance, deep=False)
            if audit.duplicates or audit.unreadable:
                raise AssertionError(f"the audit finds {audit}")

    return act


def _onlooker(machine: SimulatedPosix) -> Mapping[str, Act]:
    settings = _planned(machine, replace(WORLD, watched=True))
    return {"run": _finishes(settings), "onlooker": _looks(settings)}


def _lock(store: JobStore, scene: Scene, run: str) -> SteppedLock:
    return SteppedLock(store.fs, store.roots.store, run, _LEASE_S, scene.clock)


def _wants_lock(run: str) -> Act:
    """Takes the lock as soon as it can, keeps it for a while, renews it once and lets go of it."""

    def act(store: JobStore, scene: Scene) -> None:
        lock = _lock(store, scene, run)
        for _ in range(4):
            since = scene.clock.monotonic_s()
            try:
                lock.__enter__()
            except LockHeldError:
                scene.clock.sleep(_LEASE_S / 2)
                continue
            scene.holds(run, since)
            scene.clock.sleep(_LEASE_S / 2)
            since = scene.clock.monotonic_s()
            lock.renew()
            if lock.is_mine():
                scene.holds(run, since)
            scene.lets_go(run)
            lock.__exit__(None, None, None)
            return

    return act


def _locks(machine: SimulatedPosix) -> Mapping[str, Act]:
    return {run: _wants_lock(run) for run in ("one", "two", "three")}


def _take_over(machine: SimulatedPosix) -> Mapping[str, Act]:
    """A run holds the lock and is frozen at any operation: its lease runs out, and another takes its lock and work."""
    settings = _planned(machine)

    def frozen(store: JobStore, scene: Scene) -> None:
        with _lock(store, scene, "frozen"):
            _finishes(settings)(store, scene)

    def newcomer(store: JobStore, scene: Scene) -> None:
        for _ in range(10):
            with suppress(LockHeldError), _lock(store, scene, "newcomer"):
                _runs(store, scene)
                return
            scene.clock.sleep(_LEASE_S / 2)

    return {"frozen": frozen, "newcomer": newcomer}


CASTS = {
    cast_.name: cast_
    for cast_ in (
        Cast("twins", _twins),
        Cast("twins-keeper", _twins_and_keeper),
        Cast("twins-at-least-once", _twins_at_least_once, _violation_at_least_once),
        Cast("zombie", _zombie),
        Cast("zombie-at-least-once", _zombie_at_least_once, _violation_at_least_once),
        Cast("zombie-keeper", _zombie_and_keeper),
        Cast("two-drivers", _two_drivers),
        Cast("person-sets", _person_sets, _violation_after_set),
        Cast("person-abandons", _person_abandons),
        Cast("person-retries", _person_retries),
        Cast("person-stops", _person_stops),
        Cast("sweeper", _sweeper),
        Cast("onlooker", _onlooker),
        Cast("lock", _locks),
        Cast("take-over", _take_over),
    )
}
