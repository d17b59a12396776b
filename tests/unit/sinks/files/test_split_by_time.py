"""Time folders follow the local calendar for any zone, any unit and any time."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcommit.core.errors import ConfigurationError
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.files.footer import read_records
from distcommit.sinks.files.formats.encoders import FileFormat
from distcommit.sinks.files.sink import FileSink
from distcommit.sinks.files.split_by_time import UNKNOWN_TIME, TimePartition, split_by_time
from tests.unit.sinks.files.attempts import FORMATS, batch_of, expected_folder, files_in


@pytest.mark.thorough
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
def test_folders_follow_the_local_calendar(
    times: list[int], zone: str, granularity: Literal["year", "month", "day", "hour"]
) -> None:
    batch = pa.record_batch({"at": pa.array(times, pa.timestamp("s", "UTC")), "place": pa.array(range(len(times)))})
    split = list(split_by_time(batch, TimePartition(column="at", granularity=granularity, time_zone=zone)))
    assert len({folder for folder, _ in split}) == len(split)
    folders = {place: folder for folder, rows in split for place in rows.column("place").to_pylist()}
    assert folders == {place: expected_folder(at * 1000, zone, granularity) for place, at in enumerate(times)}
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
@pytest.mark.parametrize("file_format", [form for form in FORMATS if form != "orc"])  # ORC rejects most of these
def test_null_and_out_of_range_times_have_a_folder(
    tmp_path: Path, file_format: FileFormat, time_ms: int | None, zone: str, folder: str
) -> None:
    form = FileSink(format=file_format, partition_by=TimePartition(time_zone=zone))
    files = files_in(tmp_path, form)
    files.write(batch_of([(0, 1, time_ms, b"")]))
    (output,) = files.prepare_commit().files
    assert output.final_path.split("/")[1] == folder
    table = read_records(LocalFileSystem(), f"{tmp_path}/{output.staged_path}")
    assert table.column("kafka_timestamp").cast(pa.int64()).to_pylist() == [time_ms]


def test_unknown_times_around_a_known_one_do_not_change_its_folder() -> None:
    at = pa.array([-(2**63) + 1, 0, 2**63 - 1], pa.timestamp("ms", "UTC"))
    split = split_by_time(pa.record_batch({"at": at}), TimePartition(column="at"))
    assert {folder: rows.num_rows for folder, rows in split} == {UNKNOWN_TIME: 2, "1970-01-01": 1}


def test_column_without_zone_is_utc_and_a_missing_one_is_named() -> None:
    naive = pa.record_batch({"at": pa.array([0], pa.timestamp("us"))})
    assert next(split_by_time(naive, TimePartition(column="at", time_zone="Asia/Kolkata")))[0] == "1970-01-01"
    for column in ("other", "n"):
        with pytest.raises(ConfigurationError, match=f"column={column}"):
            list(split_by_time(pa.record_batch({"n": pa.array([1])}), TimePartition(column=column)))
