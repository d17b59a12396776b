"""The arms on a real HDFS: trees have the same paths there as on this machine's disk.

Files are empty: their size does not affect renames, and a tree is created in seconds.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from xxhash import xxh3_64

from benchmarks.arms.hadoop import ManifestCommitter
from benchmarks.arms.ours import Ours
from benchmarks.runner import Arm, Parts, WrongResultError
from benchmarks.workloads import hdfs_tree
from benchmarks.workloads.ingested import ingested_there
from benchmarks.workloads.name_node import operations_of
from benchmarks.workloads.tree import Shape, TreeDataset, expected_digest, tree_datasets
from distcommit.engine.run_settings import RunSettings
from distcommit.fs.hadoop.hdfs_file_system import HdfsFileSystem
from distcommit.fs.hadoop.hdfs_rpc import HdfsRpc
from tests.servers.hdfs import HdfsServer

_THREADS = 16


class Hdfs:
    """An HDFS, and the arms' operations on it outside of the measured time."""

    def __init__(self, server: HdfsServer) -> None:
        self._server = server
        self.calls = HdfsRpc(server.authority)
        self.fs = HdfsFileSystem(self.calls)
        self.uri = f"hdfs://{server.authority}"

    def of_tasks(self, threads: int) -> HdfsFileSystem:
        """Return the product's file system for tasks with that many concurrent calls."""
        fs = HdfsFileSystem(HdfsRpc(self._server.authority))
        fs.parallel_calls, fs.parallel_buckets = threads, min(fs.parallel_buckets, threads)
        return fs

    def make_folders(self, shape: Shape, root: Path) -> None:
        """Create the datasets' folders, as after an earlier run."""
        with ThreadPoolExecutor(_THREADS) as pool:
            folders = (f"{root}/output/{dataset.folder}" for dataset in tree_datasets(shape))
            list(pool.map(self.fs.make_folders, folders))

    def write(self, datasets: Sequence[tuple[TreeDataset, str]], shape: Shape) -> None:
        """Write those datasets' files, each into its folder."""
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(lambda one: hdfs_tree.write_dataset(self.fs, one[0], shape, one[1], empty=True), datasets))

    def files_left(self, folder: str) -> int:
        """Return the number of files and folders below that folder."""
        entries = self.fs.list_folder(folder)
        return len(entries) + sum(self.files_left(f"{folder}/{e.name}") for e in entries if e.is_folder)

    def take_digest(self, root: Path) -> str:
        """Return the digest of the published files, as `tree.digest_of` forms it, and delete everything below the
        root."""
        output = f"{root}/output"
        names: list[str] = []
        for folder in sorted(e.name for e in self.fs.list_folder(output) if not e.name.startswith(("_", "."))):
            names += [f"{folder}/{e.name}" for e in self.fs.list_folder(f"{output}/{folder}") if e.name[0] not in "_."]
        digest = xxh3_64()
        with ThreadPoolExecutor(_THREADS) as pool:
            paths = (f"{output}/{name}" for name in sorted(names))
            for name, data in zip(sorted(names), pool.map(self.fs.read, paths), strict=True):
                digest.update(name.encode() + b"\0" + data)
        self.calls._client.delete(str(root), True)
        return f"{len(names)} files, xxh3 {digest.hexdigest()}"

    @contextmanager
    def counting(self) -> Iterator[Parts]:
        """Count the NameNode's requests in the block: `requests`, and `operations_<kind>`, filled in at the end."""
        counted: Parts = {}
        before = operations_of(self._server)
        yield counted
        operations: Counter[str] = operations_of(self._server) - before
        counted["requests"] = float(operations.pop("requests", 0))
        counted |= {f"operations_{kind}": float(count) for kind, count in sorted(operations.items())}


class _OnHdfs(Arm):
    """An arm whose tree is on HDFS."""

    _hdfs: Hdfs

    def digest(self, root: Path) -> str:
        return self._hdfs.take_digest(root)

    def expected(self, shape: Shape) -> str:
        return expected_digest(shape, empty=True)


class OursOnHdfs(_OnHdfs, Ours):
    """The product's drain job, on file systems of `threads` calls in each task."""

    def __init__(
        self, spark: SparkSession, partitions: int, hdfs: Hdfs, *, threads: int, into_folders: bool = False
    ) -> None:
        super().__init__(spark, partitions, into_folders=into_folders)
        self._hdfs, self._threads = hdfs, threads

    def _prepare(self, shape: Shape, root: Path, partitions: int) -> RunSettings:
        if self._into_folders:
            self._hdfs.make_folders(shape, root)
        return ingested_there(shape, str(root), partitions, self._hdfs.of_tasks(self._threads), empty=True)

    def _counting(self) -> AbstractContextManager[Parts]:
        return self._hdfs.counting()

    def _staged_files(self, root: Path) -> int:
        return self._hdfs.files_left(f"{root}/staging")


class BareOnHdfs(_OnHdfs):
    """The product's client in a pool of threads: it creates folders, renames, removes folders, and nothing else."""

    def __init__(self, hdfs: Hdfs, *, threads: int, folders: bool = False) -> None:
        self._hdfs, self._threads, self._folders = hdfs, threads, folders
        self.name = f"bare{'_folders' if folders else ''}_{threads}t"

    def publish(self, shape: Shape, root: Path) -> Parts:
        client: Any = self._hdfs.calls._client
        datasets = [(dataset, f"{root}/staging/{dataset.staged}") for dataset in tree_datasets(shape)]
        self._hdfs.fs.make_folders(f"{root}/output")
        self._hdfs.write(datasets, shape)

        def move(one: tuple[TreeDataset, str]) -> None:
            dataset, staged = one
            target = f"{root}/output/{dataset.folder}"
            if self._folders:
                client.rename(staged, target, overwrite=False)
                return
            client.mkdirs(target, 0o755, False)
            for name in dataset.names(shape.files):
                client.rename(f"{staged}/{name}", f"{target}/{name}", overwrite=False)
            client.delete(staged, False)

        with self._hdfs.counting() as counted, ThreadPoolExecutor(self._threads) as pool:
            began = time.perf_counter()
            list(pool.map(move, datasets))
            client.delete(f"{root}/staging", True)
            seconds = time.perf_counter() - began
        return {"seconds": seconds} | counted


class ManifestOnHdfs(_OnHdfs, ManifestCommitter):
    """The manifest committer, with Hadoop's own client."""

    def __init__(self, spark: SparkSession, tasks: int, hdfs: Hdfs, *, slots: int, threads: int) -> None:
        super().__init__(spark, tasks, slots=slots, threads=threads)
        self._hdfs = hdfs

    def _uri(self, output: Path) -> str:
        return f"{self._hdfs.uri}{output}"

    def _make(self, output: Path) -> None:
        self._hdfs.fs.make_folders(str(output))

    def _write(self, datasets: Sequence[tuple[TreeDataset, str]], shape: Shape) -> None:
        self._hdfs.write(datasets, shape)

    def _counting(self) -> AbstractContextManager[Parts]:
        return self._hdfs.counting()

    def _check_output(self, shape: Shape, output: Path, since_ns: int) -> Parts:
        if self._hdfs.fs.status(f"{output}/_temporary") is not None:
            raise WrongResultError(f"{self.name} left its temporary folder")
        return {}
