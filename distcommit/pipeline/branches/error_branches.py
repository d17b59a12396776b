"""Error branches: files of rejected input records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import pyarrow as pa

from distcommit.core.work_units import MAIN_BRANCH, BranchResult, error_branch_of
from distcommit.pipeline.branches.construct_chain import Rejection
from distcommit.pipeline.branches.error_columns import error_records
from distcommit.schemas.schema_size_limits import check_levels
from distcommit.sinks.files.sink import AttemptFiles

Rejections = Mapping[int, Rejection]
"""Rejections by row of the extractor's batch."""


class ErrorBranches:
    """An attempt's error branches, opened on first use.

    Args:
        open_writer: opens the writer of an error branch, by its name.
    """

    def __init__(self, open_writer: Callable[[str], AttemptFiles]) -> None:
        self._open_writer = open_writer
        self._writers: dict[str, AttemptFiles] = {}
        self._diverted: dict[str, int] = {}

    @property
    def writers(self) -> Collection[AttemptFiles]:
        return self._writers.values()

    def writer(self, name: str) -> AttemptFiles:
        if name not in self._writers:
            self._writers[name] = self._open_writer(name)
            self._diverted[name] = 0
        return self._writers[name]

    def divert(self, batch: pa.RecordBatch, rejected: Sequence[tuple[str, Rejections]]) -> None:
        """Write rejected records of the input batch, unchanged and in source order, to the error branches.

        Args:
            batch: the extractor's batch.
            rejected: the rejections of each branch, by its name; of all branches, with an empty name.
        """
        for name, rejections in _by_error_branch(rejected).items():
            writer, errors = self.writer(name), _rejected_records(batch, rejections)
            check_levels(errors.schema)
            writer.write(errors)
            self._diverted[name] += len(rejections)

    def prepare(self, sink: str) -> list[BranchResult]:
        return [_prepared(name, sink, self._diverted[name], writer) for name, writer in self._writers.items()]


def _prepared(branch: str, sink: str, rejected: int, writer: AttemptFiles) -> BranchResult:
    prepared = writer.prepare_commit()
    return BranchResult(
        branch=branch,
        sink=sink,
        files=tuple(prepared.files),
        records_rejected=rejected,
        holes=tuple(prepared.holes),
        content_sum=prepared.content_sum,
    )


def _by_error_branch(rejected: Sequence[tuple[str, Rejections]]) -> dict[str, dict[int, tuple[str, Rejection]]]:
    by_name: dict[str, dict[int, tuple[str, Rejection]]] = {}
    for branch, rejections in rejected:
        if rejections:
            of_name = by_name.setdefault(error_branch_of("" if branch == MAIN_BRANCH else branch), {})
            of_name.update((row, (branch, reason)) for row, reason in rejections.items())
    return by_name


def _rejected_records(batch: pa.RecordBatch, rejected: Mapping[int, tuple[str, Rejection]]) -> pa.RecordBatch:
    rows = sorted(rejected)
    branches, reason = zip(*(rejected[row] for row in rows), strict=True)
    reasons = ([rejection.construct for rejection in reason], [rejection.reason for rejection in reason])
    return error_records(batch.take(pa.array(rows, pa.int64())), branches, *reasons)
