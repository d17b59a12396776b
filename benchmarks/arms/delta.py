"""The same data added to Delta tables by the sink, and by deltalake's own append."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from benchmarks.runner import WrongResultError
from distcommit.core.interfaces.committer import CommitRequest, Committed, CommitterContext
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, StagingArea
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.delta.sink import DeltaSink

_TABLE = "t"


def by_sink(folder: Path, records: pa.Table, batch_rows: int) -> float:
    """Return the seconds of writing and committing by the sink, to an existing table."""
    (folder / "tables").mkdir(parents=True)
    sink = DeltaSink.model_validate({"type": "delta", "location": str(folder / "tables")})
    _write(sink, folder, 1, records.slice(0, 1).to_batches())
    batches = records.to_batches(max_chunksize=batch_rows)
    began = time.perf_counter()
    _write(sink, folder, 2, batches)
    seconds = time.perf_counter() - began
    _count(folder / "tables" / _TABLE, records.num_rows + 1)
    return seconds


def by_append(folder: Path, records: pa.Table, *, bounds: bool) -> float:
    """Return the seconds of deltalake's own append, to an existing table.

    `bounds`: whether it writes each column's bounds, as deltalake does by default and the sink does not.
    """
    configuration = {} if bounds else {"delta.dataSkippingNumIndexedCols": "0"}
    write_deltalake(str(folder), records.slice(0, 1), configuration=configuration)
    began = time.perf_counter()
    write_deltalake(DeltaTable(str(folder)), records, mode="append")
    seconds = time.perf_counter() - began
    _count(folder, records.num_rows + 1)
    return seconds


def _write(sink: DeltaSink, folder: Path, epoch: int, batches: list[pa.RecordBatch]) -> None:
    fs, attempt = LocalFileSystem(durable=False), uuid.uuid4().hex
    (folder / "staging" / attempt).mkdir(parents=True)
    area = StagingArea(fs, f"{folder}/staging/{attempt}", attempt, str(folder))
    writer = sink.open_writer(AttemptIdentity(f"run-{epoch}", epoch, _TABLE, "unit", attempt), area, Origin())
    for batch in batches:
        writer.write(batch)
    request = CommitRequest(_TABLE, epoch, tuple(writer.prepare_commit().infos))
    committer = sink.open_committer(CommitterContext(fs, f"{folder}/staging", str(folder), "bench"))
    outcomes = committer.commit([request])
    if outcomes != [Committed()]:
        raise WrongResultError(f"not committed: {outcomes}")


def _count(folder: Path, rows: int) -> None:
    result = len(DeltaTable(str(folder)).to_pyarrow_table(columns=["id"]))
    if result != rows:
        raise WrongResultError(f"{folder} has {result} rows of {rows}")
