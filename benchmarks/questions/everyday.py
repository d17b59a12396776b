"""The everyday case: thousands of topics with a little each, into existing folders, run after run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from unittest.mock import patch

from msgspec.structs import replace
from pyspark.sql import SparkSession

from benchmarks.arms.bare import BareRename
from benchmarks.arms.everyday_runs import EverydayJob
from benchmarks.arms.on_hdfs import Hdfs, ManifestOnHdfs, OursOnHdfs
from benchmarks.arms.ours import Ours, no_op_job
from benchmarks.arms.recovery import Recovery
from benchmarks.noise import WIDEST, Ratios, seconds_of
from benchmarks.results import Results, Sample, results_of
from benchmarks.runner import Arm, Tell, alternate, scratch
from benchmarks.session import spark_session
from benchmarks.workloads.everyday_topics import ArrivingRecords, Load
from benchmarks.workloads.tree import Shape
from tests.servers.hdfs import HdfsServer
from tests.servers.kafka import KafkaServer
from tests.servers.process import ServerUnavailableError
from tests.servers.s3 import S3Server

_SLOTS = 2
_NO_OPS = 3
_BROKER_HEAP_MB = 1024
_QUOTIENTS = {
    "ours_into_folders_over_bare_into_folders_2p": ("ours_into_folders", "bare_into_folders_2p"),
    "ours_into_folders_durable_over_bare_into_folders_2p_sync": ("ours_into_folders", "bare_into_folders_2p_sync"),
    "replay_of_half_done_over_first_commit_into_folders": ("replay_half_done_into_folders", "ours_into_folders"),
}
"""Ratios whose names state the comparison: files one by one into existing folders, on both sides."""
_FIGURES = (
    *("commit_share_of_wall", "commit_share_of_wall_with_sync", "sent_to_read_s", "sent_to_published_p50_s"),
    *("sent_to_published_p99_s",),
)
_PER_DATASET = ("requests", "bytes_sent", "bytes_received", "store_bytes_added", "output_bytes_added")
_IDLE = ("ours_s", "in_spark_s", "recover_s", "plan_s", "requests", "cpu_s")
_NOTES = [
    "a run begins as soon as the broker has acknowledged the last record; a schedule's wait is not in it",
    "sent_to_read: to a reader that has opened the cut at the run's end and listed each dataset's files; "
    "sent_to_published: to a dataset's DONE, by datasets, which readers of plain folders see no later",
    "commit_share: sampled in the executors every 5 ms, share of the slots' time in ingest, and all of drain",
    "requests: calls below the file system, on a disk system calls; the driver's from the first Spark job on; "
    "bytes: of those that hand over bytes, which the client of HDFS does not",
    "cpu: this process, Spark's JVM and its Python workers; not the broker, nor servers of HDFS and S3",
    "ours_into_folders_over_bare_into_folders_2p: file by file on both sides and equal work, but ours is durable and "
    "writes ahead, and bare renames sync nothing; ours is less the median of no-op Spark jobs, bare runs without Spark",
    "_durable_over_bare..._sync: bare renames are made durable by one syncfs, too",
    "ours_over_manifest_on_hdfs: file by file into folders that are there; the manifest committer makes nothing "
    "durable and remembers nothing; ours is less the median of no-op Spark jobs, manifest runs without one",
    "replay_of_half_done_over_first_commit: the same datasets and files, half of each bucket's renames done before",
    "idle: a whole run with nothing new; in_spark: as many Spark jobs that do nothing, timed right before; ours: the "
    "rest of it; spark_start, among the samples: the session and its first job, cold",
    f"a figure by a clock is the median, and has _low and _high: the interval of the sign test, at 95 % or the whole "
    f"range; it is null where that is wider than {WIDEST} times",
    "S3 is moto's, in one Python process: its requests count, its times say little",
]


@dataclass(frozen=True, slots=True)
class Asked:
    """Measurements beside those on disk.

    Attributes:
        load: the arriving records of each run.
        runs: measured runs of each place, after one that creates the folders.
        commits: datasets whose commit is measured alone, each with a topic's largest number of files.
        repeats: samples of each arm of those.
        buckets: of each store.
        on_hdfs, on_s3: whether these places are measured too.
        threads: concurrent calls of any arm on HDFS.
    """

    load: Load
    runs: int = 3
    commits: int = 2000
    repeats: int = 5
    buckets: int = 64
    on_hdfs: bool = False
    on_s3: bool = False
    threads: int = 32


class _Places:
    """Places of the job's folders: this machine's disk, and the requested servers."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.roots: dict[str, str] = {}
        self.missing: dict[str, str] = {}
        self.hdfs: HdfsServer | None = None

    def start(self, asked: Asked) -> None:
        """Start the servers; before Spark, whose processes have the environment of this one."""
        self.roots["disk"] = ""
        self.missing |= dict.fromkeys(("hdfs", "s3"), "not asked for")
        if asked.on_hdfs:
            self._try("hdfs", self._start_hdfs)
        if asked.on_s3:
            self._try("s3", self._start_s3)

    def _try(self, place: str, start: Callable[[], str]) -> None:
        try:
            self.roots[place] = start()
            del self.missing[place]
        except ServerUnavailableError as error:
            self.missing[place] = str(error)

    def _start_hdfs(self) -> str:
        self.hdfs = self._stack.enter_context(HdfsServer())
        return f"hdfs://{self.hdfs.authority}/everyday"

    def _start_s3(self) -> str:
        server = self._stack.enter_context(S3Server())
        self._stack.enter_context(patch.dict(os.environ, server.environment))
        return f"s3://{server.make_bucket()}/everyday"


