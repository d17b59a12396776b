"""Casts for the interleaver: runs beside others that begin, sweep, inspect, or compete for the lock or the folders."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from distcommit.app.auditing.audit import audit_store
from distcommit.app.inspection.job_status import read_status
from distcommit.core.errors import ConfigurationError, LockHeldError
from distcommit.core.watermark import Watermark
from distcommit.engine.driver.task_progress import progress_folder, read_progress
from distcommit.engine.run_settings import RunSettings
from distcommit.stores.folders.folder_ownership import read_owner
from distcommit.stores.logs.fencing import end_run, newer_runs, take_ownership_of_folders
from distcommit.stores.state.job_store import JobStore, Roots, open_store
from tests.simulation.casts.parts import (
    LEASE_S,
    SOURCE,
    WORLD,
    Act,
    Cast,
    Scene,
    finishes,
    new_run,
    runs,
    violation_of,
)
from tests.simulation.programs.parts import require_refused
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.stepped_lock import SteppedLock
from tests.simulation.world import ROOTS, SimulatedFileSystem


def _sweeps(store: JobStore, scene: Scene) -> None:
    """Run recoveries only, which sweep the orphaned files of older runs."""
    for _ in range(2):
        WORLD.recover(store.fs._calls, SOURCE)  # type: ignore[attr-defined]
        for log in (store.job_log(), store.bucket_log(0)):
            log.sweep_temporary()


def _sweeper(machine: SimulatedPosix) -> Mapping[str, Act]:
    """The next run's recovery sweeps attempt folders and temporary files while a zombie ingests."""
    return {"zombie": finishes(new_run(machine)), "sweeper": _sweeps}


def _looks(settings: RunSettings) -> Act:
    """Read progress, status and audit, which change nothing and never fail; no watermark goes back."""

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
    """Take the lock as soon as possible, keep it for a while, renew it once and release it."""

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
    """A run holds the lock and is frozen at any operation: its lease expires, and another run takes its lock and
    work."""
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


def _begins(store: JobStore, scene: Scene) -> None:
    """Begin runs that die at once."""
    for _ in range(4):
        settings = WORLD.begin(store.fs._calls, SOURCE)  # type: ignore[attr-defined]
        end_run(settings.store, settings.epoch, clean=False)


def _is_newest(store: JobStore, scene: Scene) -> None:
    """Check that no reader is told of a newer store."""
    for _ in range(30):
        if newer := newer_runs(store):
            raise AssertionError(f"the newest store is taken for an old one: {newer}")


def _beginners(machine: SimulatedPosix) -> Mapping[str, Act]:
    return {"run": _begins, "onlooker": _is_newest}


_OTHERS = Roots("/job/other", ROOTS.staging, ROOTS.output)


def _claims(roots: Roots, job: str) -> Act:
    """Claim the folders for a store; after a success they must belong to it."""

    def act(store: JobStore, scene: Scene) -> None:
        own_store = open_store(store.fs, roots, job, create=False)
        try:
            take_ownership_of_folders(own_store)
        except ConfigurationError:
            return  # the other one was first
        for root in (roots.output, roots.staging):
            owner = read_owner(store.fs, root)
            if owner is None or owner.store_id != own_store.store_id:
                raise AssertionError(f"{job} was told that {root} is its own, which is {owner}")

    return act


def _two_jobs(machine: SimulatedPosix) -> Mapping[str, Act]:
    """Two jobs with the same folders begin at once, each with its own store."""
    open_store(SimulatedFileSystem(machine), _OTHERS, "other", WORLD.buckets, create=True)
    return {"one": _claims(ROOTS, "job"), "other": _claims(_OTHERS, "other")}


def _owners_run(cast: Cast, machine: SimulatedPosix) -> bool:
    """Run the job that owns the output; the other job's runs are refused."""
    owner = read_owner(SimulatedFileSystem(machine), ROOTS.output)
    if owner is not None and owner.job != "job":
        require_refused([partial(cast.world.run, machine, cast.source)])
        return True
    return cast.world.run(machine, cast.source).succeeded


def _violation_of_owner(cast: Cast, machine: SimulatedPosix, before: Mapping[str, Watermark]) -> str:
    owner = read_owner(SimulatedFileSystem(machine), ROOTS.output)
    return violation_of(cast, machine, before) if owner is not None and owner.job == "job" else ""


RUNS = (
    Cast("sweeper", _sweeper),
    Cast("onlooker", _onlooker, blind=frozenset({"onlooker"})),
    Cast("lock", _locks),
    Cast("beginners", _beginners, blind=frozenset({"onlooker"})),
    Cast("two-jobs", _two_jobs, _violation_of_owner, last_run=_owners_run),
    Cast("take-over", _take_over),
)
