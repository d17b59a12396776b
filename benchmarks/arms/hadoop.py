"""Hadoop's committers, driven through Spark's JVM on one prepared tree.

They use `RawLocalFileSystem` instead of the checksumming one, which would fork a process for each file. Tasks commit in
two threads, as on two slots; the job commits afterwards, as in Spark.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any, cast

import pyspark
from pyspark.sql import SparkSession

from benchmarks.runner import Arm, Parts, WrongResultError
from benchmarks.workloads.latency import Latency, NoLatency, counting
from benchmarks.workloads.tree import Shape, TreeDataset, make_folders, tree_datasets, write_dataset

_SLOTS = 2
_DELAYING = "DelayingFileSystem"


class HadoopArm(Arm):
    """A job of `tasks` tasks, each with its own buckets, written to the committer's work paths.

    `slots` tasks commit at a time. With a latency each operation of its file system waits.
    """

    _file_by_file = True

    def __init__(self, spark: SparkSession, tasks: int, *, slots: int = _SLOTS, latency: Latency | None = None) -> None:
        self._spark, self._tasks, self._slots, self._latency = spark, tasks, slots, latency or NoLatency()
        self._jvm: Any = spark.sparkContext._jvm

    def missing(self) -> str:
        return "javac is missing" if self._latency.address and not _javac() else ""

    def publish(self, shape: Shape, root: Path) -> Parts:
        output = root / "output"
        self._make(output)
        configuration = self._configuration()
        committers = [self._task(output, configuration, task) for task in range(self._tasks)]
        job_committer, job_context = self._task(output, configuration, 0)
        job_committer.setupJob(job_context)
        shares: list[list[TreeDataset]] = [[] for _ in range(self._tasks)]
        for dataset in tree_datasets(shape):
            shares[dataset.bucket % self._tasks].append(dataset)
        for (committer, context), share in zip(committers, shares, strict=True):
            committer.setupTask(context)
            work_path = str(committer.getWorkPath().toUri().getPath())
            self._write([(dataset, f"{work_path}/{dataset.folder}") for dataset in share], shape)
        self._prepare_output(shape, output)
        os.sync()
        prepared_ns = time.time_ns()
        self._jvm.java.lang.System.gc()
        with self._counting() as counted:
            began = time.perf_counter()
            with ThreadPoolExecutor(self._slots) as slots:
                list(slots.map(_commit_task, committers))
            tasks_done = time.perf_counter()
            job_committer.commitJob(job_context)
            ended = time.perf_counter()
        parts = {"seconds": ended - began, "task_stage_s": tasks_done - began, "job_stage_s": ended - tasks_done}
        self._check_count(job_committer, shape)
        return parts | counted | self._check_output(shape, output, prepared_ns)

    def _uri(self, output: Path) -> str:
        return output.as_uri()

    def _make(self, output: Path) -> None:
        os.mkdir(output)

    def _write(self, datasets: Sequence[tuple[TreeDataset, str]], shape: Shape) -> None:
        """Write those datasets' files, each into its folder."""
        for dataset, folder in datasets:
            write_dataset(dataset, shape, folder)

    def _counting(self) -> AbstractContextManager[Parts]:
        """Count the waiting operations of the block."""
        return counting(self._latency)

    def _check_output(self, shape: Shape, output: Path, since_ns: int) -> Parts:
        """Check the commit that began then by the disk's state."""
        if (output / "_temporary").exists():
            raise WrongResultError(f"{self.name} left its temporary folder")
        renamed = _renamed_since(output, since_ns)
        if renamed != (shape.files_in_all if self._file_by_file else 0):
            raise WrongResultError(f"{self.name} renamed {renamed} files of {shape.files_in_all} one by one")
        return {"files_renamed": float(renamed)}

    def _configuration(self) -> Any:
        configuration = self._jvm.org.apache.hadoop.conf.Configuration(
            self._spark.sparkContext._jsc.hadoopConfiguration()
        )
        for key, value in self._settings().items():
            configuration.set(key, value)
        if self._latency.address:
            net, gateway = self._jvm.java.net, cast("Any", self._spark.sparkContext._gateway)
            urls = gateway.new_array(net.URL, 1)
            urls[0] = net.URL(f"{Path(_delaying_classes().name).as_uri()}/")
            configuration.setClassLoader(net.URLClassLoader(urls, configuration.getClassLoader()))
            configuration.set("fs.file.impl", _DELAYING)
            configuration.set("benchmark.latency.address", self._latency.address)
        return configuration

    def _settings(self) -> dict[str, str]:
        return {
            "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
            "fs.file.impl.disable.cache": "true",
            "mapreduce.job.application.attempt.id": "0",
        }

    def _task(self, output: Path, configuration: Any, task: int) -> tuple[Any, Any]:
        """Return the committer of one task attempt, with its context."""
        mapreduce = self._jvm.org.apache.hadoop.mapreduce
        job = mapreduce.JobID("benchmark", 1)
        attempt = mapreduce.TaskAttemptID(mapreduce.TaskID(job, mapreduce.TaskType.MAP, task), 0)
        own = self._jvm.org.apache.hadoop.conf.Configuration(configuration)
        own.set("mapreduce.task.attempt.id", attempt.toString())
        own.set("mapreduce.job.id", job.toString())
        context = mapreduce.task.TaskAttemptContextImpl(own, attempt)
        path = self._jvm.org.apache.hadoop.fs.Path(self._uri(output))
        return self._committer(path, context), context

    def _committer(self, path: Any, context: Any) -> Any:
        raise NotImplementedError

    def _prepare_output(self, shape: Shape, output: Path) -> None:
        """Prepare the output before the job commits; by default nothing."""

    def _check_count(self, job_committer: Any, shape: Shape) -> None:
        """Check the committer's own counts."""


