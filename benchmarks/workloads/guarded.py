"""A program: small samples of commit, recovery and ingest in one process, of the tree on its path.

It is run by its path, with the measured tree on PYTHONPATH, so that the same program measures an older tree: `python -P
guarded.py TREE FOLDER`. Each line of its input requests a sample by name and size. It answers in a line with the
seconds, by the processor and by the clock, and the system calls. Spark is not used. The product's own functions run on
the real file system, without waiting for the disk.
"""

from __future__ import annotations

import gc
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import distcommit
from benchmarks.workloads.calls import ObservedCalls
from benchmarks.workloads.ingested import JOB, ingested_there, launch_here, roots_of, run_settings
from benchmarks.workloads.source import NumberedSource
from benchmarks.workloads.tree import Shape, make_folders
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.committing.recover import recover_partition
from distcommit.engine.driver.run import recover, run
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.stores.logs.fencing import fence_job
from distcommit.stores.state.job_store import open_store

_FILES, _RECORDS = 4, 250


class Killed(BaseException):
    """Simulated end of the process, which no handler catches."""


class GuardedCalls(ObservedCalls):
    """The kernel's calls, counted.

    Syncs are counted and not made: the disk's time is not the tree's. After `left` renames in all, the process ends at
    the next.
    """

    left, count = -1, 0

    def observe(self, kind: str) -> None:
        self.count += 1
        if kind == "rename":
            if self.left == 0:
                raise Killed
            self.left -= 1

    def fsync(self, fd: int) -> None:
        self.observe("fsync")

    def fsync_folder(self, path: str) -> None:
        self.observe("fsync_folder")

    def syncfs(self, path: str) -> None:
        self.observe("syncfs")


class WrongSampleError(Exception):
    """A sample did not do its work."""


class Measured:
    """Costs of a block: seconds of processor and by the clock, and the calls of its file system."""

    def __init__(self) -> None:
        self.calls = GuardedCalls()
        self.fs = LocalFileSystem(self.calls)
        self.took: dict[str, float] = {}

    @contextmanager
    def block(self) -> Iterator[None]:
        """Measure the block."""
        gc.collect()
        before, wall, cpu = self.calls.count, time.perf_counter(), time.process_time()
        yield
        self.took = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
        self.took["calls"] = float(self.calls.count - before)


def commit(datasets: int, root: Path, *, into_folders: bool = False) -> dict[str, float]:
    """Sample a run's drain, from task states to the last DONE: whole folders, or file by file into existing folders."""
    shape, measured = Shape(datasets, _FILES, 8), Measured()
    if into_folders:
        make_folders(shape, root)
    settings = ingested_there(shape, str(root), 1, measured.fs)
    with measured.block():
        report = drain_partition(settings, 0)
    if report.counts.datasets_published != datasets:
        raise WrongSampleError(f"{report.counts.datasets_published} of {datasets} published")
    return measured.took


def replay(datasets: int, root: Path) -> dict[str, float]:
    """Sample the recovery of datasets that a killed run had sealed, bucket by bucket, and published half of."""
    shape, measured = Shape(datasets, _FILES, 8), Measured()
    killed = ingested_there(shape, str(root), shape.buckets, measured.fs)
    for bucket in range(shape.buckets):
        measured.calls.left = datasets // shape.buckets // 2
        try:
            drain_partition(killed, bucket)
        except Killed:
            continue
    measured.calls.left = -1
    run_id = f"{killed.run_id}-again"
    settings = replace(killed, run_id=run_id, epoch=fence_job(killed.store, run_id), partitions=1)
    with measured.block():
        report = recover_partition(settings, 0).report
    if not report.counts.sequences_replayed or report.reasons:
        raise WrongSampleError(f"{report.counts.sequences_replayed} sequences replayed: {report.reasons}")
    return measured.took


def ingest(datasets: int, root: Path) -> dict[str, float]:
    """Sample a whole run: recover, plan, read, write Parquet, commit."""
    measured = Measured()
    store = open_store(measured.fs, roots_of(root), JOB, 8, create=True)
    settings = run_settings(store, NumberedSource(datasets, _RECORDS), 1)
    with measured.block():
        result = run(launch_here, settings)
    if result.totals.datasets_published != datasets:
        raise WrongSampleError(f"{result.totals.datasets_published} of {datasets} published")
    return measured.took


def idle(datasets: int, root: Path) -> dict[str, float]:
    """Sample the recovery of 64 buckets with nothing pending, after a run over the datasets."""
    measured = Measured()
    store = open_store(measured.fs, roots_of(root), JOB, 64, create=True)
    run(launch_here, run_settings(store, NumberedSource(datasets, 1), 1))
    settings = run_settings(store, NumberedSource(0), 1)
    with measured.block():
        result = recover(launch_here, settings)
    if not result.succeeded:
        raise WrongSampleError(f"an idle recovery did not succeed: {result.reasons.entries}")
    return measured.took


def commit_into_folders(datasets: int, root: Path) -> dict[str, float]:
    """Sample `commit` into existing folders."""
    return commit(datasets, root, into_folders=True)


SAMPLES: dict[str, Callable[[int, Path], dict[str, float]]] = {
    sample.__name__: sample for sample in (commit, commit_into_folders, replay, ingest, idle)
}


def main(tree: str, folder: str) -> None:
    """Answer requests until the input ends."""
    file = Path(distcommit.__file__).parents[1]
    if file != Path(tree).resolve():
        raise SystemExit(f"the product is that of {file}, expected {tree}")
    for line in sys.stdin:
        name, datasets = line.split()
        root = Path(tempfile.mkdtemp(prefix="guard-", dir=folder))
        try:
            answer = SAMPLES[name](int(datasets), root)
        finally:
            shutil.rmtree(root, ignore_errors=True)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
