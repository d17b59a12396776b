"""The product: its drain job on Spark, from all task states durable to the last DONE durable and staging removed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from benchmarks.runner import Arm, Parts, WrongResultError
from benchmarks.workloads.ingested import ingested
from benchmarks.workloads.latency import Latency, NoLatency, counting
from benchmarks.workloads.tree import Shape, files_left, make_folders
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.driver.task_reports import Report, Tally, sum_reports
from distcommit.engine.run_settings import RunSettings
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.spark.task_launch import SparkLaunch

_NO_OPS = 5


class Ours(Arm):
    """The product's own `drain_partition`, launched as the product launches it.

    An empty job of the same shape is timed right before, and its median is subtracted: in a run the session exists, and
    its cost does not depend on the commit. The workers are warm, as they are after ingest.

    Args:
        spark: the session.
        partitions: the number of tasks that share the buckets.
        name: of the arm.
        fs: the file system to commit on, by default this machine's.
        latency: the wait of `fs` for each operation.
        into_folders: whether the datasets' folders exist, so that files are renamed one by one. That is the case in
            each run but the first if folders do not change with time. Otherwise whole staged folders are renamed.
    """

    def __init__(
        self,
        spark: SparkSession,
        partitions: int,
        *,
        name: str = "ours",
        fs: FileSystem | None = None,
        latency: Latency | None = None,
        into_folders: bool = False,
    ) -> None:
        self._spark, self._partitions, self._into_folders = spark, partitions, into_folders
        self.name = f"{name}_into_folders" if into_folders else name
        self._latency = latency or NoLatency()
        self._fs = fs or LocalFileSystem()

    def publish(self, shape: Shape, root: Path) -> Parts:
        partitions = min(self._partitions, shape.buckets)
        settings = self._prepare(shape, root, partitions)
        launch = SparkLaunch(self._spark)
        launch(warm_partition, settings, partitions, Report)
        no_ops = [_seconds_of_no_op(launch, settings, partitions) for _ in range(_NO_OPS)]
        with self._counting() as counted:
            began = time.perf_counter()
            reports = launch(drain_partition, settings, partitions, Report)
            wall = time.perf_counter() - began
        total, remaining = sum_reports(reports), self._staged_files(root)
        if total.counts.datasets_published != shape.datasets or total.fenced or remaining:
            raise WrongResultError(
                f"{self.name}: {total.counts.datasets_published} of {shape.datasets} published, "
                f"{remaining} left in staging; {total.fenced or total.reasons}"
            )
        parts = {"seconds": wall - median(no_ops), "wall_s": wall, "no_op_job_s": median(no_ops)} | counted
        return parts | {"executors": executors_of(reports)}

    def _prepare(self, shape: Shape, root: Path, partitions: int) -> RunSettings:
        """Prepare a run whose ingest has ended."""
        if self._into_folders:
            make_folders(shape, root)
        return ingested(shape, root, partitions, self._fs)

    def _counting(self) -> AbstractContextManager[Parts]:
        """Count the waiting operations of the block."""
        return counting(self._latency)

    def _staged_files(self, root: Path) -> int:
        """Return the number of files and folders in staging."""
        return files_left(root / "staging")


def executors_of(reports: Iterable[Report]) -> float:
    """Return how many executors worked: each has one process from which its Python workers are forked."""
    return float(len({report.daemon_pid for report in reports}))


def no_op_partition(settings: RunSettings, partition: int) -> Report:
    """Report, and do nothing else."""
    return Tally().report(partition)


def warm_partition(settings: RunSettings, partition: int) -> Report:
    """Import all modules, so that the worker is as warm as after an ingest task."""
    return no_op_partition(settings, partition)


def no_op_job(spark: SparkSession, partitions: int) -> float:
    """Return the seconds of an empty Spark job with that many tasks."""
    began = time.perf_counter()
    rows = spark.sparkContext.parallelize(range(partitions), partitions).mapPartitions(iter).collect()
    seconds = time.perf_counter() - began
    if len(rows) != partitions:
        raise WrongResultError(f"{len(rows)} tasks answered, expected {partitions}")
    return seconds


def _seconds_of_no_op(launch: SparkLaunch, settings: RunSettings, partitions: int) -> float:
    began = time.perf_counter()
    launch(no_op_partition, settings, partitions, Report)
    return time.perf_counter() - began
