"""The files of an attempt: nothing lost or doubled, every name unique, nothing published that is not whole."""

from __future__ import annotations

import errno
import io
import itertools
import os
import posixpath
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from distcommit.fs.local import LocalFileSystem
from distcommit.fs.posix import RealPosixCalls
from distcommit.model.errors import ConfigurationError, SourceError
from distcommit.model.sink import AttemptIdentity
from distcommit.model.source import Provenance
from distcommit.model.urn import folder_of
from distcommit.model.work import SkippedRange, StagedFile
from distcommit.sinks.encoders import Compression, FileFormat
from distcommit.sinks.files import AccessSettings, AttemptFiles, FileSinkSettings
from distcommit.sinks.footer import read_footer, read_records
from distcommit.sinks.offsets import OffsetSets
from distcommit.sinks.time_folders import UNKNOWN_TIME, TimePartition, split_by_time

URN = "kafka:flights/2013"
ORIGIN = Provenance("kafka_partition", "kafka_offset")
FORMATS: list[FileFormat] = ["parquet", "avro"]
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
    """Offsets from `start` on; random bytes make values that neither a dictionary nor a codec makes smaller."""
    return batch_of([(0, offset, time_ms, value + os.urandom(random_bytes)) for offset in range(start, start + count)])


def files_in(
    root: Path,
    form: FileSinkSettings,
    *,
    attempt: str = "a1",
    work_unit_id: str = "w1",
    epoch: int = 7,
    fs: LocalFileSystem | None = None,
    provenance: Provenance | None = ORIGIN,
    incarnation: str = "",
    **bounds: int,
) -> AttemptFiles:
    (root / "7").mkdir(parents=True, exist_ok=True)  # the bucket's folder, which the run has made
    return AttemptFiles(
        fs if fs is not None else LocalFileSystem(),
        folder=f"{root}/7/{attempt}",
        staged_prefix=f"7/{attempt}",
        output_root=f"{root}/output",
        settings=form,
        dataset_folder=folder_of(URN),
        identity=AttemptIdentity("run", epoch, URN, work_unit_id, attempt),
        provenance=provenance,
        incarnation=incarnation,
        **bounds,
    )


def records_of(root: Path, outputs: tuple[StagedFile, ...]) -> list[dict[str, Any]]:
    tables = [read_records(LocalFileSystem(), f"{root}/{output.staged_path}") for output in outputs]
    return [row for table in tables for row in table.to_pylist()]


def check_outputs(root: Path, outputs: tuple[StagedFile, ...]) -> None:
    """Each output is what it says, and says what it is; nothing else is there."""
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


ROWS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 50),
        st.one_of(st.none(), st.integers(0, 5 * DAY_MS), st.integers(-(2**63) + 1, 2**63 - 1)),
        st.binary(max_size=40),
    ),
    max_size=40,
)
BATCHES = st.lists(st.tuples(st.booleans(), ROWS), max_size=6)
RUN_NUMBERS = itertools.count()


