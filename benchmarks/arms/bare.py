"""The lower bound: a loop of renames that creates and removes its folders, and nothing else."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.runner import Arm, Parts, WrongResultError
from benchmarks.workloads.latency import Latency, NoLatency, Wait
from benchmarks.workloads.tree import Shape, files_left, make_folders, tree_datasets, write_staged
from distcommit.fs.local_disk.posix_calls import RealPosixCalls


class BareRename(Arm):
    """Renames in that many processes, each with its own buckets.

    The processes and their work are ready before the clock starts. With `sync` one `syncfs` ends it. `into_folders`:
    the targets' folders exist already. `folders`: whole folders are renamed. With a latency each operation waits, and
    each process moves `threads` datasets at a time.
    """

    def __init__(
        self,
        processes: int,
        *,
        sync: bool = False,
        into_folders: bool = False,
        folders: bool = False,
        threads: int = 1,
        latency: Latency | None = None,
    ) -> None:
        self._processes, self._sync, self._into_folders, self._folders = processes, sync, into_folders, folders
        self._threads, self._latency = threads, latency or NoLatency()
        kind = "_into_folders" if into_folders else "_folders" if folders else ""
        self.name = f"bare{kind}_{processes}p{f'_{threads}t' if threads > 1 else ''}{'_sync' if sync else ''}"

    def publish(self, shape: Shape, root: Path) -> Parts:
        if self._into_folders:
            make_folders(shape, root)
        write_staged(shape, root)
        context = multiprocessing.get_context("spawn")  # the JVM's threads and sockets must not be forked
        pipes = [context.Pipe() for _ in range(self._processes)]
        moving = (self._folders, self._threads, self._latency.wait)
        workers = [
            context.Process(target=_worker, args=(far, shape, str(root), share, self._processes, *moving))
            for share, (_, far) in enumerate(pipes)
        ]
        for worker in workers:
            worker.start()
        for near, _ in pipes:
            near.recv()
        self._latency.take()
        began = time.perf_counter()
        for near, _ in pipes:
            near.send(True)
        for near, _ in pipes:
            near.recv()
        with suppress(FileNotFoundError):
            for epoch in os.listdir(root / "staging"):
                os.rmdir(root / "staging" / epoch)
        synced = time.perf_counter()
        if self._sync:
            RealPosixCalls().syncfs(str(root))
        ended = time.perf_counter()
        for worker in workers:
            worker.join()
        if remaining := files_left(root / "staging"):
            raise WrongResultError(f"{self.name} left {remaining} files and folders in staging")
        return {"seconds": ended - began, "sync_s": ended - synced} | self._latency.take()


_Work = tuple[str, str, list[tuple[str, str]]]
"""The staged folder, the final one, and the names to rename."""


def _worker(
    pipe: Connection, shape: Shape, root: str, share: int, shares: int, folders: bool, threads: int, wait: Wait | None
) -> None:
    work: list[_Work] = []
    buckets: set[str] = set()
    for dataset in tree_datasets(shape):
        if dataset.bucket % shares == share:
            source, target = f"{root}/staging/{dataset.staged}", f"{root}/output/{dataset.folder}"
            names = dataset.names(shape.files)
            work.append((source, target, [(f"{source}/{name}", f"{target}/{name}") for name in names]))
            buckets.add(os.path.dirname(source))
    gc.collect()
    gc.freeze()
    pipe.send(True)
    pipe.recv()
    if wait is None:
        _move_all(work, buckets, folders)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(partial(_move_far, wait, folders), work))
            list(pool.map(partial(_remove_far, wait), buckets))
    pipe.send(True)


def _move_all(work: list[_Work], buckets: set[str], folders: bool) -> None:
    for source, target, renames in work:
        if folders:
            os.rename(source, target)
            continue
        with suppress(FileExistsError):
            os.mkdir(target)
        for old, new in renames:
            os.rename(old, new)
        os.rmdir(source)
    for bucket in buckets:
        os.rmdir(bucket)


def _move_far(wait: Wait, folders: bool, work: _Work) -> None:
    source, target, renames = work
    if folders:
        wait("rename")
        os.rename(source, target)
        return
    wait("mkdir")
    with suppress(FileExistsError):
        os.mkdir(target)
    for old, new in renames:
        wait("rename")
        os.rename(old, new)
    _remove_far(wait, source)


def _remove_far(wait: Wait, folder: str) -> None:
    wait("rmdir")
    os.rmdir(folder)