def everyday(asked: Asked, *, folder: Path, tell: Tell) -> Results:
    """Run the product over the arriving records in each place, then idle; and commit such datasets beside bare renames.

    Args:
        asked: the measurements.
        folder: on the measured disk.
        tell: receives each sample.

    Raises:
        ServerUnavailableError: if no Kafka broker is available. If an HDFS or S3 is unavailable, its figures are null.
        WrongResultError: if a run did not publish the sent records.
    """
    ratios, samples = Ratios(), list[Sample]()
    with ExitStack() as stack:
        places = _Places(stack)
        places.start(asked)
        brokers = stack.enter_context(KafkaServer(heap_mb=_BROKER_HEAP_MB, for_long=True)).bootstrap_servers
        began = time.perf_counter()
        spark, partitions = stack.enter_context(spark_session(_SLOTS))
        no_op_job(spark, partitions)
        samples.append(Sample("spark_start", 0, 0, 0, round(time.perf_counter() - began, 6)))

        def no_op_s() -> float:
            return median(no_op_job(spark, partitions) for _ in range(_NO_OPS))

        records = ArrivingRecords(brokers, asked.load)
        tell(f"{asked.load.topics} topics: {records.files_a_run} files, {records.records_a_run} records a run")
        for place, root in places.roots.items():
            with scratch(folder) as own:
                job = EverydayJob(
                    *(spark, _SLOTS, records),
                    place=place,
                    root=root or str(own / "job"),
                    scratch_folder=own,
                    buckets=asked.buckets,
                )
                samples += _runs(job, records, asked.runs, no_op_s, tell)
            _tell_runs(ratios, samples, place, asked.load.topics)
        shape = Shape(asked.commits, asked.load.most_files, asked.buckets, asked.load.seed)
        samples += alternate(_commit_arms(spark, partitions), shape, asked.repeats, folder, tell)
        if places.hdfs is not None:
            arms = _arms_on_hdfs(asked, spark, partitions, Hdfs(places.hdfs))
            on_hdfs = alternate(arms, shape, asked.repeats, folder, tell)
            samples += [replace(sample, arm=f"{sample.arm}_on_hdfs") for sample in on_hdfs]
    _tell_commits(ratios, samples, places.missing)
    return results_of(
        "everyday",
        ratios.found,
        samples,
        seed=asked.load.seed,
        folder=folder,
        parameters=_parameters(asked),
        skipped=ratios.reasons,
        notes=_NOTES,
        noisy=ratios.noisy,
    )