@pytest.mark.parametrize("file_format", FORMATS)
@given(
    batches=BATCHES,
    zone=st.sampled_from(["UTC", "Europe/Brussels", "America/St_Johns"]),
    granularity=st.sampled_from(["year", "month", "day", "hour", None]),
    bounds=st.tuples(st.integers(1, 12_000), st.integers(1, 30_000), st.integers(1, 3), st.integers(200, 20_000)),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_is_lost_or_doubled_whatever_is_split_and_rolled_over(
    tmp_path: Path,
    file_format: FileFormat,
    batches: list[tuple[bool, list[Row]]],
    zone: str,
    granularity: Literal["year", "month", "day", "hour"] | None,
    bounds: tuple[int, int, int, int],
) -> None:
    root = tmp_path / str(next(RUN_NUMBERS))
    partition = None if granularity is None else TimePartition(granularity=granularity, time_zone=zone)
    form = FileSinkSettings(format=file_format, partition_by=partition, target_file_bytes=bounds[3])
    files = files_in(root, form, row_group_bytes=bounds[0], max_waiting_bytes=bounds[1], max_open_files=bounds[2])
    for rejected, rows in batches:
        (files.reject if rejected else files.write)(batch_of(rows))
    outputs = files.prepare_commit()
    check_outputs(root, outputs)
    for rejected in (False, True):
        mine = [row for flag, rows in batches if flag == rejected for row in rows]
        taken = tuple(output for output in outputs if output.final_path.startswith("_rejected/") == rejected)
        tables = [read_records(LocalFileSystem(), f"{root}/{output.staged_path}") for output in taken]
        integers = [t.set_column(2, "kafka_timestamp", t.column(2).cast(pa.int64())) for t in tables]
        found = Counter(tuple(row.values()) for table in integers for row in table.to_pylist())
        assert found == Counter(mine)
        assert (files.records_rejected if rejected else files.records_written) == len(mine)
        for output, table in zip(taken, integers, strict=True):
            times = table.column(2).to_pylist()
            parts = output.final_path.removeprefix("_rejected/").split("/")
            assert parts[0] == folder_of(URN)
            expected = {expected_folder(time, zone, granularity) for time in times}
            assert {"/".join(parts[1:-1])} == expected


def expected_folder(time_ms: int | None, zone: str, granularity: str | None) -> str:
    """The folder by Python's own dates, one row at a time."""
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


@given(
    times=st.lists(
        st.one_of(
            st.integers(-62_135_596_800 - 90_000, 253_402_300_800 + 90_000),
            st.sampled_from([1_364_691_600, 1_382_835_600, 4_110_000_000, 63_593_070]).flatmap(
                lambda at: st.integers(at - 9000, at + 9000)
            ),
        ),
        min_size=1,
        max_size=30,
    ),
    zone=st.sampled_from(["UTC", "Europe/Brussels", "America/Havana", "Australia/Lord_Howe", "Africa/Monrovia"]),
    granularity=st.sampled_from(["year", "month", "day", "hour"]),
)
@settings(max_examples=300, deadline=None)
def test_folders_are_those_of_the_local_calendar(
    times: list[int], zone: str, granularity: Literal["year", "month", "day", "hour"]
) -> None:
    batch = pa.record_batch({"at": pa.array(times, pa.timestamp("s", "UTC")), "place": pa.array(range(len(times)))})
    split = list(split_by_time(batch, TimePartition(column="at", granularity=granularity, time_zone=zone)))
    assert len({folder for folder, _ in split}) == len(split)
    found = {place: folder for folder, rows in split for place in rows.column("place").to_pylist()}
    assert found == {place: expected_folder(at * 1000, zone, granularity) for place, at in enumerate(times)}
    assert all(rows.column("place").to_pylist() == sorted(rows.column("place").to_pylist()) for _, rows in split)


def folder_at(text: str, zone: str, granularity: Literal["year", "month", "day", "hour"], unit: str = "ms") -> str:
    at = pa.array([datetime.fromisoformat(text)], pa.timestamp("us", "UTC")).cast(pa.timestamp(unit, "UTC"))
    partition = TimePartition(column="at", granularity=granularity, time_zone=zone)
    return next(split_by_time(pa.record_batch({"at": at}), partition))[0]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize(
    ("at", "zone", "granularity", "folder"),
    [
        ("2013-01-31T23:30:00+00:00", "UTC", "day", "2013-01-31"),
        ("2013-01-31T23:30:00+00:00", "Europe/Brussels", "day", "2013-02-01"),
        ("2013-01-31T23:30:00+00:00", "Europe/Brussels", "month", "2013-02"),
        ("2013-12-31T23:30:00+00:00", "Europe/Brussels", "year", "2014"),
        ("2013-01-31T07:59:59+00:00", "UTC", "hour", "2013-01-31-07"),
        ("2013-03-31T00:59:59+00:00", "Europe/Brussels", "hour", "2013-03-31-01"),
        ("2013-03-31T01:00:00+00:00", "Europe/Brussels", "hour", "2013-03-31-03"),
        ("2013-10-27T00:30:00+00:00", "Europe/Brussels", "hour", "2013-10-27-02"),
        ("2013-10-27T01:30:00+00:00", "Europe/Brussels", "hour", "2013-10-27-02"),
        ("2100-07-01T22:30:00+00:00", "Europe/Brussels", "day", "2100-07-02"),
        ("2013-04-06T15:20:00+00:00", "Australia/Lord_Howe", "hour", "2013-04-07-01"),
        ("1972-01-07T00:44:29+00:00", "Africa/Monrovia", "hour", "1972-01-06-23"),
        ("1972-01-07T00:59:30+00:00", "Africa/Monrovia", "hour", "1972-01-07-00"),
        ("1969-12-31T23:59:59+00:00", "UTC", "hour", "1969-12-31-23"),
    ],
)
def test_days_and_hours_across_clock_changes(
    at: str, zone: str, granularity: Literal["year", "month", "day", "hour"], folder: str, unit: str
) -> None:
    assert folder_at(at, zone, granularity, unit) == folder


@pytest.mark.parametrize(
    ("time_ms", "zone", "folder"),
    [
        (None, "UTC", UNKNOWN_TIME),
        (-1, "UTC", "1969-12-31"),
        (-62_135_596_800_000, "UTC", "0001-01-01"),
        (-62_135_596_800_001, "UTC", UNKNOWN_TIME),
        (-62_135_596_800_000, "America/New_York", UNKNOWN_TIME),
        (253_402_300_799_999, "UTC", "9999-12-31"),
        (253_402_300_800_000, "UTC", UNKNOWN_TIME),
        (253_402_300_799_999, "Europe/Brussels", UNKNOWN_TIME),
        (2**63 - 1, "UTC", UNKNOWN_TIME),
        (-(2**63) + 1, "Europe/Brussels", UNKNOWN_TIME),
    ],
)
@pytest.mark.parametrize("file_format", FORMATS)
def test_null_and_absurd_times(
    tmp_path: Path, file_format: FileFormat, time_ms: int | None, zone: str, folder: str
) -> None:
    form = FileSinkSettings(format=file_format, partition_by=TimePartition(time_zone=zone))
    files = files_in(tmp_path, form)
    files.write(batch_of([(0, 1, time_ms, b"")]))
    (output,) = files.prepare_commit()
    assert output.final_path.split("/")[1] == folder
    table = read_records(LocalFileSystem(), f"{tmp_path}/{output.staged_path}")
    assert table.column("kafka_timestamp").cast(pa.int64()).to_pylist() == [time_ms]


def test_two_unknown_times_say_nothing_about_what_is_between() -> None:
    at = pa.array([-(2**63) + 1, 0, 2**63 - 1], pa.timestamp("ms", "UTC"))
    split = split_by_time(pa.record_batch({"at": at}), TimePartition(column="at"))
    assert {folder: rows.num_rows for folder, rows in split} == {UNKNOWN_TIME: 2, "1970-01-01": 1}


def test_a_column_without_zone_is_utc_and_a_missing_one_is_named() -> None:
    naive = pa.record_batch({"at": pa.array([0], pa.timestamp("us"))})
    assert next(split_by_time(naive, TimePartition(column="at", time_zone="Asia/Kolkata")))[0] == "1970-01-01"
    for column in ("other", "n"):
        with pytest.raises(ConfigurationError, match=f"column={column}"):
            list(split_by_time(pa.record_batch({"n": pa.array([1])}), TimePartition(column=column)))


@pytest.mark.parametrize("file_format", FORMATS)
def test_names_and_staging(tmp_path: Path, file_format: FileFormat) -> None:
    form = FileSinkSettings(format=file_format, partition_by=TimePartition())
    files = files_in(tmp_path, form)
    files.write(batch_of([(0, 1, 0, b""), (0, 2, DAY_MS, b"")]))
    files.reject(numbered(3, 1))
    outputs = files.prepare_commit()
    check_outputs(tmp_path, outputs)
    urn = folder_of(URN)
    assert [(output.staged_path, output.final_path) for output in outputs] == [
        (f"7/a1/{number}/{name}", f"{folder}/{name}")
        for number, folder, name in [
            ("0001", f"{urn}/1970-01-01", f"0000000007-w1-a1-0001.{file_format}"),
            ("0002", f"{urn}/1970-01-02", f"0000000007-w1-a1-0002.{file_format}"),
            ("0003", f"_rejected/{urn}/1970-01-01", f"0000000007-w1-a1-0003.{file_format}"),
        ]
    ]


def test_files_for_one_folder_lie_in_the_attempt_s_own_under_their_final_names(tmp_path: Path) -> None:
    files = files_in(tmp_path, FileSinkSettings(target_file_bytes=1))
    files.write(numbered(3, 1))
    files.write(numbered(3, 2))
    outputs = files.prepare_commit()
    assert len(outputs) > 1
    assert {output.staged_path for output in outputs} == {
        f"7/a1/{output.final_path.rpartition('/')[2]}" for output in outputs
    }


@pytest.mark.parametrize("file_format", FORMATS)
def test_files_roll_over_at_their_target_size(tmp_path: Path, file_format: FileFormat) -> None:
    form = FileSinkSettings(format=file_format, compression="none", target_file_bytes=100_000)
    files = files_in(tmp_path, form)
    for start in range(0, 1000, 100):
        files.write(numbered(start, 100, random_bytes=1000))
    outputs = files.prepare_commit()
    check_outputs(tmp_path, outputs)
    assert len(outputs) >= 5
    assert max(output.size_bytes for output in outputs) < 300_000
    assert sorted(row["kafka_offset"] for row in records_of(tmp_path, outputs)) == list(range(1000))


@pytest.mark.parametrize("file_format", FORMATS)
def test_one_batch_far_above_the_target_becomes_several_files(tmp_path: Path, file_format: FileFormat) -> None:
    files = files_in(tmp_path, FileSinkSettings(format=file_format, compression="none", target_file_bytes=50_000))
    files.write(numbered(0, 1000, random_bytes=1000))
    outputs = files.prepare_commit()
    check_outputs(tmp_path, outputs)
    assert len(outputs) >= 15


def test_a_large_file_is_streamed_in_row_groups(tmp_path: Path) -> None:
    files = files_in(tmp_path, FileSinkSettings(compression="snappy"), row_group_bytes=1 << 20)
    for start in range(0, 4000, 500):
        files.write(numbered(start, 500, random_bytes=1024))
    (begun,) = (tmp_path / "7/a1").iterdir()
    assert begun.name == "0001.parquet.writing"
    assert begun.stat().st_size > 0
    outputs = files.prepare_commit()
    check_outputs(tmp_path, outputs)
    assert pq.read_metadata(tmp_path / outputs[0].staged_path).num_row_groups >= 3


def test_the_folders_with_most_are_written_first_when_memory_is_short(tmp_path: Path) -> None:
    form = FileSinkSettings(partition_by=TimePartition(), compression="none")
    files = files_in(tmp_path, form, max_waiting_bytes=400_000)
    files.write(numbered(0, 10, time_ms=0))
    files.write(numbered(10, 1000, value=b"x" * 1000, time_ms=DAY_MS))
    assert [path.name for path in (tmp_path / "7/a1").iterdir()] == ["0002.parquet.writing"]
    check_outputs(tmp_path, files.prepare_commit())


def test_open_files_are_bounded(tmp_path: Path) -> None:
    form = FileSinkSettings(partition_by=TimePartition(), compression="none")
    files = files_in(tmp_path, form, row_group_bytes=1, max_open_files=3)
    for day in range(20):
        files.write(numbered(day, 1, time_ms=day * DAY_MS))
    open_now = [
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.lexists(f"/proc/self/fd/{fd}")
    ]
    assert sum(name.startswith(str(tmp_path)) and name.endswith(".writing") for name in open_now) == 3
    outputs = files.prepare_commit()
    check_outputs(tmp_path, outputs)
    assert len(outputs) == 20


def test_making_room_goes_on_when_a_file_was_finished_early(tmp_path: Path) -> None:
    form = FileSinkSettings(partition_by=TimePartition(), compression="none")
    files = files_in(tmp_path, form, max_waiting_bytes=20_000, max_open_files=1)
    files.write(numbered(0, 20, random_bytes=1000))
    first = numbered(20, 14, random_bytes=1000).to_pylist()
    second = numbered(34, 16, random_bytes=1000, time_ms=DAY_MS).to_pylist()
    third = numbered(50, 13, random_bytes=1000, time_ms=2 * DAY_MS).to_pylist()
    files.write(pa.RecordBatch.from_pylist(first + second + third, schema=SCHEMA))
    outputs = files.prepare_commit()
    check_outputs(tmp_path, outputs)
    assert sorted(row["kafka_offset"] for row in records_of(tmp_path, outputs)) == list(range(63))


def test_files_have_the_mode_that_the_settings_name_before_they_are_published(tmp_path: Path) -> None:
    form = FileSinkSettings(access=AccessSettings(mode="0604"))
    files = files_in(tmp_path, form)
    files.write(batch_of([(0, 0, 0, b"x")]))
    files.reject(batch_of([(0, 1, 0, b"x")]))
    outputs = files.prepare_commit()
    assert [(tmp_path / output.staged_path).stat().st_mode & 0o777 for output in outputs] == [0o604, 0o604]
    check_outputs(tmp_path, outputs)


@pytest.mark.parametrize("mode", ["640 ", "rw-r-----", "0o640", "0999", "", 640])
def test_a_mode_is_octal_digits_in_quotes(mode: object) -> None:
    with pytest.raises(ValidationError, match="mode"):
        AccessSettings.model_validate({"mode": mode})


def test_no_records_no_files(tmp_path: Path) -> None:
    files = files_in(tmp_path, FileSinkSettings(partition_by=TimePartition()))
    files.write(batch_of([]))
    files.reject(batch_of([]))
    assert files.prepare_commit() == ()
    assert list((tmp_path / "7").iterdir()) == []


def test_a_batch_of_another_schema_starts_another_file(tmp_path: Path) -> None:
    files = files_in(tmp_path, FileSinkSettings())
    files.write(numbered(0, 2))
    files.write(numbered(2, 2).append_column("more", pa.array(["a", "b"])))
    outputs = files.prepare_commit()
    check_outputs(tmp_path, outputs)
    assert [output.records for output in outputs] == [2, 2]


def test_rejected_records_may_have_a_schema_of_their_own_without_the_time(tmp_path: Path) -> None:
    files = files_in(tmp_path, FileSinkSettings(partition_by=TimePartition()))
    files.reject(numbered(0, 3).drop_columns(["kafka_timestamp"]))
    outputs = files.prepare_commit()
    check_outputs(tmp_path, outputs)
    assert posixpath.dirname(outputs[0].final_path) == f"_rejected/{folder_of(URN)}"


def test_a_footer_in_the_records_schema_does_not_become_ours(tmp_path: Path) -> None:
    files = files_in(tmp_path, FileSinkSettings())
    files.write(numbered(0, 3).replace_schema_metadata({"distcommit": "somebody else's"}))
    check_outputs(tmp_path, files.prepare_commit())


def test_without_offsets_in_the_source_the_footer_counts_only(tmp_path: Path) -> None:
    files = files_in(tmp_path, FileSinkSettings(), provenance=None)
    files.write(pa.record_batch({"n": [1, 2, 3]}))
    (output,) = files.prepare_commit()
    footer = read_footer(LocalFileSystem(), f"{tmp_path}/{output.staged_path}")
    assert footer is not None
    assert (footer.records, footer.offsets) == (3, "")


IDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
WRITERS = st.tuples(st.integers(0, 10**10 - 1), IDS, IDS)


@given(st.lists(WRITERS, min_size=2, max_size=2, unique=True))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_two_writers_share_a_name(tmp_path: Path, writers: list[tuple[int, str, str]]) -> None:
    root = tmp_path / str(next(RUN_NUMBERS))
    root.mkdir()
    names = []
    for place, (epoch, work_unit_id, attempt) in enumerate(writers):
        files = AttemptFiles(
            LocalFileSystem(durable=False),
            folder=f"{root}/{place}",
            staged_prefix=str(place),
            output_root=f"{root}/output",
            settings=FileSinkSettings(),
            dataset_folder="d",
            identity=AttemptIdentity("r", epoch, URN, work_unit_id, attempt),
        )
        files.write(pa.record_batch({"n": [1]}))
        names += [output.final_path for output in files.prepare_commit()]
    assert len(set(names)) == 2
    assert all(name.count("/") == 1 and name.isascii() and name.isprintable() for name in names)


def test_dashes_in_ids_do_not_make_names_ambiguous(tmp_path: Path) -> None:
    names = set()
    for work_unit_id, attempt in (("a-b", "c"), ("a", "b-c")):
        files = files_in(tmp_path, FileSinkSettings(), work_unit_id=work_unit_id, attempt=attempt)
        files.write(numbered(0, 1))
        names |= {output.final_path for output in files.prepare_commit()}
    assert len(names) == 2


def test_ids_too_long_for_a_file_name_are_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="too long"):
        files_in(tmp_path, FileSinkSettings(), work_unit_id="w" * 250)


