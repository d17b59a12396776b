"""The driver's memory in a whole run, and the growth of time and log bytes, by the number of datasets."""

from __future__ import annotations

import gc
import os
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.arms.executors import measure_executors, speed_ups
from benchmarks.arms.ours import Ours
from benchmarks.results import Results, Sample, results_of, slope
from benchmarks.runner import Tell, WrongResultError, scratch
from benchmarks.session import session_or
from benchmarks.workloads.ingested import JOB, roots_of, run_settings
from benchmarks.workloads.source import NumberedSource
from benchmarks.workloads.tree import Shape
from distcommit.engine.driver.run import run
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.spark.task_launch import SparkLaunch
from distcommit.stores.state.job_store import open_store


def scale(
    sizes: Sequence[int],
    *,
    buckets: int,
    executors: Sequence[int],
    shape: Shape,
    delay_ms: float,
    repeats: int,
    folder: Path,
    tell: Tell,
    spark: SparkSession | None = None,
) -> Results:
    """Run the whole job once at each size, one file of one record for each dataset, and measure the driver.

    Then commit a tree on real executors with slow metadata operations.

    Args:
        sizes: numbers of datasets, two at least.
        buckets: buckets of the store.
        executors: numbers of executors; empty for none.
        shape: the tree that they commit.
        delay_ms: the wait of each metadata operation there.
        repeats: samples of each number of executors.
        folder: on the used disk.
        tell: receives each sample.
        spark: a session to use.
    """
    with session_or(spark) as (session, partitions):
        run_once(session, min(partitions, buckets), 10, buckets, folder)  # loaded modules are not the run's
        samples = [run_once(session, min(partitions, buckets), size, buckets, folder, tell) for size in sizes]
    names = ("driver_python_peak_bytes", "jvm_heap_bytes", "log_bytes")
    ratios = {f"{name}_per_dataset": slope((float(s.datasets), s.parts[name]) for s in samples) for name in names}
    ratios["wall_ms_per_dataset"] = slope((float(s.datasets), s.seconds * 1000) for s in samples)
    on_executors = measure_executors(
        "commit",
        executors,
        lambda spark, fs, latency: Ours(spark, shape.buckets, fs=fs, latency=latency),
        shape,
        delay_ms=delay_ms,
        repeats=repeats,
        folder=folder,
        tell=tell,
    )
    ratios |= speed_ups(on_executors, executors)
    return results_of(
        "scale",
        ratios,
        samples + on_executors,
        seed=shape.seed,
        folder=folder,
        parameters={
            "sizes": list(sizes),
            "buckets": buckets,
            "executors": list(executors),
            "executor_datasets": shape.datasets,
            "executor_files": shape.files,
            "executor_buckets": shape.buckets,
            "delay_ms": delay_ms,
            "repeats": repeats,
        },
        notes=[
            "slopes over the number of datasets; JVM heap is what is left after a collection, driver and executors",
            "executors: processes with one slot; each metadata operation waits in a server process, one at a time in "
            "each executor; one task for each bucket",
        ],
    )


def run_once(
    spark: SparkSession, partitions: int, datasets: int, buckets: int, folder: Path, tell: Tell = lambda text: None
) -> Sample:
    """Run once with a new store."""
    with scratch(folder) as root:
        store = open_store(LocalFileSystem(), roots_of(root), JOB, buckets, create=True)
        settings = run_settings(store, NumberedSource(datasets), partitions)
        gc.collect()
        tracemalloc.start()
        began = time.perf_counter()
        try:
            result = run(SparkLaunch(spark), settings)
            seconds = time.perf_counter() - began
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        if result.totals.datasets_published != datasets:
            raise WrongResultError(f"{result.totals.datasets_published} of {datasets} datasets published")
        parts = {
            "driver_python_peak_bytes": float(peak),
            "driver_resident_bytes": _resident_bytes(),
            "jvm_heap_bytes": _heap_bytes(spark),
            "log_bytes": float(sum(file.stat().st_size for file in (root / "store" / "log").rglob("*.seg"))),
        } | {f"{name}_s": value for name, value in result.seconds.items()}
    tell(f"{datasets} datasets: {seconds:.1f} s, {parts}")
    return Sample("whole_run", datasets, 1, 0, seconds, parts)


def _resident_bytes() -> float:
    """Return this process's resident memory."""
    statm = Path("/proc/self/statm")
    return float(int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")) if statm.exists() else 0.0


def _heap_bytes(spark: SparkSession) -> float:
    jvm: Any = spark.sparkContext._jvm
    runtime = jvm.java.lang.Runtime.getRuntime()
    jvm.java.lang.System.gc()
    return float(runtime.totalMemory() - runtime.freeMemory())
