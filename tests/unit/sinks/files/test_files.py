"""The files of an attempt: complete, without duplicates, with true footers, and with bounded memory and open files."""

from __future__ import annotations

import os
import posixpath
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from distcommit.core.dataset_urn import folder_of
from distcommit.core.work_units import SkippedRange, StagedFile
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.files.footer import read_footer, read_records
from distcommit.sinks.files.formats.encoders import FileFormat
from distcommit.sinks.files.offset_sets import OffsetSets
from distcommit.sinks.files.sink import AccessSettings, FileSink
from distcommit.sinks.files.split_by_time import TimePartition
from tests.unit.sinks.files.attempts import (
    DAY_MS,
    FORMATS,
    LEAST,
    RUN_NUMBERS,
    SCHEMA,
    URN,
    Row,
    batch_of,
    check_outputs,
    expected_folder,
    files_in,
    numbered,
    records_of,
)

ROWS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 50),
        st.one_of(st.none(), st.integers(0, 5 * DAY_MS), st.integers(-(2**63) + 1, 2**63 - 1)),
        st.binary(max_size=40),
    ),
    max_size=40,
)
BATCHES = st.lists(ROWS, max_size=6)
ORC_MS = (1 << 63) // 1_000_000 - 1
"""Times that ORC accepts, in milliseconds."""


