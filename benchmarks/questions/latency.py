"""The cost of publishing with slow metadata operations, and the same threads in every arm."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from benchmarks.arms.bare import BareRename
from benchmarks.arms.gobblin import GobblinPattern
from benchmarks.arms.hadoop import ManifestCommitter
from benchmarks.arms.on_hdfs import BareOnHdfs, Hdfs, ManifestOnHdfs, OursOnHdfs
from benchmarks.arms.ours import Ours
from benchmarks.results import Parameters, Results, Sample, medians, results_of
from benchmarks.runner import Arm, Tell, WrongResultError, alternate
from benchmarks.session import session_or
from benchmarks.workloads.latency import Latency, LatencyServer, far_file_system
from benchmarks.workloads.tree import Shape
from tests.servers.hdfs import HdfsServer

_OURS = ("ours", "ours_into_folders")
_NOTES = [
    "ours: less the median of no-op jobs of the same shape (parts.no_op_job_s; parts.wall_s is all of it)",
    "each operation on names, and each sync, waits in a server process; it counts them, and how many wait at a time",
    "threads are shared out: ours has threads / slots in each Spark slot, bare threads / 2 in each of 2 processes",
    "manifest: task commits in as many threads as there are slots, its job stage in all the threads; nothing synced",
    "ours renames a new dataset's folder as a whole; into_folders: folders are there, files go one by one",
    "a listing, a recursive delete and a mkdirs are one operation each, as on HDFS; ours syncs, the others do not",
]
_NOTES_ON_HDFS = [
    "ours: less the median of no-op jobs of the same shape (parts.no_op_job_s; parts.wall_s is all of it)",
    "NameNode, DataNodes, Spark and clients share this machine: what is left of a core decides, not a network",
    "ours and bare use hdfs-native, bare without Spark; manifest uses Hadoop's own client, in the JVM of the driver",
    "files are empty; ours makes two segments of its log for each bucket durable on both DataNodes, the others nothing",
    "requests: all that the NameNode was asked by RPC meanwhile, by its own count",
    _NOTES[4],
]


def far_arms(spark: SparkSession, partitions: int, latency: Latency, *, threads: int, slots: int) -> list[Arm]:
    """Return the arms, each with at most that many concurrent operations."""
    fs = far_file_system(latency, threads // slots)
    return [
        Ours(spark, partitions, fs=fs, latency=latency),
        Ours(spark, partitions, fs=fs, latency=latency, into_folders=True),
        BareRename(2, threads=threads // 2, latency=latency),
        BareRename(2, folders=True, threads=threads // 2, latency=latency),
        ManifestCommitter(spark, partitions, slots=slots, threads=threads, latency=latency),
        GobblinPattern(fsync=False, threads=threads, latency=latency),
    ]


def latency(
    shape: Shape,
    *,
    delay_ms: float,
    threads: int,
    slots: int,
    repeats: int,
    folder: Path,
    tell: Tell,
    spark: SparkSession | None = None,
) -> Results:
    """Measure the arms on that shape, and count their waits.

    Args:
        shape: the tree.
        delay_ms: the wait of each operation.
        threads: concurrent operations of any arm; a multiple of `slots` and of 2.
        slots: Spark slots.
        repeats: samples of each arm.
        folder: on the measured disk.
        tell: receives each sample.
        spark: a session to use; it has that many slots.

    Raises:
        WrongResultError: if an arm had more concurrent operations, or fewer in all than it has files.
    """
    if threads % slots or threads % 2:
        raise ValueError(f"{threads} threads can't be shared out among {slots} slots and 2 processes")
    with ExitStack() as stack:
        server = stack.enter_context(LatencyServer(delay_ms / 1000))
        session, partitions = stack.enter_context(session_or(spark, slots))
        arms = far_arms(session, partitions, server, threads=threads, slots=slots)
        skipped = {arm.name: reason for arm in arms if (reason := arm.missing())}
        samples = alternate([arm for arm in arms if arm.name not in skipped], shape, repeats, folder, tell)
    for sample in samples:
        check(sample, shape, threads)
    return results_of(
        "latency",
        ratios(samples, shape),
        samples,
        seed=shape.seed,
        folder=folder,
        parameters=_parameters(shape, partitions, repeats, threads, slots) | {"delay_ms": delay_ms},
        skipped=skipped,
        notes=_NOTES,
    )


def latency_on_hdfs(
    shape: Shape,
    *,
    threads: int,
    slots: int,
    repeats: int,
    folder: Path,
    tell: Tell,
    spark: SparkSession | None = None,
) -> Results:
    """Measure the arms on an HDFS that is started for it; arguments as for `latency`.

    Raises:
        WrongResultError: if the NameNode counts fewer renames of an arm than required.
        ServerUnavailableError: if no HDFS is available.
    """
    with HdfsServer() as server, session_or(spark, slots) as (session, partitions):
        hdfs = Hdfs(server)
        arms = [
            OursOnHdfs(session, partitions, hdfs, threads=threads // slots),
            OursOnHdfs(session, partitions, hdfs, threads=threads // slots, into_folders=True),
            BareOnHdfs(hdfs, threads=threads),
            BareOnHdfs(hdfs, threads=threads, folders=True),
            ManifestOnHdfs(session, partitions, hdfs, slots=slots, threads=threads),
        ]
        samples = alternate(arms, shape, repeats, folder, tell)
    for sample in samples:
        _check_renames(sample, shape)
    return results_of(
        "latency_on_hdfs",
        ratios(samples, shape, "requests"),
        samples,
        seed=shape.seed,
        folder=folder,
        parameters=_parameters(shape, partitions, repeats, threads, slots),
        notes=_NOTES_ON_HDFS,
    )


def _parameters(shape: Shape, partitions: int, repeats: int, threads: int, slots: int) -> Parameters:
    return {
        "datasets": shape.datasets,
        "files": shape.files,
        "buckets": shape.buckets,
        "partitions": partitions,
        "repeats": repeats,
        "threads": threads,
        "slots": slots,
    }


def check(sample: Sample, shape: Shape, threads: int) -> None:
    """Require that every rename waited, and never more of them at a time than allowed."""
    _check_renames(sample, shape)
    most = sample.parts["most_at_a_time"]
    if most > threads:
        raise WrongResultError(f"{sample.arm}: {most:.0f} operations at a time, expected {threads} at most")


def _check_renames(sample: Sample, shape: Shape) -> None:
    renames = sample.parts["operations_rename"]
    least = shape.datasets if sample.arm == "ours" or sample.arm.startswith("bare_folders") else shape.files_in_all
    if renames < least:
        raise WrongResultError(f"{sample.arm}: {renames:.0f} renames, expected {least} at least")


def ratios(samples: Sequence[Sample], shape: Shape, counted: str = "operations") -> dict[str, float]:
    """Return quotients of medians of seconds and of counts, and the counts for each dataset."""
    seconds = medians(samples)
    operations = {arm: median(s.parts[counted] for s in samples if s.arm == arm) for arm in seconds}
    pairs = [(ours, peer) for ours in _OURS for peer in seconds if ours in seconds and peer not in _OURS]
    results = {f"latency_{ours}_over_{peer}": seconds[ours] / seconds[peer] for ours, peer in pairs}
    results |= {f"{counted}_{ours}_over_{peer}": operations[ours] / operations[peer] for ours, peer in pairs}
    return results | {f"{counted}_per_dataset_{arm}": count / shape.datasets for arm, count in operations.items()}