def test_a_second_writer_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    first, second = files_in(tmp_path, FileSinkSettings()), files_in(tmp_path, FileSinkSettings(), row_group_bytes=1)
    first.write(numbered(0, 1))
    second.write(numbered(0, 1))
    with pytest.raises(FileExistsError):
        first.prepare_commit()
    first.abort()
    check_outputs(tmp_path, second.prepare_commit())


def test_abort_leaves_unfinished_files_under_their_writing_name(tmp_path: Path) -> None:
    files = files_in(tmp_path, FileSinkSettings(partition_by=TimePartition()), row_group_bytes=1)
    files.write(numbered(0, 10))
    files.write(numbered(10, 10, time_ms=DAY_MS))
    files.abort()
    files.abort()
    left = sorted(path.name for path in (tmp_path / "7/a1").iterdir())
    assert left == ["0001.parquet.writing", "0002.parquet.writing"]
    for name in left:
        with pytest.raises(pa.ArrowInvalid):
            pq.read_metadata(tmp_path / "7/a1" / name)
    with pytest.raises(ValueError, match="aborted"):
        files.prepare_commit()


def test_abort_after_close_changes_nothing(tmp_path: Path) -> None:
    files = files_in(tmp_path, FileSinkSettings())
    files.write(numbered(0, 10))
    outputs = files.prepare_commit()
    files.abort()
    check_outputs(tmp_path, outputs)
    for again in (files.prepare_commit, lambda: files.write(numbered(0, 1))):
        with pytest.raises(ValueError, match="closed"):
            again()


