"""The cost of publishing on HDFS: by threads beside a bare loop of the same client, and in NameNode operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from benchmarks.arms.renames import BareRenames, Renames, StepRenames, rename_all
from benchmarks.results import Results, Sample, medians, results_of, slope
from benchmarks.runner import Tell, WrongResultError
from benchmarks.workloads.hdfs_tree import stage
from benchmarks.workloads.ingested import ingested_there
from benchmarks.workloads.name_node import operations_of
from benchmarks.workloads.tree import Shape, tree_datasets
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.driver.task_reports import Report
from distcommit.fs.hadoop.hdfs_file_system import HdfsFileSystem
from distcommit.fs.hadoop.hdfs_rpc import HdfsRpc
from distcommit.fs.hadoop.webhdfs import WebHdfs
from tests.servers.hdfs import HdfsServer
from tests.simulation.world import launch_here

Calls = HdfsRpc | WebHdfs
_ARMS: dict[str, type[Renames]] = {"ours": StepRenames, "bare": BareRenames}
_WARM_UP = Shape(7, 4, 2)
_BACK_THREADS = 16
_NOTES = [
    "one client process, NameNode and DataNodes on the same machine; files are empty, and are moved back in between",
    "into folders that are there, file by file; a new dataset's folder is one rename, which no bare loop of files does",
    "operations: what the NameNode counted while one process sealed and committed a run whose ingest had ended, as"
    " slopes over the number of datasets; `requests` are all that it was asked, also by DataNodes on behalf of WebHDFS",
]


def hdfs(
    shape: Shape,
    *,
    threads: Sequence[int],
    sizes: Sequence[int],
    files: int,
    repeats: int,
    folder: Path,
    tell: Tell,
) -> Results:
    """Start an HDFS and measure both.

    Args:
        shape: the tree whose files are renamed.
        threads: numbers of concurrent renames.
        sizes: numbers of datasets of the runs whose operations are counted, two at least.
        files: files of each of those datasets.
        repeats: samples of each arm and number of threads.
        folder: for the description of this machine; the servers' folders are below TMPDIR.
        tell: receives each sample.

    Raises:
        ServerUnavailableError: if no HDFS is available.
    """
    samples: list[Sample] = []
    ratios: dict[str, float] = {}
    with HdfsServer() as server:
        for calls in (HdfsRpc(server.authority), WebHdfs(server.web_authority)):
            timed = _renames(calls, HdfsRpc(server.authority), shape, threads, repeats, tell)
            seconds = medians(timed)
            for number in threads:
                ours, bare = (seconds[f"{calls.scheme}_{arm}_{number}t"] for arm in _ARMS)
                ratios[f"{calls.scheme}_speed_ours_over_bare_{number}t"] = bare / ours
                ratios[f"{calls.scheme}_renames_per_s_{number}t"] = shape.files_in_all / ours
            samples += timed
        for calls in (HdfsRpc(server.authority), WebHdfs(server.web_authority)):
            for into_folders in (False, True):
                counted = [
                    _count(server, calls, Shape(size, files, shape.buckets, shape.seed), into_folders, tell)
                    for size in sizes
                ]
                kind = f"{calls.scheme}_into_folders" if into_folders else calls.scheme
                for name in sorted({name for sample in counted for name in sample.parts}):
                    per_dataset = slope((float(s.datasets), s.parts.get(name, 0.0)) for s in counted)
                    ratios[f"{kind}_{name}_per_dataset"] = per_dataset
                samples += counted
    return results_of(
        "hdfs",
        ratios,
        samples,
        seed=shape.seed,
        folder=folder,
        parameters={
            "datasets": shape.datasets,
            "files": shape.files,
            "buckets": shape.buckets,
            "threads": list(threads),
            "sizes": list(sizes),
            "files_counted": files,
            "repeats": repeats,
        },
        notes=_NOTES,
    )


def _renames(
    calls: Calls, preparing: Calls, shape: Shape, threads: Sequence[int], repeats: int, tell: Tell
) -> list[Sample]:
    """Measure both arms in turn on the same files, at each number of threads."""
    fs, samples = HdfsFileSystem(preparing), list[Sample]()
    for size, numbers in ((_WARM_UP, [_BACK_THREADS]), (shape, threads)):
        root = f"/renames/{calls.scheme}-{size.datasets}"
        context = StepContext(fs, f"{root}/staging", f"{root}/output")
        staged = stage(fs, size, context.staging_root, empty=True)
        for dataset in tree_datasets(size):
            fs.make_folders(f"{context.output_root}/{dataset.folder}")
        back = [
            (f"{context.output_root}/{file.final_path}", f"{context.staging_root}/{file.staged_path}")
            for listed in staged.values()
            for file in listed
        ]
        for number, repeat in product(numbers, range(repeats)):
            for name in list(_ARMS)[:: 1 if repeat % 2 else -1]:
                seconds = _ARMS[name](calls, number, context).move(staged)
                _check(fs, context, size)
                rename_all(preparing, _BACK_THREADS, back)
                if numbers is threads:
                    arm = f"{calls.scheme}_{name}_{number}t"
                    tell(f"{arm} #{repeat + 1}: {seconds:.3f} s, {size.files_in_all / seconds:,.0f} renames/s")
                    samples.append(Sample(arm, size.datasets, size.files, repeat, round(seconds, 6)))
    return samples


def _check(fs: HdfsFileSystem, context: StepContext, shape: Shape) -> None:
    """Require that every file is published, and none is left in staging.

    Raises:
        WrongResultError: if not.
    """
    for dataset in tree_datasets(shape):
        names = [entry.name for entry in fs.list_folder(f"{context.output_root}/{dataset.folder}")]
        if sorted(names) != dataset.names(shape.files):
            raise WrongResultError(f"{dataset.folder} has {len(names)} files, expected {shape.files}")
        if remaining := fs.list_folder(f"{context.staging_root}/{dataset.staged}"):
            raise WrongResultError(f"{dataset.staged} still has {len(remaining)} files")


def _count(server: HdfsServer, calls: Calls, shape: Shape, into_folders: bool, tell: Tell) -> Sample:
    """Return the NameNode's counts while a run is drained in this process."""
    fs = HdfsFileSystem(calls)
    into = "_into_folders" if into_folders else ""
    root = f"/counted/{calls.scheme}-{shape.datasets}{into.replace('_', '-')}"
    settings = ingested_there(shape, root, 1, fs)
    if into_folders:
        for dataset in tree_datasets(shape):
            fs.make_folders(f"{root}/output/{dataset.folder}")
    before = operations_of(server)
    [report] = launch_here(drain_partition, settings, 1, Report)
    counted: Counter[str] = operations_of(server) - before
    if report.counts.datasets_published != shape.datasets:
        raise WrongResultError(f"{report.counts.datasets_published} of {shape.datasets} datasets published")
    tell(f"{calls.scheme}, {shape.datasets} x {shape.files}{into.replace('_', ' ')}: {dict(counted)}")
    arm = f"{calls.scheme}_drain{into}"
    return Sample(arm, shape.datasets, shape.files, 0, 0.0, {name: float(n) for name, n in sorted(counted.items())})
