"""Renames on HDFS: by the product's steps, and by a bare loop of the same client."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.work_units import StagedFile
from distcommit.fs.hadoop.hdfs_file_system import HdfsFileSystem
from distcommit.fs.hadoop.hdfs_rpc import HdfsRpc
from distcommit.fs.hadoop.webhdfs import WebHdfs
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.step_execution import execute_sequences

Staged = dict[str, list[StagedFile]]


class Renames(ABC):
    """A way of renaming staged files, of whole datasets, into existing folders."""

    def __init__(self, calls: HdfsRpc | WebHdfs, threads: int, context: StepContext) -> None:
        self._calls, self._threads, self._context = calls, threads, context

    @abstractmethod
    def move(self, staged: Staged) -> float:
        """Move all of them from the staging root to the output root; return the seconds."""


class StepRenames(Renames):
    """Rename steps of many sequences, executed together as by a committer."""

    def move(self, staged: Staged) -> float:
        fs = HdfsFileSystem(self._calls)
        fs.parallel_calls = self._threads
        context = StepContext(fs, self._context.staging_root, self._context.output_root)
        steps = {urn: FsRenameCommitStep.of_all(context, files) for urn, files in staged.items()}
        began = time.perf_counter()
        outcomes = execute_sequences(steps, verify_first=False)
        seconds = time.perf_counter() - began
        if outcomes.failed or outcomes.lost:
            raise AssertionError(f"not all was renamed: {outcomes}")
        return seconds


class BareRenames(Renames):
    """The client's own call in a pool of threads, and nothing else."""

    def move(self, staged: Staged) -> float:
        roots = self._context
        return rename_all(
            self._calls,
            self._threads,
            [
                (f"{roots.staging_root}/{file.staged_path}", f"{roots.output_root}/{file.final_path}")
                for files in staged.values()
                for file in files
            ],
        )


def rename_all(calls: HdfsRpc | WebHdfs, threads: int, pairs: Sequence[tuple[str, str]]) -> float:
    """Rename these by the client's own call; return the seconds."""
    client: Any = calls._client
    if isinstance(calls, HdfsRpc):

        def rename(pair: tuple[str, str]) -> None:
            client.rename(pair[0], pair[1], overwrite=False)
    else:

        def rename(pair: tuple[str, str]) -> None:
            client._rename(pair[0], destination=pair[1], renameoptions="NONE")

    with ThreadPoolExecutor(threads) as pool:
        began = time.perf_counter()
        list(pool.map(rename, pairs))
        return time.perf_counter() - began
