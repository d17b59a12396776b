"""The cost of publishing D datasets of F files, beside bare renames and systems in common use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from msgspec.structs import replace
from pyspark.sql import SparkSession

from benchmarks.arms.bare import BareRename
from benchmarks.arms.file_per_step import FilePerStep
from benchmarks.arms.gobblin import GobblinPattern
from benchmarks.arms.hadoop import FileOutputCommitter, ManifestCommitter
from benchmarks.arms.ours import Ours
from benchmarks.arms.table_formats import DeltaLake, PyIceberg
from benchmarks.arms.while_writing import WhileWriting
from benchmarks.results import Results, Sample, medians, quotients, results_of
from benchmarks.runner import Arm, Tell, alternate
from benchmarks.session import spark_session
from benchmarks.workloads.tree import Shape
from distcommit.fs.local_disk.local_file_system import LocalFileSystem

_RATIOS = (
    *(("ours", f"bare_{arm}") for arm in ("2p", "1p", "2p_sync", "1p_sync")),
    ("ours_not_durable", "bare_2p"),
    ("ours", "bare_folders_2p_sync"),
    ("ours_into_folders", "bare_into_folders_2p"),
    ("ours_into_folders", "bare_into_folders_2p_sync"),
    ("ours_while_writing", "bare_2p_sync_while_writing"),
)
_PEERS = (
    *("gobblin", "gobblin_fsync", "gobblin_20t", "gobblin_fsync_20t", "file_per_step_fsync"),
    *("v1", "v1_new_folders", "v2", "manifest", "manifest_job_stage"),
    *("deltalake", "deltalake_one_table", "pyiceberg"),
)
_AT_MOST = {
    **dict.fromkeys(("file_per_step_fsync", "pyiceberg"), 500),
    **dict.fromkeys(("gobblin", "gobblin_20t", "gobblin_fsync", "gobblin_fsync_20t"), 1000),
    **dict.fromkeys(("v1", "v1_new_folders", "v2", "manifest", "deltalake"), 1000),
}
"""Datasets for peers whose cost grows with their number alone, so that the whole question takes minutes, not hours."""
_MARGINAL_REPEATS = 5
_NOTES = [
    "ours: the drain job of the product on Spark, less the median of no-op jobs of the same shape (parts.no_op_job_s)",
    "ours renames a new dataset's folder as a whole; into_folders: folders are there, files go one by one",
    "bare_folders: bare renames of whole folders",
    "gobblin, file_per_step: the call patterns in plain Python without Spark or Hadoop; 20t: 20 threads",
    "v1: into folders that are there, file by file; v1_new_folders: whole folders, as no dataset was there before",
    "v1, v2, manifest: on the raw local file system, nothing synced; task commits in 2 threads, then the job commit",
    "deltalake, pyiceberg: files stay where they are, nothing synced, readers see all or nothing",
]


def all_arms(spark: SparkSession, partitions: int) -> list[Arm]:
    """Return every arm."""
    return [
        *(BareRename(processes, sync=sync) for processes in (1, 2) for sync in (False, True)),
        *(BareRename(2, sync=sync, into_folders=True) for sync in (False, True)),
        BareRename(2, sync=True, folders=True),
        Ours(spark, partitions),
        Ours(spark, partitions, into_folders=True),
        Ours(spark, partitions, name="ours_not_durable", fs=LocalFileSystem(durable=False)),
        WhileWriting(Ours(spark, partitions)),
        WhileWriting(BareRename(2, sync=True)),
        *(GobblinPattern(fsync=fsync, threads=threads) for threads in (1, 20) for fsync in (False, True)),
        FilePerStep(),
        FileOutputCommitter(spark, partitions, 1),
        FileOutputCommitter(spark, partitions, 1, new_folders=True),
        FileOutputCommitter(spark, partitions, 2),
        ManifestCommitter(spark, partitions),
        DeltaLake(),
        DeltaLake(one_table=True),
        PyIceberg(),
    ]


def commit(
    shape: Shape, *, repeats: int, marginal_datasets: int, only: Sequence[str], folder: Path, tell: Tell
) -> Results:
    """Measure the arms on that shape.

    Args:
        shape: the tree.
        repeats: samples of each arm.
        marginal_datasets: a second, larger size for the product and the limit, five samples at most; 0 for none.
        only: names of arms; empty for all.
        folder: on the measured disk.
        tell: receives each sample.
    """
    with spark_session() as (spark, partitions):
        requested = [arm for arm in all_arms(spark, partitions) if not only or arm.name in only]
        skipped = {arm.name: reason for arm in requested if (reason := arm.missing())}
        ready = [arm for arm in requested if arm.name not in skipped]
        samples = alternate(ready, shape, repeats, folder, tell, _AT_MOST)
        smaller = {sample.arm: sample.datasets for sample in samples if sample.datasets < shape.datasets}
        if marginal_datasets:
            larger = Shape(marginal_datasets, shape.files, shape.buckets, shape.seed)
            pair: list[Arm] = [BareRename(2), Ours(spark, partitions)]
            samples += alternate(pair, larger, min(repeats, _MARGINAL_REPEATS), folder, tell)
    return results_of(
        "commit",
        ratios(samples, shape.datasets, marginal_datasets),
        samples,
        seed=shape.seed,
        folder=folder,
        parameters={
            "datasets": shape.datasets,
            "files": shape.files,
            "buckets": shape.buckets,
            "partitions": partitions,
            "repeats": repeats,
            "marginal_datasets": marginal_datasets,
        },
        skipped=skipped,
        notes=[
            *_NOTES,
            *(
                f"scaled: {arm} published {size} datasets; its ratios compare per dataset"
                for arm, size in smaller.items()
            ),
            *_too_small(samples),
        ],
    )


def ratios(samples: Sequence[Sample], datasets: int, marginal_datasets: int) -> dict[str, float]:
    """Return the quotients of the medians per dataset, as far as both sides were measured."""
    seconds = medians(samples, datasets)
    per_dataset = medians(replace(s, seconds=s.seconds / s.datasets) for s in samples if s.datasets <= datasets)
    stages = [s.parts["job_stage_s"] / s.datasets for s in samples if s.arm == "manifest" and s.datasets <= datasets]
    if stages:
        per_dataset["manifest_job_stage"] = median(stages)
    values = quotients(per_dataset, [*_RATIOS, *((peer, "ours") for peer in _PEERS)])
    larger = medians(samples, marginal_datasets) if marginal_datasets else {}
    if {"ours", "bare_2p"} <= larger.keys() & seconds.keys():
        added = {arm: larger[arm] - seconds[arm] for arm in ("ours", "bare_2p")}
        values["marginal_ours_over_bare_2p"] = added["ours"] / added["bare_2p"]
    return values


def _too_small(samples: Sequence[Sample]) -> list[str]:
    """Add a note if the subtracted time exceeds the remaining one."""
    small = [s for s in samples if s.seconds < s.parts.get("no_op_job_s", 0)]
    if not small:
        return []
    return [f"TOO SMALL: in {len(small)} samples of ours the no-op job took longer than the rest; ratios mean little"]