class FullDisk(RealPosixCalls):
    """System calls of a disk with room for so many bytes."""

    def __init__(self, room_bytes: int) -> None:
        super().__init__()
        self.room_bytes = room_bytes

    def write(self, fd: int, data: bytes | bytearray | memoryview) -> int:
        self.room_bytes -= len(data)
        if self.room_bytes < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(fd, data)


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("room_bytes", [0, 10, 40_000, 500_000])
def test_a_full_disk_fails_the_attempt_for_good(tmp_path: Path, file_format: FileFormat, room_bytes: int) -> None:
    form = FileSinkSettings(format=file_format, compression="none", target_file_bytes=300_000)
    files = files_in(tmp_path, form, fs=LocalFileSystem(FullDisk(room_bytes)), row_group_bytes=100_000)

    def write_all() -> None:
        for start in range(0, 1000, 100):
            files.write(numbered(start, 100, random_bytes=1000))
        files.prepare_commit()

    with pytest.raises(OSError, match="No space left") as caught:
        write_all()
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(ValueError, match="failed"):
        files.prepare_commit()
    files.abort()
    assert all(path.name.endswith(".writing") for path in tmp_path.rglob("*") if path.is_file())


def test_a_batch_that_was_refused_half_way_can_not_be_closed_over(tmp_path: Path) -> None:
    files = files_in(tmp_path, FileSinkSettings(), row_group_bytes=1)
    files.write(numbered(0, 10))
    with pytest.raises(SourceError):
        files.write(batch_of([(0, 11, 0, b""), (0, -1, 0, b"")]))
    with pytest.raises(ValueError, match="failed"):
        files.prepare_commit()
    files.abort()


TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.binary(), [b"", b"\xff", None]),
    (pa.large_binary(), [b"x", None]),
    (pa.string(), ["", "é\U0001f600", None]),
    (pa.large_string(), ["x", None]),
    (pa.dictionary(pa.int32(), pa.string()), ["x", None, "x"]),
    (pa.int8(), [-128, 127, None]),
    (pa.int16(), [-(2**15), None]),
    (pa.int32(), [-(2**31), 2**31 - 1, None]),
    (pa.uint32(), [2**32 - 1, None]),
    (pa.int64(), [-(2**63), 2**63 - 1, None]),
    (pa.float32(), [0.5, None, float("inf")]),
    (pa.float64(), [1e300, None]),
    (pa.bool_(), [True, False, None]),
    (pa.date32(), [None, datetime(2013, 1, 31, tzinfo=UTC).date()]),
    (pa.timestamp("ms", "UTC"), [0, None, -1, 2**62]),
    (pa.timestamp("us", "Europe/Brussels"), [0, None, -(2**62)]),
    (pa.timestamp("us"), [5, None]),
    (pa.list_(pa.int32()), [[], [1, None], None]),
    (
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary()), ("at", pa.timestamp("ms", "UTC"))])),
        [[], None, [{"key": "k", "value": b"v", "at": 3}, {"key": "k", "value": None, "at": None}]],
    ),
    (pa.struct([("a", pa.struct([("a", pa.int64())]))]), [{"a": {"a": 1}}, {"a": None}, None]),
]


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "none"])
def test_avro_holds_every_mapped_type(tmp_path: Path, compression: Compression) -> None:
    columns = [pa.array((values * 3)[:6], kind) for kind, values in TYPES]
    batch = pa.RecordBatch.from_arrays(columns, names=[f"c{place}" for place in range(len(columns))])
    files = files_in(tmp_path, FileSinkSettings(format="avro", compression=compression), provenance=None)
    files.write(batch)
    (output,) = files.prepare_commit()
    path = tmp_path / output.staged_path
    found = read_records(LocalFileSystem(), str(path))
    for place, (kind, _) in enumerate(TYPES):
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        wanted = columns[place].cast(plain)
        back = found.column(place).cast(plain)
        assert back.combine_chunks().equals(wanted), kind
    header = fastavro.schemaless_reader(io.BytesIO(path.read_bytes()[4:]), {"type": "map", "values": "bytes"}, None)
    assert isinstance(header, dict)
    assert header["avro.codec"] == {"zstd": b"zstandard", "gzip": b"deflate", "none": b"null"}.get(
        compression, compression.encode()
    )


