"""Casts for the interleaver: a store is rebuilt beside runs, zombies, operators and another rebuild.

The store is the first run's, its output the second's: no run may begin before it is rebuilt. Each refused actor gets an
error. After a rebuild and a run nothing may be lost or duplicated.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from distcommit.app.admin.rebuild_store import plan_rebuild, rebuild_store, stored_states
from distcommit.core.errors import ConflictError, StaleStoreError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.records.sealed_sequences import SequenceName
from distcommit.core.watermark import Watermark
from distcommit.engine.driver.run import new_run_id
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.fs.local_disk.posix_calls import PosixCalls
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.step_registry import load_steps
from distcommit.stores.folders.folder_ownership import read_owner
from distcommit.stores.folders.run_markers import Marker, put_run_marker, read_markers
from distcommit.stores.logs.fencing import newer_runs
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.job_store import JobStore, has_store, open_store
from distcommit.testing.fakes.faulty_calls import Crashed
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.casts.parts import WORLD, Act, Cast, Scene, new_run, quarantine, runs, violation_of
from tests.simulation.programs.parts import (
    files_below,
    publishing_at_most,
    replace_files,
    violation_after_set_back,
)
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem

_FIRST = ModelSource({"a": ModelDataset({"0": 1}), "b": ModelDataset({"0": 1})})
_SECOND = ModelSource({"a": ModelDataset({"0": 2, "1": 1}), "b": ModelDataset({"0": 2})})
_THIRD = ModelSource({"a": ModelDataset({"0": 3, "1": 2}), "b": ModelDataset({"0": 2}), "c": ModelDataset({"0": 1})})
_JOB = "job"


def _rebuilds(store: JobStore, scene: Scene) -> None:
    """Rebuild as `distcommit store rebuild` does, without the lock, which is not needed for safety."""
    fs = store.fs
    run_id = new_run_id()
    if has_store(fs, ROOTS):
        store = open_store(fs, ROOTS, _JOB, create=False)
        if not newer_runs(store):
            raise ConflictError("there is nothing to rebuild")
        plan = plan_rebuild(store, stored_states(store), accept_gaps=False)
    else:
        owner = read_owner(fs, ROOTS.output)
        plan = plan_rebuild(store, {}, accept_gaps=False)
        put_run_marker(fs, ROOTS.output, max(read_markers(fs, ROOTS.output).values()) + 1, Marker.REBUILD)
        lost = owner.store_id if owner is not None else ""
        store = open_store(fs, ROOTS, _JOB, WORLD.buckets, create=True, lost_store_id=lost)
    rebuild_store(store, plan, run_id, "person", accept_gaps=False)


def _last_run(cast: Cast, machine: SimulatedPosix) -> bool:
    """Run, after a rebuild if the store is reported to be old."""
    with suppress(StaleStoreError):
        return cast.world.run(machine, cast.source).succeeded
    _rebuilds(_unopened(cast, machine), Scene())
    return cast.world.run(machine, cast.source).succeeded


def _unopened(cast: Cast, calls: PosixCalls) -> JobStore:
    """Return the store without opening it, as it may be missing."""
    return JobStore(SimulatedFileSystem(calls), ROOTS, _JOB, cast.world.buckets)


def _publishes(steps: list[FsRenameCommitStep]) -> Act:
    """Execute the sequences that the second run sealed in the deleted store, as a zombie."""

    def act(store: JobStore, scene: Scene) -> None:
        context = StepContext(store.fs, ROOTS.staging, ROOTS.output)
        FsRenameCommitStep.execute_all(FsRenameCommitStep.of_all(context, [step.file for step in steps]))

    return act


def _half_done(machine: SimulatedPosix) -> list[FsRenameCommitStep]:
    """The second run dies in its commit, with one file published."""
    settings = new_run(machine, WORLD, _SECOND)
    with publishing_at_most(machine, 1), suppress(Crashed):
        ingest_partition(settings, 0)
    context = StepContext(settings.store.fs, ROOTS.staging, ROOTS.output)
    pending = settings.store.bucket_log(0).refresh().pending()
    steps = [step for state in pending for step in load_steps(state.sequence.steps, context)]
    return [step for step in steps if isinstance(step, FsRenameCommitStep)]


def _stale(machine: SimulatedPosix) -> list[FsRenameCommitStep]:
    WORLD.run(machine, _FIRST)
    backup = files_below(machine, ROOTS.store)
    steps = _half_done(machine)
    replace_files(machine, ROOTS.store, backup)
    return steps


def _beside_a_zombie(machine: SimulatedPosix) -> Mapping[str, Act]:
    steps = _stale(machine)
    return {"zombie": _publishes(steps), "rebuild": _rebuilds, "run": runs(WORLD, _THIRD)}


def _beside_a_zombie_alone(machine: SimulatedPosix) -> Mapping[str, Act]:
    """The rebuild finds the files that the zombie publishes meanwhile, or has removed them from staging before."""
    return {"zombie": _publishes(_stale(machine)), "rebuild": _rebuilds}


def _beside_another(machine: SimulatedPosix) -> Mapping[str, Act]:
    _stale(machine)
    return {"one": _rebuilds, "two": _rebuilds, "run": runs(WORLD, _THIRD)}


def _of_a_lost_store(machine: SimulatedPosix) -> Mapping[str, Act]:
    """The store is deleted completely."""
    WORLD.run(machine, _FIRST)
    WORLD.run(machine, _SECOND)
    for path in [path for path, _ in reversed(machine.walk(ROOTS.store))]:
        (machine.rmdir if machine.lstat(path).is_folder else machine.unlink)(path)
    return {"one": _rebuilds, "two": _rebuilds, "run": _opens_and_runs}


def _opens_and_runs(store: JobStore, scene: Scene) -> None:
    runs(WORLD, _THIRD)(store, scene)


def _sets(store: JobStore, scene: Scene) -> None:
    """Set dataset b to begin where the files end."""
    operator_actions.set_watermark(store, "b", Watermark({"0": 2}), "person")


def _beside_a_person(machine: SimulatedPosix) -> Mapping[str, Act]:
    WORLD.run(machine, _FIRST)
    backup = files_below(machine, ROOTS.store)
    WORLD.run(machine, _SECOND)
    replace_files(machine, ROOTS.store, backup)
    return {"rebuild": _rebuilds, "person": _sets, "run": runs(WORLD, _THIRD)}


def _violation_after_set(cast: Cast, machine: SimulatedPosix, before: Mapping[str, Watermark]) -> str:
    return violation_after_set_back(machine, cast.world, cast.source, 0)


def _abandons(store: JobStore, scene: Scene) -> None:
    operator_actions.abandon(store, "a", "person")


def _beside_who_abandons(machine: SimulatedPosix) -> Mapping[str, Act]:
    """The store was copied when a sequence with one published file was quarantined; it does not contain the next
    run."""
    WORLD.run(machine, _FIRST)
    _half_done(machine)
    log = WORLD.store(machine).bucket_log(0)
    epoch = log.refresh().fence_epoch
    quarantine(WORLD.store(machine).bucket_log(0, epoch), SequenceName("a", epoch))
    backup = files_below(machine, ROOTS.store)
    WORLD.run(machine, _SECOND)
    replace_files(machine, ROOTS.store, backup)
    return {"rebuild": _rebuilds, "person": _abandons, "run": runs(WORLD, _THIRD, beside_people=True)}


REBUILD = tuple(
    Cast(name, stage, violation, source=_THIRD, last_run=_last_run, opens=_unopened)
    for name, stage, violation in (
        ("rebuild-zombie", _beside_a_zombie, violation_of),
        ("rebuild-zombie-alone", _beside_a_zombie_alone, violation_of),
        ("rebuild-two", _beside_another, violation_of),
        ("rebuild-lost", _of_a_lost_store, violation_of),
        ("rebuild-person", _beside_a_person, _violation_after_set),
        ("rebuild-abandon", _beside_who_abandons, violation_of),
    )
)
