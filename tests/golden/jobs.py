"""Jobs in every state that a store can have, written by the product and killed: one folder each.

`stuck`: one dataset is idle, one half published, one quarantined without its staged file, and one is being abandoned.
`held`: a run of `scope: job` was killed before its decision. `decided`: it was killed after its decision, before it
published anything. `unsealed`: an at-least-once run was killed after it published a file that no record names.
"""

from __future__ import annotations

import random
import shutil
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from unittest import mock

from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.records.sealed_sequences import SealedSequence
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.committing.recover import recover_partition
from distcommit.engine.driver.run import decide_run, run
from distcommit.engine.planning.plan_partition import build_manifest, plan_partition
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.engine.run_settings import RunSettings
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.step_registry import load_steps
from distcommit.stores.logs.fencing import begin_run, end_run
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.job_store import JobStore
from distcommit.stores.state.run_plans import put_manifest
from distcommit.stores.state.task_states import record_ingest_ended
from distcommit.testing.fakes.faulty_calls import Crashed
from distcommit.testing.fakes.model_source import ModelSource
from tests.golden.job import BUCKETS, StableCalls, begin, source, store_at
from tests.simulation.world import launch_here

FINE, HALF, GONE, BACK = "fine", "half-done", "quarantined", "taken-back"
READ = {FINE: {"0": 3}, HALF: {"0": 2, "1": 2, "2": 1}, GONE: {"0": 2}, BACK: {"0": 2, "1": 1}}
STATES = {FINE: "idle", HALF: "pending", GONE: "quarantined", BACK: "revoking"}
_RUN = "20260203T0{}0000-00000000000a"


def make_jobs(folder: Path) -> None:
    """Create all of them."""
    for name, make in JOBS.items():
        calls = StableCalls(str(folder / name / "output"))
        numbers = random.Random(name)
        uuid4 = mock.patch.object(uuid, "uuid4", _counted(numbers))
        with uuid4:
            make(store_at(folder / name, LocalFileSystem(calls), create=True), calls)
        leave_out_display(folder / name)


def leave_out_display(folder: Path) -> None:
    """Delete files that differ between machines and on which nothing depends."""
    for name in ("progress", "run_tables"):
        shutil.rmtree(folder / "store" / name, ignore_errors=True)


def go_on(store: JobStore, read: ModelSource, number: int = 9, **how: bool) -> RunSettings:
    """Return the settings of a run that has taken an epoch."""
    run_id = _RUN.format(number)
    epoch = begin_run(store, run_id, unsealed=how.get("at_least_once", False))
    return begin(store, read, run_id, epoch, how.get("job_level", False), how.get("at_least_once", False))


def _counted(numbers: random.Random) -> Callable[[], uuid.UUID]:
    return lambda: uuid.UUID(int=numbers.getrandbits(128), version=4)


def _killed_after(renames: int, calls: StableCalls, settings: RunSettings) -> None:
    """Run a job that dies in its commit, after so many renames into the output."""
    calls.renames_left = renames
    with suppress(Crashed):
        run(launch_here, settings)
        raise AssertionError("the run was not killed")
    calls.revive()


def _pending(store: JobStore) -> list[SealedSequence]:
    folds = [store.bucket_log(bucket).refresh() for bucket in range(BUCKETS)]
    return [state.sequence for fold in folds for state in fold.pending()]


def _stuck(store: JobStore, calls: StableCalls) -> None:
    first = go_on(store, source({FINE: READ[FINE]}), 1)
    end_run(store, first.epoch, clean=run(launch_here, first).succeeded)
    for urn in (HALF, GONE, BACK):
        store.fs.make_folders(f"{store.roots.output}/{urn}")  # so that files are published one by one
    for number, urn in enumerate((GONE, BACK), 2):
        _killed_after(0, calls, go_on(store, source({urn: READ[urn]}), number))
        for sequence in _pending(store):
            steps = load_steps(sequence.steps, StepContext(store.fs, store.roots.staging, store.roots.output))
            Path(
                next(step.source for step in steps if isinstance(step, FsRenameCommitStep))
            ).unlink()  # by a foreign process
    _killed_after(2, calls, go_on(store, source(READ), 4))
    calls.keeps_files = True
    with suppress(Crashed):
        operator_actions.abandon(store, BACK, "a person")
    calls.revive()


def _held(store: JobStore, calls: StableCalls) -> None:
    _all_sealed(store)


def _decided(store: JobStore, calls: StableCalls) -> None:
    settings = _all_sealed(store)
    if not decide_run(store, settings.epoch):
        raise AssertionError(settings.epoch)


def _all_sealed(store: JobStore) -> RunSettings:
    """Run a job of `scope: job` up to its decision."""
    settings = go_on(store, source(READ), 1, job_level=True)
    recover_partition(settings, 0)
    put_manifest(store.fs, store.roots.store, build_manifest(settings, [plan_partition(settings, 0)]))
    for task in range(2):
        ingest_partition(settings, task)
    record_ingest_ended(store.fs, store.roots.store, settings.run_id)
    drain_partition(settings, 0)
    return settings


def _unsealed(store: JobStore, calls: StableCalls) -> None:
    first = go_on(store, source({FINE: READ[FINE]}), 1, at_least_once=True)
    end_run(store, first.epoch, clean=run(launch_here, first).succeeded)
    store.fs.make_folders(f"{store.roots.output}/{HALF}")
    _killed_after(2, calls, go_on(store, source({HALF: READ[HALF]}), 2, at_least_once=True))


JOBS = {"stuck": _stuck, "held": _held, "decided": _decided, "unsealed": _unsealed}