@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_other_avro_readers_agree(tmp_path: Path, compression: Compression) -> None:
    files = files_in(tmp_path, FileSinkSettings(format="avro", compression=compression))
    batch = numbered(0, 10_000, value=b"x" * 100)
    files.write(batch)
    (output,) = files.prepare_commit()
    with (tmp_path / output.staged_path).open("rb") as file:
        assert list(fastavro.reader(file)) == batch.to_pylist()


def test_columns_that_may_not_be_null_are_not_unions(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    files = files_in(tmp_path, FileSinkSettings(format="avro"), provenance=None)
    files.write(pa.record_batch({"n": [1]}, schema=schema))
    (output,) = files.prepare_commit()
    assert read_records(LocalFileSystem(), f"{tmp_path}/{output.staged_path}").schema.equals(schema)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("amount", pa.decimal128(10, 2)),
        ("at", pa.timestamp("ns", "UTC")),
        ("big", pa.uint64()),
        ("kafka-time", pa.int64()),
        ("1st", pa.int64()),
        ("nested", pa.list_(pa.struct([("x", pa.duration("ms"))]))),
    ],
)
def test_what_avro_has_no_form_for_is_refused_by_column(tmp_path: Path, name: str, kind: pa.DataType) -> None:
    files = files_in(tmp_path, FileSinkSettings(format="avro"), provenance=None)
    batch = pa.RecordBatch.from_arrays([pa.nulls(1, kind)], names=[name])
    with pytest.raises(ConfigurationError, match=f"column={name}"):
        files.write(batch)
    files.abort()


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "none"])
def test_parquet_files_are_compressed_as_set_unless_tiny(tmp_path: Path, compression: Compression) -> None:
    expected = {"none": "UNCOMPRESSED"}.get(compression, compression.upper())
    for attempt, count, wanted in (("big", 10_000, expected), ("tiny", 10, "UNCOMPRESSED")):
        files = files_in(tmp_path, FileSinkSettings(compression=compression), attempt=attempt)
        files.write(numbered(0, count, value=b"x" * 20))
        (output,) = files.prepare_commit()
        assert pq.read_metadata(tmp_path / output.staged_path).row_group(0).column(3).compression == wanted


