"""The job of a golden store: written by the product on a real file system and killed half-way."""

from __future__ import annotations

import errno
import itertools
import os
import random
import uuid
from pathlib import Path
from unittest import mock

from distcommit.core.interfaces.file_system import FileStatus, FolderEntry
from distcommit.engine.driver.run import RunResult, run
from distcommit.engine.run_settings import RunSettings
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.fs.local_disk.posix_calls import RealPosixCalls
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.protocol.seal_decision import CommitPolicy
from distcommit.sinks.files.sink import FileSink
from distcommit.stores.folders.run_markers import Marker, put_run_marker
from distcommit.stores.logs.fencing import fence_job, take_ownership_of_folders
from distcommit.stores.state.job_store import JobStore, Roots, open_store
from distcommit.testing.fakes.faulty_calls import Crashed
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import SimulatedClock, launch_here

BUCKETS = 2
IN_BUCKET_0 = "topic:0"
"""The only dataset of its bucket; all others are in bucket 1."""
IDLE = {"idle-a": {"0": 3}, IN_BUCKET_0: {"0": 2, "1": 1}}
PENDING = {"half-done": {"0": 2, "1": 2, "2": 1}, "waiting": {"0": 3}}
RENAMED = 2
"""Files of `half-done` that were published when the run was killed."""
RUNS = ("20260102T030405-00000000000a", "20260102T040506-00000000000b", "20260102T050607-00000000000c")


def source(*groups: dict[str, dict[str, int]]) -> ModelSource:
    """Build a source of these datasets, with so many records in each partition."""
    return ModelSource({urn: ModelDataset(counts) for group in groups for urn, counts in group.items()})


def store_at(folder: Path, fs: LocalFileSystem | None = None, *, create: bool = False) -> JobStore:
    """Open the job's store in that folder."""
    roots = Roots(str(folder / "store"), str(folder / "staging"), str(folder / "output"))
    return open_store(fs or LocalFileSystem(), roots, "golden", BUCKETS, create=create)


def run_job(
    store: JobStore, read: ModelSource, run_id: str, *, job_level: bool = False, at_least_once: bool = False
) -> RunResult:
    """Run the job and commit only after everything is read, so that a bucket's datasets are sealed together."""
    take_ownership_of_folders(store)
    epoch = fence_job(store, run_id)
    put_run_marker(store.fs, store.roots.output, epoch, Marker.BEGAN)
    return run(launch_here, begin(store, read, run_id, epoch, job_level, at_least_once))


def begin(
    store: JobStore, read: ModelSource, run_id: str, epoch: int, job_level: bool, at_least_once: bool
) -> RunSettings:
    """Return the settings of a run that has fenced the job log."""
    return RunSettings(
        store=store,
        run_id=run_id,
        epoch=epoch,
        partitions=1,
        flow=TaskFlow.straight(read, FileSink(compression="none")),
        policy=CommitPolicy.FULL,
        job_level=job_level,
        at_least_once=at_least_once,
        min_interval_s=1e9,
        max_attempts=3,
        task_attempts=1,
        clock=SimulatedClock(),
    )


def make_job(folder: Path) -> None:
    """Commit two datasets in a first run. Seal two more in a second run, which is killed between two renames."""
    calls = StableCalls(str(folder / "output"))
    numbers = random.Random(1)

    def uuid4() -> uuid.UUID:
        return uuid.UUID(int=numbers.getrandbits(128), version=4)

    with mock.patch.object(uuid, "uuid4", uuid4):
        store = store_at(folder, LocalFileSystem(calls), create=True)
        first = run_job(store, source(IDLE), RUNS[0])
        if not first.succeeded:
            raise AssertionError(first)
        for urn in PENDING:
            store.fs.make_folders(f"{store.roots.output}/{urn}")  # so that files are published one by one
        calls.renames_left = RENAMED
        try:
            run_job(store, source(IDLE, PENDING), RUNS[1])
        except Crashed:
            return
    raise AssertionError("the second run was not killed")


class StableCalls(RealPosixCalls):
    """System calls with reproducible inodes and times. The process dies before one more rename into the output, or
    before it deletes one more data file.
    """

    def __init__(self, output: str) -> None:
        super().__init__()
        self.renames_left: int | None = None
        self.keeps_files = False
        self._output, self._dead = output, False
        self._numbers = itertools.count(1)
        self._known: dict[int, int] = {}

    def open_new(self, path: str) -> int:
        self._go_on()
        return super().open_new(path)

    def unlink(self, path: str) -> None:
        self._dead |= self.keeps_files and path.endswith(".parquet")
        self._go_on()
        inode = os.lstat(path).st_ino
        super().unlink(path)
        self._known.pop(inode, None)  # the kernel reuses it for the next file

    def rmdir(self, path: str) -> None:
        self._go_on()
        inode = os.lstat(path).st_ino
        super().rmdir(path)
        self._known.pop(inode, None)

    def mkdir(self, path: str) -> None:
        self._go_on()
        super().mkdir(path)

    def rename_noreplace(self, source: str, target: str) -> None:
        self._go_on()
        if target.startswith(self._output) and target.endswith(".parquet") and self.renames_left is not None:
            if self.renames_left == 0:
                self._dead = True
                raise Crashed
            self.renames_left -= 1
        if os.path.lexists(target):  # also without renameat2
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        super().rename_noreplace(source, target)

    def fstat(self, fd: int) -> FileStatus:
        return self._stable(super().fstat(fd))

    def lstat(self, path: str) -> FileStatus:
        return self._stable(super().lstat(path))

    def scandir(self, path: str) -> list[FolderEntry]:
        entries = sorted(super().scandir(path), key=lambda entry: entry.name)
        return [FolderEntry(e.name, e.is_folder, self._number(e.file_id)) for e in entries]

    def _stable(self, status: FileStatus) -> FileStatus:
        return FileStatus(status.size_bytes, 1_700_000_000_000_000_000, self._number(status.file_id), status.is_folder)

    def _number(self, inode: int) -> int:
        return self._known.setdefault(inode, next(self._numbers))

    def revive(self) -> None:
        """Let another process take over, without any loss."""
        self._dead, self.renames_left, self.keeps_files = False, None, False

    def _go_on(self) -> None:
        if self._dead:
            raise Crashed