@pytest.mark.thorough
@pytest.mark.parametrize("file_format", FORMATS)
@given(
    batches=BATCHES,
    zone=st.sampled_from(["UTC", "Europe/Brussels", "America/St_Johns"]),
    granularity=st.sampled_from(["year", "month", "day", "hour", None]),
    bounds=st.tuples(st.integers(1, 12_000), st.integers(1, 30_000), st.integers(1, 3), st.integers(200, 20_000)),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_are_neither_lost_nor_doubled_by_splitting_and_rolling_over(
    tmp_path: Path,
    file_format: FileFormat,
    batches: list[list[Row]],
    zone: str,
    granularity: Literal["year", "month", "day", "hour"] | None,
    bounds: tuple[int, int, int, int],
) -> None:
    if file_format == "orc":
        batches = [[(p, o, None if time is None else time % ORC_MS, value) for p, o, time, value in b] for b in batches]
    root = tmp_path / str(next(RUN_NUMBERS))
    partition = None if granularity is None else TimePartition(granularity=granularity, time_zone=zone)
    form = FileSink(format=file_format, partition_by=partition, target_file_bytes=bounds[3])
    files = files_in(root, form, row_group_bytes=bounds[0], max_waiting_bytes=bounds[1], max_open_files=bounds[2])
    for rows in batches:
        files.write(batch_of(rows))
    outputs = files.prepare_commit().files
    check_outputs(root, outputs)
    tables = [read_records(LocalFileSystem(), f"{root}/{output.staged_path}") for output in outputs]
    integers = [t.set_column(2, "kafka_timestamp", t.column(2).cast(pa.int64())) for t in tables]
    counts = Counter(tuple(row.values()) for table in integers for row in table.to_pylist())
    given = [row for rows in batches for row in rows]
    assert counts == Counter(given)
    assert files.records_written == len(given)
    for output, table in zip(outputs, integers, strict=True):
        times = table.column(2).to_pylist()
        parts = output.final_path.split("/")
        assert parts[0] == folder_of(URN)
        expected = {expected_folder(time, zone, granularity) for time in times}
        assert {"/".join(parts[1:-1])} == expected


@pytest.mark.parametrize("file_format", FORMATS)
def test_files_have_unique_names_and_staging_paths(tmp_path: Path, file_format: FileFormat) -> None:
    form = FileSink(format=file_format, partition_by=TimePartition())
    files = files_in(tmp_path, form)
    files.write(batch_of([(0, 1, 0, b""), (0, 2, DAY_MS, b"")]))
    outputs = files.prepare_commit().files
    check_outputs(tmp_path, outputs)
    urn = folder_of(URN)
    assert [(output.staged_path, output.final_path) for output in outputs] == [
        (f"7/a1/{number}/{name}", f"{folder}/{name}")
        for number, folder, name in [
            ("0001", f"{urn}/1970-01-01", f"0000000007-w1-a1-0001{form.ending}"),
            ("0002", f"{urn}/1970-01-02", f"0000000007-w1-a1-0002{form.ending}"),
        ]
    ]


def test_files_of_one_folder_are_staged_under_their_final_names(tmp_path: Path) -> None:
    files = files_in(tmp_path, FileSink(target_file_bytes=1))
    files.write(numbered(3, 1))
    files.write(numbered(3, 2))
    outputs = files.prepare_commit().files
    assert len(outputs) > 1
    assert {output.staged_path for output in outputs} == {
        f"7/a1/{output.final_path.rpartition('/')[2]}" for output in outputs
    }


@pytest.mark.parametrize("file_format", FORMATS)
def test_files_roll_over_at_their_target_size(tmp_path: Path, file_format: FileFormat) -> None:
    form = FileSink(format=file_format, compression=LEAST.get(file_format, "none"), target_file_bytes=100_000)
    files = files_in(tmp_path, form)
    for start in range(0, 1000, 100):
        files.write(numbered(start, 100, random_bytes=1000))
    outputs = files.prepare_commit().files
    check_outputs(tmp_path, outputs)
    assert len(outputs) >= 5
    assert max(output.size_bytes for output in outputs) < 300_000
    assert sorted(row["kafka_offset"] for row in records_of(tmp_path, outputs)) == list(range(1000))


@pytest.mark.parametrize("file_format", FORMATS)
def test_batch_far_above_the_target_size_becomes_several_files(tmp_path: Path, file_format: FileFormat) -> None:
    files = files_in(
        tmp_path, FileSink(format=file_format, compression=LEAST.get(file_format, "none"), target_file_bytes=50_000)
    )
    files.write(numbered(0, 1000, random_bytes=1000))
    outputs = files.prepare_commit().files
    check_outputs(tmp_path, outputs)
    assert len(outputs) >= 10


def test_large_file_is_streamed_in_row_groups(tmp_path: Path) -> None:
    files = files_in(tmp_path, FileSink(compression="snappy"), row_group_bytes=1 << 20)
    for start in range(0, 4000, 500):
        files.write(numbered(start, 500, random_bytes=1024))
    (begun,) = (tmp_path / "7/a1").iterdir()
    assert begun.name == "0001.parquet.writing"
    assert begun.stat().st_size > 0
    outputs = files.prepare_commit().files
    check_outputs(tmp_path, outputs)
    assert pq.read_metadata(tmp_path / outputs[0].staged_path).num_row_groups >= 3


def test_folders_with_most_rows_are_written_first_if_memory_is_short(tmp_path: Path) -> None:
    form = FileSink(partition_by=TimePartition(), compression="none")
    files = files_in(tmp_path, form, max_waiting_bytes=400_000)
    files.write(numbered(0, 10, time_ms=0))
    files.write(numbered(10, 1000, value=b"x" * 1000, time_ms=DAY_MS))
    assert [path.name for path in (tmp_path / "7/a1").iterdir()] == ["0002.parquet.writing"]
    check_outputs(tmp_path, files.prepare_commit().files)


def test_open_files_are_bounded(tmp_path: Path) -> None:
    form = FileSink(partition_by=TimePartition(), compression="none")
    files = files_in(tmp_path, form, row_group_bytes=1, max_open_files=3)
    for day in range(20):
        files.write(numbered(day, 1, time_ms=day * DAY_MS))
    open_now = [
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.lexists(f"/proc/self/fd/{fd}")
    ]
    assert sum(name.startswith(str(tmp_path)) and name.endswith(".writing") for name in open_now) == 3
    outputs = files.prepare_commit().files
    check_outputs(tmp_path, outputs)
    assert len(outputs) == 20


def test_freeing_memory_continues_after_a_file_was_finished_early(tmp_path: Path) -> None:
    form = FileSink(partition_by=TimePartition(), compression="none")
    files = files_in(tmp_path, form, max_waiting_bytes=20_000, max_open_files=1)
    files.write(numbered(0, 20, random_bytes=1000))
    first = numbered(20, 14, random_bytes=1000).to_pylist()
    second = numbered(34, 16, random_bytes=1000, time_ms=DAY_MS).to_pylist()
    third = numbered(50, 13, random_bytes=1000, time_ms=2 * DAY_MS).to_pylist()
    files.write(pa.RecordBatch.from_pylist(first + second + third, schema=SCHEMA))
    outputs = files.prepare_commit().files
    check_outputs(tmp_path, outputs)
    assert sorted(row["kafka_offset"] for row in records_of(tmp_path, outputs)) == list(range(63))


def test_files_have_the_configured_mode_before_they_are_published(tmp_path: Path) -> None:
    form = FileSink(access=AccessSettings(mode="0604"))
    files = files_in(tmp_path, form)
    files.write(batch_of([(0, 0, 0, b"x")]))
    outputs = files.prepare_commit().files
    assert [(tmp_path / output.staged_path).stat().st_mode & 0o777 for output in outputs] == [0o604]
    check_outputs(tmp_path, outputs)


@pytest.mark.parametrize("mode", ["640 ", "rw-r-----", "0o640", "0999", "", 640])
def test_mode_that_is_not_quoted_octal_digits_is_rejected(mode: object) -> None:
    with pytest.raises(ValidationError, match="mode"):
        AccessSettings.model_validate({"mode": mode})


def test_attempt_without_records_has_no_files(tmp_path: Path) -> None:
    files = files_in(tmp_path, FileSink(partition_by=TimePartition()))
    files.write(batch_of([]))
    assert not files.prepare_commit().files
    assert list((tmp_path / "7").iterdir()) == []


def test_batch_of_another_schema_starts_another_file(tmp_path: Path) -> None:
    files = files_in(tmp_path, FileSink())
    files.write(numbered(0, 2))
    files.write(numbered(2, 2).append_column("more", pa.array(["a", "b"])))
    outputs = files.prepare_commit().files
    check_outputs(tmp_path, outputs)
    assert [output.records for output in outputs] == [2, 2]


@pytest.mark.parametrize(
    ("branch", "folder", "footer_branch"),
    [
        ("main", "{urn}", "main"),
        ("hourly", "{urn}/hourly", "hourly"),
        ("errors", "_rejected/{urn}", ""),
        ("errors/hourly", "_rejected/{urn}/hourly", "hourly"),
    ],
)
def test_each_branch_has_its_own_folder_and_is_named_in_footers(
    tmp_path: Path, branch: str, folder: str, footer_branch: str
) -> None:
    files = files_in(tmp_path, FileSink(), branch=branch)
    files.write(numbered(0, 3))
    outputs = files.prepare_commit().files
    check_outputs(tmp_path, outputs)
    assert posixpath.dirname(outputs[0].final_path) == folder.format(urn=folder_of(URN))
    footer = read_footer(LocalFileSystem(), f"{tmp_path}/{outputs[0].staged_path}")
    assert footer is not None
    assert footer.branch == footer_branch


def test_footer_in_the_records_schema_is_replaced(tmp_path: Path) -> None:
    files = files_in(tmp_path, FileSink())
    files.write(numbered(0, 3).replace_schema_metadata({"distcommit": "somebody else's"}))
    check_outputs(tmp_path, files.prepare_commit().files)


def test_footer_without_source_offsets_has_only_the_count(tmp_path: Path) -> None:
    files = files_in(tmp_path, FileSink(), provenance=None)
    files.write(pa.record_batch({"n": [1, 2, 3]}))
    (output,) = files.prepare_commit().files
    footer = read_footer(LocalFileSystem(), f"{tmp_path}/{output.staged_path}")
    assert footer is not None
    assert (footer.records, footer.offsets) == (3, "")


@pytest.mark.parametrize(
    "wrong",
    [
        {"format": "xml"},
        {"format": "csv", "compression": "none"},
        {"format": "jsonl", "compression": "snappy"},
        {"compression": "lzo"},
        {"target_file_bytes": 0},
        {"unknown": 1},
        {"partition_by": {"granularity": "week"}},
        {"partition_by": {"time_zone": "Mars/Olympus"}},
        {"partition_by": {"time_zone": "../../etc/passwd"}},
        {"partition_by": {"time_zone": ""}},
        {"partition_by": {"zone": "UTC"}},
    ],
)
def test_unknown_settings_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        FileSink.model_validate(wrong)


def hole(low: int, high: int) -> SkippedRange:
    return SkippedRange("0", low, high, "no record", True)


def holes_named(root: Path, outputs: Sequence[StagedFile]) -> list[list[int]]:
    footers = [read_footer(LocalFileSystem(), f"{root}/{output.staged_path}") for output in outputs]
    assert all(footer is not None for footer in footers)
    return [list(OffsetSets.from_text(f.holes).offsets("0")) if f and f.holes else [] for f in footers]


def test_each_hole_is_recorded_by_one_file(tmp_path: Path) -> None:
    files = files_in(tmp_path, FileSink(target_file_bytes=1))  # each batch becomes a file
    files.note_holes([hole(0, 2)])
    files.write(numbered(2, 1))
    files.note_holes([hole(3, 4), hole(6, 8)])
    files.write(numbered(8, 1))
    prepared = files.prepare_commit()
    assert holes_named(tmp_path, prepared.files) == [[0, 1], [3, 6, 7]]
    assert not prepared.holes


def test_holes_without_an_open_file_are_returned_for_the_log(tmp_path: Path) -> None:
    files = files_in(tmp_path, FileSink(target_file_bytes=1))
    files.write(numbered(0, 1))
    files.note_holes([hole(1, 5)])
    prepared = files.prepare_commit()
    assert holes_named(tmp_path, prepared.files) == [[]]
    assert list(prepared.holes) == [hole(1, 5)]


@pytest.mark.parametrize("form", FORMATS)
def test_open_file_records_trailing_holes_and_the_offsets_incarnation(tmp_path: Path, form: FileFormat) -> None:
    files = files_in(tmp_path, FileSink(format=form), incarnation="topic-id")
    files.write(numbered(0, 1))
    files.note_holes([hole(1, 3)])
    prepared = files.prepare_commit()
    assert holes_named(tmp_path, prepared.files) == [[1, 2]]
    footer = read_footer(LocalFileSystem(), f"{tmp_path}/{prepared.files[0].staged_path}")
    assert footer is not None
    assert footer.incarnation == "topic-id"
    assert not prepared.holes