def _runs(
    job: EverydayJob, records: ArrivingRecords, runs: int, no_op_s: Callable[[], float], tell: Tell
) -> list[Sample]:
    """Run once to create the folders, then the counted runs, then as many idle ones; and audit all records."""
    samples: list[Sample] = []
    job.catch_up()
    for repeat in range(-1, runs):
        records.send()
        sample = job.sample(repeat, time.time())
        tell(f"{sample.arm} #{repeat + 1}: {sample.seconds:.2f} s, {sample.parts}")
        if repeat >= 0:  # the first one creates the folders
            samples.append(sample)
    for repeat in range(runs):
        idle = job.idle(repeat, no_op_s())
        tell(f"{idle.arm} #{repeat + 1}: {idle.seconds:.2f} s, {idle.parts}")
        samples.append(idle)
    job.require_exact()
    return samples


def _commit_arms(spark: SparkSession, partitions: int) -> list[Arm]:
    return [
        Ours(spark, partitions, into_folders=True),
        BareRename(2, into_folders=True),
        BareRename(2, into_folders=True, sync=True),
        Recovery(spark, partitions, "replay_half_done_into_folders", 0.5, into_folders=True),
    ]


def _arms_on_hdfs(asked: Asked, spark: SparkSession, partitions: int, hdfs: Hdfs) -> list[Arm]:
    threads = asked.threads
    return [
        OursOnHdfs(spark, partitions, hdfs, threads=threads // _SLOTS, into_folders=True),
        ManifestOnHdfs(spark, partitions, hdfs, slots=_SLOTS, threads=threads),
    ]


def _tell_runs(ratios: Ratios, samples: Sequence[Sample], place: str, topics: int) -> None:
    """Record the ratios of a place's runs."""
    run, idle = f"ours_run_{place}", f"ours_idle_{place}"
    there = {part for sample in samples if sample.arm == run for part in sample.parts}
    ratios.spread(f"run_wall_s_{place}", seconds_of(samples, run))
    for part in _FIGURES:
        if part in there:
            ratios.spread(f"{part}_{place}", seconds_of(samples, run, part))
    ratios.spread(f"cpu_ms_per_dataset_{place}", [s * 1000 / topics for s in seconds_of(samples, run, "cpu_s")])
    for part in _PER_DATASET:
        if part in there and any(seconds_of(samples, run, part)):
            ratios.count(f"{part}_per_dataset_{place}", median(seconds_of(samples, run, part)) / topics)
    ratios.spread(f"idle_wall_s_{place}", seconds_of(samples, idle))
    for part in _IDLE:
        ratios.spread(f"idle_{part}_{place}", seconds_of(samples, idle, part))


def _tell_commits(ratios: Ratios, samples: Sequence[Sample], missing: Mapping[str, str]) -> None:
    """Record quotients of arms that took turns."""
    for name, (above, below) in _QUOTIENTS.items():
        ratios.pairs(name, seconds_of(samples, above), seconds_of(samples, below))
    ours, manifest = "ours_into_folders_on_hdfs", "manifest_on_hdfs"
    for name, part in (("ours_over_manifest_on_hdfs", ""), ("requests_ours_over_manifest_on_hdfs", "requests")):
        if "hdfs" in missing:
            ratios.leave_out(name, missing["hdfs"])
        else:
            ratios.pairs(name, seconds_of(samples, ours, part), seconds_of(samples, manifest, part))


def _parameters(asked: Asked) -> dict[str, str | int | float | list[int]]:
    load = asked.load
    return {
        "topics": load.topics,
        "most_files": load.most_files,
        "records_of_a_file": [load.fewest_records, load.most_records],
        "value_bytes": load.value_bytes,
        "runs": asked.runs,
        "commits": asked.commits,
        "repeats": asked.repeats,
        "buckets": asked.buckets,
        "threads": asked.threads,
    }
