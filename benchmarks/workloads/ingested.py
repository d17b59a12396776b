"""A run of the product whose ingest has just ended: planned, files staged, task states durable, nothing sealed.

The product's own functions do all of it; only the files' bytes are not a sink's.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from benchmarks.workloads import hdfs_tree
from benchmarks.workloads.source import NumberedSource
from benchmarks.workloads.tree import EPOCH, Shape, tree_datasets, write_dataset
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.interfaces.source import Source
from distcommit.core.work_units import MAIN_BRANCH, BranchResult, StagedFile, TaskOutcome, TaskState, WorkUnit
from distcommit.engine.driver.run import new_run_id, recover
from distcommit.engine.driver.task_progress import progress_folder
from distcommit.engine.planning.plan_partition import build_manifest, plan_partition
from distcommit.engine.run_settings import RunSettings
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.protocol.seal_decision import CommitPolicy
from distcommit.sinks.files.sink import FileSink
from distcommit.stores.logs.fencing import fence_job
from distcommit.stores.state.job_store import JobStore, Roots, open_store
from distcommit.stores.state.run_plans import PlanReader, put_manifest
from distcommit.stores.state.task_states import TaskStateWriter, record_ingest_ended
from tests.simulation import world

JOB = "benchmark"
launch_here = world.launch_here
"""Its module differs between trees: `guarded` imports it from the measured tree."""


def roots_of(root: Path | str) -> Roots:
    """Return the three folders of the job below a root."""
    return Roots(f"{root}/store", f"{root}/staging", f"{root}/output")


def run_settings(store: JobStore, source: Source, partitions: int, sink: FileSink | None = None) -> RunSettings:
    """Begin a new run of that job with the product's default settings; it fences the job log."""
    run_id = new_run_id()
    epoch = fence_job(store, run_id)
    store.fs.make_folders(progress_folder(store.roots.store, run_id))
    return RunSettings(
        store=store,
        run_id=run_id,
        epoch=epoch,
        partitions=partitions,
        flow=TaskFlow.straight(source, sink or FileSink()),
        policy=CommitPolicy.FULL,
        job_level=False,
        min_interval_s=0.5,
        max_attempts=3,
        task_attempts=2,
    )


def ingested(shape: Shape, root: Path, partitions: int, fs: FileSystem) -> RunSettings:
    """Prepare the run below `root`, durably.

    Args:
        shape: the tree that its tasks have staged.
        root: an empty folder.
        partitions: how many Spark partitions own the buckets.
        fs: the file system of the run that follows. The preparation itself syncs once, at its end.
    """
    settings = _ingested(shape, roots_of(root), partitions, LocalFileSystem(durable=False))
    os.sync()
    return replace(settings, store=replace(settings.store, fs=fs))


def ingested_there(shape: Shape, root: str, partitions: int, fs: FileSystem, *, empty: bool = False) -> RunSettings:
    """Prepare the run on a file system that is not this machine's; `empty`: with files without bytes, which is
    quicker."""
    return _ingested(shape, roots_of(root), partitions, fs, empty=empty)


def _ingested(
    shape: Shape, roots: Roots, partitions: int, preparing: FileSystem, *, empty: bool = False
) -> RunSettings:
    store = open_store(preparing, roots, JOB, shape.buckets, create=True)
    settings = run_settings(store, NumberedSource(shape.datasets, shape.files), partitions)
    if settings.epoch != EPOCH:
        raise AssertionError(f"the first run of a new store has epoch {settings.epoch}, not {EPOCH}")
    recover(launch_here, settings)
    manifest = build_manifest(settings, [plan_partition(settings, partition) for partition in range(partitions)])
    put_manifest(preparing, store.roots.store, manifest)
    plans = PlanReader(preparing, store.roots.store, manifest)
    units = {
        unit.work_unit_id: unit
        for bucket in range(shape.buckets)
        for plan in plans.of(bucket)
        for unit in plan.work_units
    }
    states: dict[int, list[TaskState]] = {}
    far = None
    if not isinstance(preparing, LocalFileSystem):
        far = hdfs_tree.stage(preparing, shape, store.roots.staging, empty=empty)
    for dataset in tree_datasets(shape):
        if far is not None:
            outputs = tuple(far[dataset.urn])
        else:
            folder = f"{store.roots.staging}/{dataset.staged}"
            preparing.make_folder(folder)
            outputs = tuple(write_dataset(dataset, shape, folder))
        unit = units.pop(dataset.work_unit_id)
        if unit.dataset_urn != dataset.urn:
            raise AssertionError(f"the plan gives {unit.work_unit_id} to {unit.dataset_urn}, the tree to {dataset.urn}")
        states.setdefault(dataset.bucket, []).append(_succeeded(settings, unit, dataset.attempt, outputs))
    for written in TaskStateWriter(preparing, store.roots.store, settings.run_id, partitions).append(states).values():
        if isinstance(written, OSError):
            raise written
    record_ingest_ended(preparing, store.roots.store, settings.run_id)
    return settings


def _succeeded(settings: RunSettings, unit: WorkUnit, attempt: str, outputs: tuple[StagedFile, ...]) -> TaskState:
    now_ms, sink = settings.clock.now_ms(), settings.flow.sink_of(MAIN_BRANCH).name
    return TaskState(
        run_id=settings.run_id,
        epoch=settings.epoch,
        dataset_urn=unit.dataset_urn,
        work_unit_id=unit.work_unit_id,
        attempt=attempt,
        outcome=TaskOutcome.SUCCEEDED,
        low=unit.low,
        expected_high=unit.expected_high,
        actual_high=unit.expected_high,
        branches=(BranchResult(MAIN_BRANCH, sink, outputs, records_written=len(outputs)),),
        records_read=len(outputs),
        started_ms=now_ms,
        finished_ms=now_ms,
    )
