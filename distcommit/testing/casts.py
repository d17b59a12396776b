"""Casts of actors for the interleaver: the product's own code, each in a role of its own, on one store."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from distcommit.app.audit import audit_store
from distcommit.app.status import read_status
from distcommit.engine.progress import progress_folder, read_progress
from distcommit.engine.recover import recover_partition
from distcommit.engine.settings import RunSettings
from distcommit.model.errors import LockHeldError
from distcommit.model.watermark import Watermark
from distcommit.stores.job_store import JobStore
from distcommit.testing.cast_parts import LEASE_S, SOURCE, WORLD, Act, Cast, Scene, finishes, new_run, runs
from distcommit.testing.casts_people import PEOPLE
from distcommit.testing.casts_rebuild import REBUILD
from distcommit.testing.casts_tasks import TASKS
from distcommit.testing.simulated_posix import SimulatedPosix
from distcommit.testing.stepped_lock import SteppedLock


def _sweeps(store: JobStore, scene: Scene) -> None:
    """Runs that get no further than their recovery, which takes away what older ones left."""
    for _ in range(2):
        settings = WORLD.begin(store.fs._calls, SOURCE)  # type: ignore[attr-defined]
        recover_partition(settings, 0)
        for log in (store.job_log(), store.bucket_log(0)):
            log.sweep_temporary()


def _sweeper(machine: SimulatedPosix) -> Mapping[str, Act]:
    """The next run's recovery sweeps attempt folders and temporary files while a zombie ingests."""
    return {"zombie": finishes(new_run(machine)), "sweeper": _sweeps}


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
    settings = new_run(machine, replace(WORLD, watched=True))
    return {"run": finishes(settings), "onlooker": _looks(settings)}


def _lock(store: JobStore, scene: Scene, run: str) -> SteppedLock:
    return SteppedLock(store.fs, store.roots.store, run, LEASE_S, scene.clock)


def _wants_lock(run: str) -> Act:
    """Takes the lock as soon as it can, keeps it for a while, renews it once and lets go of it."""

    def act(store: JobStore, scene: Scene) -> None:
        lock = _lock(store, scene, run)
        for _ in range(4):
            since = scene.clock.monotonic_s()
            try:
                lock.__enter__()
            except LockHeldError:
                scene.clock.sleep(LEASE_S / 2)
                continue
            scene.holds(run, since)
            scene.clock.sleep(LEASE_S / 2)
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
    settings = new_run(machine)

    def frozen(store: JobStore, scene: Scene) -> None:
        with _lock(store, scene, "frozen"):
            finishes(settings)(store, scene)

    def newcomer(store: JobStore, scene: Scene) -> None:
        for _ in range(10):
            with suppress(LockHeldError), _lock(store, scene, "newcomer"):
                runs()(store, scene)
                return
            scene.clock.sleep(LEASE_S / 2)

    return {"frozen": frozen, "newcomer": newcomer}


CASTS = {
    cast.name: cast
    for cast in (
        *TASKS,
        *PEOPLE,
        *REBUILD,
        Cast("sweeper", _sweeper),
        Cast("onlooker", _onlooker, blind=frozenset({"onlooker"})),
        Cast("lock", _locks),
        Cast("take-over", _take_over),
    )
}
