"""The original design as in Apache Gobblin: everything on the driver, one dataset after the other.

It models the call pattern, not the code. There is a JSON store file for each dataset, probes before and after each
action, renames, a state file with its alias, and the deletion of the store file. These are 34 + 4k system calls for a
dataset with k files, which `tests/benchmarks` counts with strace. It runs in Python without Hadoop's layers, and so
much faster than the original (108 to 123 datasets/s there).
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from benchmarks.runner import Arm, Parts, WrongResultError
from benchmarks.workloads.latency import Latency, NoLatency, Wait
from benchmarks.workloads.tree import Shape, TreeDataset, files_left, tree_datasets, write_staged

CALLS_PER_DATASET, CALLS_PER_FILE = 34, 4
"""System calls on files, without those that sync."""


class GobblinPattern(Arm):
    """The original design on a driver.

    `fsync` makes it safe against power loss at the least cost: store file, state file, and the three changed folders
    are synced. `threads` commit datasets at a time (Gobblin's own default is 20). With a latency each operation of the
    file system waits; syncing does not.
    """

    def __init__(self, *, fsync: bool, threads: int = 1, latency: Latency | None = None) -> None:
        self._fsync, self._threads, self._latency = fsync, threads, latency or NoLatency()
        self.name = "gobblin" + ("_fsync" if fsync else "") + (f"_{threads}t" if threads > 1 else "")

    def publish(self, shape: Shape, root: Path) -> Parts:
        write_staged(shape, root)
        for folder in ("store", "state"):
            os.mkdir(root / folder)
        work = list(tree_datasets(shape))
        wait = self._latency.wait or no_wait
        commit = partial(commit_dataset, str(root), files=shape.files, fsync=self._fsync, wait=wait)
        gc.collect()
        self._latency.take()
        began = time.perf_counter()
        if self._threads == 1:
            for dataset in work:
                commit(dataset)
        else:
            with ThreadPoolExecutor(self._threads) as pool:
                list(pool.map(commit, work))
        remove_empty_parents(root, work)
        seconds = time.perf_counter() - began
        if remaining := files_left(root / "staging") + files_left(root / "store"):
            raise WrongResultError(f"{self.name} left {remaining} files and folders")
        return {"seconds": seconds} | self._latency.take()


def no_wait(kind: str) -> None:
    """Do not wait: operations have their local latency."""


def commit_dataset(root: str, dataset: TreeDataset, files: int, *, fsync: bool, wait: Wait = no_wait) -> None:
    """Commit one dataset, from its task states to its state file. `wait` is called before each operation."""
    staged, target = f"{root}/staging/{dataset.staged}", f"{root}/output/{dataset.folder}"
    store_file, state_folder = f"{root}/store/{dataset.folder}", f"{root}/state/{dataset.folder}"
    steps = [(f"{staged}/{name}", f"{target}/{name}") for name in dataset.names(files)]

    def exists(path: str) -> bool:
        wait("stat")
        return os.path.exists(path)

    def write(path: str, data: bytes, *, fsync: bool) -> None:
        wait("create")
        write_file(path, data, fsync=fsync)

    exists(f"{root}/store")
    exists(store_file)
    write(store_file, _sequence(dataset, steps), fsync=fsync)
    if fsync:
        sync_folder(f"{root}/store")
    exists(store_file)
    wait("open")
    read_file(store_file)
    exists(target)
    wait("mkdir")
    os.mkdir(target)
    for source, published in steps:
        exists(published)
        exists(source)
        exists(os.path.dirname(published))
        wait("rename")
        os.rename(source, published)
    if fsync:
        sync_folder(target)

    state_file, alias = f"{state_folder}/{dataset.attempt}.jst", f"{state_folder}/current.jst"
    state = json.dumps({"dataset": dataset.urn, "watermark": files, "state": "COMMITTED"}).encode()
    exists(state_folder)
    wait("mkdir")
    os.mkdir(state_folder)
    exists(state_file)
    write(f"{state_file}.tmp", state, fsync=fsync)
    exists(state_file)
    wait("rename")
    os.rename(f"{state_file}.tmp", state_file)
    exists(alias)
    write(alias, state, fsync=False)
    if fsync:
        sync_folder(state_folder)

    exists(store_file)
    wait("unlink")
    os.unlink(store_file)
    exists(staged)
    wait("list")
    list_folder(staged)
    wait("rmdir")
    os.rmdir(staged)


def remove_empty_parents(root: Path, work: Sequence[TreeDataset]) -> None:
    """Remove the folders above the staged ones."""
    for folder in sorted({os.path.dirname(dataset.staged) for dataset in work}):
        os.rmdir(root / "staging" / folder)
        with suppress(OSError):
            os.rmdir(root / "staging" / os.path.dirname(folder))


def write_file(path: str, data: bytes, *, fsync: bool) -> None:
    """Write a new file, in place: open, write, close."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    os.write(fd, data)
    if fsync:
        os.fsync(fd)
    os.close(fd)


def read_file(path: str) -> bytes:
    """Read a whole file: open, fstat, read, read, close."""
    fd = os.open(path, os.O_RDONLY)
    data = os.read(fd, os.fstat(fd).st_size)
    os.read(fd, 1)
    os.close(fd)
    return data


def list_folder(path: str) -> list[str]:
    """Return the names in a folder: open, fstat, getdents twice (once if it is empty), close."""
    return os.listdir(path)


def sync_folder(path: str) -> None:
    """Make a folder's names durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)


def _sequence(dataset: TreeDataset, steps: Sequence[tuple[str, str]]) -> bytes:
    """Return the commit sequence as JSON, at least as large as Gobblin's."""
    renames = [{"type": "FsRenameCommitStep", "src": source, "dst": target} for source, target in steps]
    return json.dumps({"job": "benchmark", "dataset": dataset.urn, "steps": renames}).encode()
