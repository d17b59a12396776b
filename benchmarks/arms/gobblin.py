"""The original design as Apache Gobblin has it: all on the driver, one dataset after the other.

A model of its call pattern, not its code: a JSON store file for each dataset, probes before and after everything it
does, renames, a state file with its alias, and the store file deleted. 34 + 4k system calls for a dataset with k
files, which `tests/benchmarks` counts with strace. It runs in Python without Hadoop's layers, which is much faster
than the original (108 to 123 datasets/s there).
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from benchmarks.runner import Arm, Parts, WrongResultError
from benchmarks.workloads.tree import Shape, TreeDataset, files_left, tree_datasets, write_staged

CALLS_PER_DATASET, CALLS_PER_FILE = 34, 4
"""System calls on files, without those that sync."""


class GobblinPattern(Arm):
    """The original design on a driver.

    With `fsync` it is made safe against power loss at the least cost: store file, state file, and the three folders in
    which something changes. `threads` commit datasets at a time (Gobblin's own default is 20).
    """

    def __init__(self, *, fsync: bool, threads: int = 1) -> None:
        self._fsync, self._threads = fsync, threads
        self.name = "gobblin" + ("_fsync" if fsync else "") + (f"_{threads}t" if threads > 1 else "")

    def publish(self, shape: Shape, root: Path) -> Parts:
        write_staged(shape, root)
        for folder in ("store", "state"):
            os.mkdir(root / folder)
        work = list(tree_datasets(shape))
        gc.collect()
        began = time.perf_counter()
        if self._threads == 1:
            for dataset in work:
                commit_dataset(str(root), dataset, shape.files, fsync=self._fsync)
        else:
            with ThreadPoolExecutor(self._threads) as pool:
                list(pool.map(lambda one: commit_dataset(str(root), one, shape.files, fsync=self._fsync), work))
        remove_empty_parents(root, work)
        seconds = time.perf_counter() - began
        if left := files_left(root / "staging") + files_left(root / "store"):
            raise WrongResultError(f"{self.name} left {left} files and folders")
        return {"seconds": seconds}


def commit_dataset(root: str, dataset: TreeDataset, files: int, *, fsync: bool) -> None:
    """One dataset, from its task states to its state file."""
    staged, target = f"{root}/staging/{dataset.staged}", f"{root}/output/{dataset.folder}"
    store_file, state_folder = f"{root}/store/{dataset.folder}", f"{root}/state/{dataset.folder}"
    steps = [(f"{staged}/{name}", f"{target}/{name}") for name in dataset.names(files)]

    os.stat(f"{root}/store")
    _exists(store_file)
    write_file(store_file, _sequence(dataset, steps), fsync=fsync)
    if fsync:
        sync_folder(f"{root}/store")
    _exists(store_file)
    read_file(store_file)
    _exists(target)
    os.mkdir(target)
    for source, published in steps:
        _exists(published)
        _exists(source)
        _exists(os.path.dirname(published))
        os.rename(source, published)
    if fsync:
        sync_folder(target)

    state_file, alias = f"{state_folder}/{dataset.attempt}.jst", f"{state_folder}/current.jst"
    state = json.dumps({"dataset": dataset.urn, "watermark": files, "state": "COMMITTED"}).encode()
    _exists(state_folder)
    os.mkdir(state_folder)
    _exists(state_file)
    write_file(f"{state_file}.tmp", state, fsync=fsync)
    _exists(state_file)
    os.rename(f"{state_file}.tmp", state_file)
    _exists(alias)
    write_file(alias, state, fsync=False)
    if fsync:
        sync_folder(state_folder)

    _exists(store_file)
    os.unlink(store_file)
    _exists(staged)
    list_folder(staged)
    os.rmdir(staged)


def remove_empty_parents(root: Path, work: Sequence[TreeDataset]) -> None:
    """Removes the folders above the staged ones."""
    for folder in sorted({os.path.dirname(dataset.staged) for dataset in work}):
        os.rmdir(root / "staging" / folder)
        with suppress(OSError):
            os.rmdir(root / "staging" / os.path.dirname(folder))


def write_file(path: str, data: bytes, *, fsync: bool) -> None:
    """A new file, in place: open, write, close."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    os.write(fd, data)
    if fsync:
        os.fsync(fd)
    os.close(fd)


def read_file(path: str) -> bytes:
    """A whole file: open, fstat, read, read, close."""
    fd = os.open(path, os.O_RDONLY)
    data = os.read(fd, os.fstat(fd).st_size)
    os.read(fd, 1)
    os.close(fd)
    return data


def list_folder(path: str) -> list[str]:
    """The names in a folder: open, fstat, getdents twice (once if it is empty), close."""
    return os.listdir(path)


def sync_folder(path: str) -> None:
    """Makes a folder's names durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)


def _sequence(dataset: TreeDataset, steps: Sequence[tuple[str, str]]) -> bytes:
    """The commit sequence as JSON, as large as Gobblin's would be at the least."""
    renames = [{"type": "FsRenameCommitStep", "src": source, "dst": target} for source, target in steps]
    return json.dumps({"job": "benchmark", "dataset": dataset.urn, "steps": renames}).encode()


def _exists(path: str) -> bool:
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    return True
