"""The recover job over the sequences of a killed run: sealed, and partly published."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.arms.ours import executors_of, warm_partition
from benchmarks.runner import Arm, Parts, WrongResultError
from benchmarks.workloads.counting import CountingCalls
from benchmarks.workloads.ingested import ingested
from benchmarks.workloads.latency import Latency, NoLatency
from benchmarks.workloads.tree import Shape, files_left, make_folders
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.committing.recover import RecoverReport, recover_partition
from distcommit.engine.driver.task_reports import Report, sum_reports
from distcommit.engine.run_settings import RunSettings
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.protocol.paths.staging import bucket_folder
from distcommit.spark.task_launch import SparkLaunch
from distcommit.stores.logs.fencing import fence_job


class Killed(BaseException):
    """Simulated end of the process, which no handler catches."""


@dataclass
class DyingCalls(CountingCalls):
    """File system calls that die at a rename into the output after `renames` of them."""

    output: str = ""
    _allowed: int = field(default=-1)

    def begin(self, renames: int) -> None:
        """Allow that many renames into the output from now on."""
        self._allowed = renames

    def rename_noreplace(self, source: str, target: str) -> None:
        if target.startswith(self.output):
            if self._allowed == 0:
                raise Killed
            self._allowed -= 1
        super().rename_noreplace(source, target)


class Recovery(Arm):
    """The recover job over datasets that a killed run has sealed, with that share of them published.

    `into_folders`: the datasets' folders exist, so that files were, and are, renamed one by one.
    """

    def __init__(
        self,
        spark: SparkSession,
        partitions: int,
        name: str,
        published: float,
        *,
        fs: FileSystem | None = None,
        latency: Latency | None = None,
        into_folders: bool = False,
    ) -> None:
        self._spark, self._partitions, self.name, self._published = spark, partitions, name, published
        self._into_folders = into_folders
        self._latency = latency or NoLatency()
        self._fs = fs or LocalFileSystem()

    def publish(self, shape: Shape, root: Path) -> Parts:
        calls = DyingCalls(output=f"{root}/output/")
        if self._into_folders:
            make_folders(shape, root)
        renames = shape.files + 1 if self._into_folders else 1  # a folder's, and if it is refused, each file's
        killed = ingested(shape, root, shape.buckets, LocalFileSystem(calls, durable=False))
        for bucket in range(shape.buckets):  # a partition for each bucket, so that each of them is struck
            _kill(killed, calls, bucket, self._published * renames)
        partitions = min(self._partitions, shape.buckets)
        run_id = killed.run_id + "-again"
        epoch = fence_job(replace(killed.store, fs=LocalFileSystem()), run_id)
        store = replace(killed.store, fs=self._fs)
        settings = replace(killed, store=store, run_id=run_id, epoch=epoch, partitions=partitions)
        launch = SparkLaunch(self._spark)
        LocalFileSystem().sync_tree(str(root))
        launch(warm_partition, settings, partitions, Report)
        began = time.perf_counter()
        launch(warm_partition, settings, partitions, Report)
        no_op = time.perf_counter() - began
        self._latency.take()
        began = time.perf_counter()
        recovered = launch(recover_partition, settings, partitions, RecoverReport)
        wall = time.perf_counter() - began
        reports = [report.report for report in recovered]
        waited, total = self._latency.take(), sum_reports(reports)
        if total.counts.sequences_replayed != shape.datasets or total.reasons or files_left(root / "staging"):
            raise WrongResultError(f"{total.counts.sequences_replayed} of {shape.datasets} replayed: {total.reasons}")
        parts = {"seconds": wall - no_op, "wall_s": wall, "no_op_job_s": no_op} | waited
        return parts | {"executors": executors_of(reports)}


def _kill(settings: RunSettings, calls: DyingCalls, bucket: int, renames: float) -> None:
    """Kill a bucket's commit after that many renames for each of its datasets."""
    plans = sum(
        1
        for _ in settings.store.fs.list_folder(
            f"{settings.store.roots.staging}/{bucket_folder(settings.epoch, bucket)}"
        )
    )
    calls.begin(int(plans * renames))
    try:
        drain_partition(settings, bucket)
    except Killed:
        return
    if plans:
        raise WrongResultError(f"bucket {bucket} was not struck")
