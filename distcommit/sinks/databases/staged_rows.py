"""Staged files with rows that a committer inserts, one Arrow stream for each series of batches with one schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa
from xxhash import xxh3_64_intdigest

from distcommit.core.errors import LostError
from distcommit.core.interfaces.committer import CommitterContext
from distcommit.core.interfaces.sink import Origin, Origins, Prepared, StagingArea
from distcommit.protocol.paths.staging import rows_name
from distcommit.sinks.base.offset_coverage import CoveringWriter
from distcommit.sinks.databases.newer_rows import with_positions

FILE_BYTES = 16 << 20
"""Size of rows in bytes, before compression, at which a file is written."""


class StagedRows(CoveringWriter):
    """Writer that stages batches in their order.

    The commit info has these keys:

    - `files`: path below the staging root and xxh3-64 checksum of each file, in order.
    - `rows`: number of rows.
    - `covered`: result of `OffsetCoverage.covered`.
    - `ledger`: identity of the ledger that must commit the rows.
    - `epochs`: if the rows are reprocessed from error files, the epochs in which they were rejected.
    - `operation`: the operation column, if the rows are changes.
    - `by_reading`: true if positions count the records read, instead of being stored by the source.

    Args:
        area: the attempt's staging folder.
        origin: the origin of the rows.
        ledger: returns the identity of the ledger; called at the end, if there are rows.
        check: raises a ConfigurationError if the table can't take rows of a schema.
        with_positions: whether each row gets two columns with its source partition and position.
        operation: the operation column, if the rows are changes.
    """

    def __init__(
        self,
        area: StagingArea,
        origin: Origin,
        ledger: Callable[[], str],
        check: Callable[[pa.Schema], None],
        *,
        with_positions: bool = False,
        operation: str = "",
    ) -> None:
        super().__init__(origin)
        self._area, self._ledger = area, ledger
        self._origin, self._with_positions, self._operation = origin, with_positions, operation
        self._check, self._checked = check, pa.schema([])
        self._files: list[list[Any]] = []
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0

    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        self._covering.add(batch, origins)
        if not batch.num_rows:
            return
        if batch.schema != self._checked:
            self._check(batch.schema)
            self._checked = batch.schema
        if self._with_positions:
            batch = with_positions(batch, self._origin, origins)
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= FILE_BYTES:
            self._flush()

    def prepare_commit(self) -> Prepared:
        if not self._covering.rows:
            return Prepared(holes=self._covering.holes_left)
        self._flush()
        info = {"files": self._files, "rows": self._covering.rows, "covered": self._covering.covered()}
        reprocessed = {"epochs": [*self._origin.replaces]} if self._origin.replaces else {}
        provenance = self._origin.provenance
        by_reading = {"by_reading": True} if provenance is not None and provenance.counts_reading else {}
        changes = {"operation": self._operation} if self._operation else {}
        return Prepared([{**info, "ledger": self._ledger(), **reprocessed, **by_reading, **changes}])

    def abort(self) -> None:
        self._waiting.clear()

    def _flush(self) -> None:
        if not self._waiting:
            return
        buffer = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        for schema, batches in groupby(self._waiting, lambda batch: batch.schema):
            with pa.ipc.new_stream(buffer, schema, options=options) as stream:
                for batch in batches:
                    stream.write_batch(batch)
        name = rows_name(len(self._files))
        file = self._area.fs.create(f"{self._area.folder}/{name}")
        try:
            file.write(memoryview(buffer.getvalue()))
        finally:
            file.close_file(sync=False)
        self._files.append([f"{self._area.prefix}/{name}", file.checksum])
        self._waiting, self._waiting_bytes = [], 0


def files_of(infos: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, int]]:
    for info in infos:
        yield from info["files"]


def rows_of(infos: Iterable[Mapping[str, Any]]) -> int:
    return sum(info["rows"] for info in infos)


def staged_runs(context: CommitterContext, path: str, checksum: int) -> Iterator[Sequence[pa.RecordBatch]]:
    """Yield a staged file's rows, as lists of batches with one schema. Raises LostError if the file is missing or its
    xxh3-64 is not `checksum`, and OSError if the file can't be read now."""
    try:
        data = context.fs.read(f"{context.staging_root}/{path}")
    except FileNotFoundError as error:
        raise LostError("staged rows are gone", id="STAGED_FILE_LOST", path=path) from error
    if xxh3_64_intdigest(data) != checksum:
        raise LostError(
            "staged rows are damaged",
            id="STAGED_FILE_LOST",
            path=path,
            expected="the staged bytes",
            found="other bytes",
        )
    streams = pa.BufferReader(data)
    while streams.tell() < len(data):
        if batches := list(pa.ipc.open_stream(streams)):
            yield batches


def staged_batches(context: CommitterContext, path: str, checksum: int) -> Iterator[pa.RecordBatch]:
    """Yield a staged file's batches; raises the errors of `staged_runs`."""
    for batches in staged_runs(context, path, checksum):
        yield from batches
