"""Attempts that write into a folder, generated input rows, and a check of the files written."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, StagingArea
from distcommit.core.work_units import MAIN_BRANCH, StagedFile
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.files.footer import read_footer, read_records
from distcommit.sinks.files.formats.encoders import Compression, FileFormat
from distcommit.sinks.files.offset_sets import OffsetSets
from distcommit.sinks.files.sink import AttemptFiles, FileSink
from distcommit.sinks.files.split_by_time import UNKNOWN_TIME

URN = "kafka:flights/2013"
ORIGIN = Provenance("kafka_partition", "kafka_offset")
FORMATS: list[FileFormat] = ["parquet", "avro", "orc", "jsonl", "csv"]
LEAST: dict[FileFormat, Compression] = {"jsonl": "gzip", "csv": "gzip"}
"""The least compression of formats that require one; other formats have none."""
DAY_MS = 86_400_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
        ("kafka_timestamp", pa.timestamp("ms", "UTC")),
        ("value", pa.binary()),
    ]
)
Row = tuple[int, int, int | None, bytes]


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([row[place] for row in rows], SCHEMA.field(place).type) for place in range(4)], schema=SCHEMA
    )


def numbered(start: int, count: int, *, value: bytes = b"v", random_bytes: int = 0, time_ms: int = 0) -> pa.RecordBatch:
    """Return rows with offsets from `start`; random bytes create values that no dictionary or codec can shrink."""
    return batch_of([(0, offset, time_ms, value + os.urandom(random_bytes)) for offset in range(start, start + count)])


def files_in(
    root: Path,
    form: FileSink,
    *,
    attempt: str = "a1",
    work_unit_id: str = "w1",
    epoch: int = 7,
    fs: LocalFileSystem | None = None,
    provenance: Provenance | None = ORIGIN,
    incarnation: str = "",
    branch: str = MAIN_BRANCH,
    **bounds: int,
) -> AttemptFiles:
    (root / "7").mkdir(parents=True, exist_ok=True)  # the bucket's folder, which the run creates
    return AttemptFiles(
        StagingArea(fs or LocalFileSystem(), f"{root}/7/{attempt}", f"7/{attempt}", f"{root}/output"),
        settings=form,
        identity=AttemptIdentity("run", epoch, URN, work_unit_id, attempt, branch),
        origin=Origin(provenance, incarnation),
        **bounds,
    )


def records_of(root: Path, outputs: Sequence[StagedFile]) -> list[dict[str, Any]]:
    tables = [read_records(LocalFileSystem(), f"{root}/{output.staged_path}") for output in outputs]
    return [row for table in tables for row in table.to_pylist()]


def check_outputs(root: Path, outputs: Sequence[StagedFile]) -> None:
    """Check that each output matches its description and its footer, and that no other file exists."""
    fs = LocalFileSystem()
    for output in outputs:
        path = f"{root}/{output.staged_path}"
        status = fs.status(path)
        assert status is not None
        assert (status.size_bytes, status.mtime_ns, status.file_id) == (
            output.size_bytes,
            output.mtime_ns,
            output.file_id,
        )
        assert fs.checksum(path) == output.checksum
        rows = read_records(fs, path)
        footer = read_footer(fs, path)
        assert footer is not None
        assert 0 < rows.num_rows == output.records == footer.records
        assert footer.kind == ("rejected" if output.final_path.startswith("_rejected/") else "data")
        assert (footer.dataset_urn, footer.epoch, footer.run_id) == (URN, 7, "run")
        sets = OffsetSets()
        sets.add(rows, ORIGIN)
        assert OffsetSets.from_text(footer.offsets) == sets
    there = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert there == {output.staged_path for output in outputs}
    assert len({output.final_path for output in outputs}) == len(outputs)


RUN_NUMBERS = itertools.count()


def expected_folder(time_ms: int | None, zone: str, granularity: str | None) -> str:
    """Compute the folder with Python's own dates, one row at a time."""
    if granularity is None:
        return ""
    if time_ms is None:
        return UNKNOWN_TIME
    try:
        local = (EPOCH + timedelta(milliseconds=time_ms)).astimezone(ZoneInfo(zone))
    except (OverflowError, ValueError):
        return UNKNOWN_TIME
    lengths = {"year": 4, "month": 7, "day": 10, "hour": 13}
    return local.isoformat()[: lengths[granularity]].replace("T", "-")