class FileOutputCommitter(HadoopArm):
    """FileOutputCommitter, algorithm 1 or 2.

    Algorithm 1 renames a whole folder if the target does not exist, and file by file if it does, as in each run of a
    job but the first. `new_folders` measures the former. Otherwise the datasets' folders are created beforehand, which
    spares algorithm 1 its mkdirs. Algorithm 2 always renames file by file, and creates its folders itself.
    """

    def __init__(self, spark: SparkSession, tasks: int, algorithm: int, *, new_folders: bool = False) -> None:
        super().__init__(spark, tasks)
        self._algorithm, self._new_folders = algorithm, new_folders
        self._file_by_file = algorithm == 2 or not new_folders
        self.name = f"v{algorithm}{'_new_folders' if new_folders else ''}"

    def _settings(self) -> dict[str, str]:
        return super()._settings() | {"mapreduce.fileoutputcommitter.algorithm.version": str(self._algorithm)}

    def _committer(self, path: Any, context: Any) -> Any:
        return self._jvm.org.apache.hadoop.mapreduce.lib.output.FileOutputCommitter(path, context)

    def _prepare_output(self, shape: Shape, output: Path) -> None:
        if self._algorithm == 1 and not self._new_folders:
            make_folders(shape, output.parent)


class ManifestCommitter(HadoopArm):
    """The manifest committer, with its own count of renames. `threads` run its job stage, 32 by its own default."""

    name = "manifest"

    def __init__(
        self,
        spark: SparkSession,
        tasks: int,
        *,
        slots: int = _SLOTS,
        threads: int = 32,
        latency: Latency | None = None,
    ) -> None:
        super().__init__(spark, tasks, slots=slots, latency=latency)
        self._threads = threads

    def _settings(self) -> dict[str, str]:
        return super()._settings() | {"mapreduce.manifest.committer.io.threads": str(self._threads)}

    def _committer(self, path: Any, context: Any) -> Any:
        return self._jvm.org.apache.hadoop.mapreduce.lib.output.committer.manifest.ManifestCommitter(path, context)

    def _check_count(self, job_committer: Any, shape: Shape) -> None:
        renames = int(job_committer.getIOStatistics().counters().get("commit_file_rename"))
        if renames != shape.files_in_all + 1:  # and the success marker
            raise WrongResultError(f"the manifest committer counts {renames} renames for {shape.files_in_all} files")


def _commit_task(task: tuple[Any, Any]) -> None:
    committer, context = task
    if not committer.needsTaskCommit(context):
        raise WrongResultError("a task has nothing to commit")
    committer.commitTask(context)


def _renamed_since(output: Path, since_ns: int) -> int:
    """Return how many files were renamed individually since then: that changes a file's ctime, renaming its folder
    does not."""
    changed = 0
    for folder, _, names in os.walk(output):
        if Path(folder) != output:
            changed += sum(1 for name in names if os.stat(f"{folder}/{name}").st_ctime_ns >= since_ns)
    return changed


def _javac() -> str | None:
    """Return the compiler of the running Java."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("javac", path=f"{home}/bin" if home else None)


@cache
def _delaying_classes() -> tempfile.TemporaryDirectory[str]:
    """Return the folder with the compiled waiting file system, which is deleted with this process."""
    compiler, folder = _javac(), tempfile.TemporaryDirectory(prefix="classes-")
    assert compiler is not None
    jars = Path(pyspark.__file__).parent / "jars"
    source = Path(__file__).parents[1] / "java" / f"{_DELAYING}.java"
    subprocess.run([compiler, "-d", folder.name, "-cp", f"{jars}/*", str(source)], check=True)
    return folder