@pytest.mark.parametrize(
    "wrong",
    [
        {"format": "csv"},
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
def test_settings_refuse_what_they_do_not_know(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        FileSinkSettings.model_validate(wrong)


def hole(low: int, high: int) -> SkippedRange:
    return SkippedRange("0", low, high, "no record", True)


def holes_named(root: Path, outputs: tuple[StagedFile, ...]) -> list[list[int]]:
    footers = [read_footer(LocalFileSystem(), f"{root}/{output.staged_path}") for output in outputs]
    assert all(footer is not None for footer in footers)
    return [list(OffsetSets.from_text(f.holes).offsets("0")) if f and f.holes else [] for f in footers]


def test_each_hole_is_named_by_one_file(tmp_path: Path) -> None:
    files = files_in(tmp_path, FileSinkSettings(target_file_bytes=1))  # each batch is a file of its own
    files.note_holes([hole(0, 2)])
    files.write(numbered(2, 1))
    files.note_holes([hole(3, 4), hole(6, 8)])
    files.write(numbered(8, 1))
    outputs = files.prepare_commit()
    assert holes_named(tmp_path, outputs) == [[0, 1], [3, 6, 7]]
    assert files.holes_left == ()


def test_holes_that_come_when_no_file_is_open_are_left_over(tmp_path: Path) -> None:
    files = files_in(tmp_path, FileSinkSettings(target_file_bytes=1))
    files.write(numbered(0, 1))
    files.note_holes([hole(1, 5)])
    assert holes_named(tmp_path, files.prepare_commit()) == [[]]
    assert files.holes_left == (hole(1, 5),)


@pytest.mark.parametrize("form", ["parquet", "avro"])
def test_an_open_file_names_holes_behind_its_last_record_and_what_offsets_count_in(
    tmp_path: Path, form: FileFormat
) -> None:
    files = files_in(tmp_path, FileSinkSettings(format=form), incarnation="topic-id")
    files.write(numbered(0, 1))
    files.note_holes([hole(1, 3)])
    outputs = files.prepare_commit()
    assert holes_named(tmp_path, outputs) == [[1, 2]]
    footer = read_footer(LocalFileSystem(), f"{tmp_path}/{outputs[0].staged_path}")
    assert footer is not None
    assert footer.incarnation == "topic-id"
    assert files.holes_left == ()
