"""Partitioning of rows into folders by local time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Literal
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from distcommit.core.errors import ConfigurationError
from distcommit.core.support.settings_model import SettingError, SettingsModel, checks

UNKNOWN_TIME = "time=unknown"
"""Folder of rows without a time in the years 1 to 9999."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_S = -62_135_596_800  # 0001-01-01
_END_S = 253_402_300_800  # 10000-01-01
_NEVER = np.iinfo(np.int64).min
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_NUMPY_UNITS: dict[str, Literal["Y", "M", "D", "h"]] = {"year": "Y", "month": "M", "day": "D", "hour": "h"}

_Longs = npt.NDArray[np.int64]


class TimePartition(SettingsModel):
    """Folders by time: `2013`, `2013-01`, `2013-01-31` or `2013-01-31-07`, in local time of `time_zone`.

    A column without a zone is read as UTC. The hour that a zone repeats in autumn has one folder.

    Attributes:
        column: a column of timestamps.
        granularity: time span of a folder.
        time_zone: IANA name of the time zone of the local time.
    """

    column: str = "kafka_timestamp"
    granularity: Literal["year", "month", "day", "hour"] = "day"
    time_zone: str = "UTC"

    @checks("time_zone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (LookupError, ValueError, OSError) as error:
            raise SettingError("must be an IANA time zone such as Europe/Brussels") from error
        return name


def split_by_time(batch: pa.RecordBatch, partition: TimePartition) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield each folder's name and its rows in order. Raises ConfigurationError if the column is missing or has no
    timestamps."""
    if batch.num_rows == 0:
        return
    unit = _NUMPY_UNITS[partition.granularity]
    seconds = _seconds(_timestamps(batch, partition.column))
    if partition.time_zone == "UTC":
        # The usual case: the first and the last time show that all rows are in one folder. Unknown times do not.
        first, last = _folder_keys(np.array([seconds.min(), seconds.max()]), "UTC", unit).tolist()
        if first == last != _NEVER:
            yield _folder(first, unit), batch
            return
    keys = _folder_keys(seconds, partition.time_zone, unit)
    if (keys == keys[0]).all():
        yield _folder(int(keys[0]), unit), batch
        return
    result, indices = np.unique(keys, return_inverse=True)
    order = np.argsort(indices, kind="stable")
    ends = np.cumsum(np.bincount(indices))
    # Each folder gets a copy of its own: a slice would keep the whole batch in memory for as long as its few rows wait.
    for key, rows in zip(result.tolist(), np.split(order, ends[:-1]), strict=True):
        yield _folder(key, unit), batch.take(pa.array(rows))


def check_time_column(schema: pa.Schema, column: str) -> None:
    result = schema.names.count(column)
    if result == 1 and pa.types.is_timestamp(schema.field(column).type):
        return
    raise ConfigurationError(
        "records can't be partitioned by time",
        id="PARTITIONING_INVALID",
        expected="one timestamp column of that name",
        found=str(schema.field(column).type) if result == 1 else f"columns {', '.join(schema.names)}",
        todo="set sink.partition_by.column to a timestamp column",
        column=column,
    )


def folder_end_ms(folder: str, partition: TimePartition) -> int | None:
    """Return the end of a time folder in ms since 1970; None for other folders."""
    parts = folder.split("-")
    units = ("year", "month", "day", "hour")
    if len(parts) != units.index(partition.granularity) + 1 or not all(part.isdecimal() for part in parts):
        return None
    year, month, day, hour = (*map(int, parts), *(1, 1, 0)[len(parts) - 1 :])
    try:
        begins = datetime(year, month, day, hour)
        match partition.granularity:
            case "year":
                ends = begins.replace(year=year + 1)
            case "month":
                ends = (begins + timedelta(days=31)).replace(day=1)
            case "day":
                ends = begins + timedelta(days=1)
            case "hour":
                ends = begins + timedelta(hours=1)
        # of an hour that clocks have twice the second, so that both are over
        return round(ends.replace(tzinfo=ZoneInfo(partition.time_zone), fold=1).timestamp() * 1000)
    except (OverflowError, ValueError):
        return None


def _timestamps(batch: pa.RecordBatch, column: str) -> pa.Array:
    check_time_column(batch.schema, column)
    return batch.column(column)


def _folder(key: int, unit: Literal["Y", "M", "D", "h"]) -> str:
    return UNKNOWN_TIME if key == _NEVER else str(np.datetime64(key, unit)).replace("T", "-")


def _seconds(column: pa.Array) -> _Longs:
    seconds: _Longs = column.to_numpy(zero_copy_only=False).view(np.int64) // _PER_SECOND[column.type.unit]
    if column.null_count:
        seconds[column.is_null().to_numpy(zero_copy_only=False)] = _NEVER
    return seconds


def _folder_keys(seconds: _Longs, zone: str, unit: Literal["Y", "M", "D", "h"]) -> _Longs:
    existing = (seconds >= _FIRST_S) & (seconds < _END_S)
    if not existing.all():
        seconds = np.where(existing, seconds, 0)
    if zone != "UTC":
        shifts = _shifts(seconds, zone)
        existing &= shifts != _NEVER
        seconds = seconds + np.where(existing, shifts, 0)
    keys: _Longs = seconds.view("datetime64[s]").astype(f"datetime64[{unit}]").view(np.int64)
    if not existing.all():
        keys = np.where(existing, keys, _NEVER)
    return keys


def _shifts(seconds: _Longs, zone: str) -> _Longs:
    """Return the seconds from UTC to local time; `_NEVER` outside the years 1 to 9999. Arrow's conversion (26.0) has no
    daylight saving after 2037."""
    result, indices = np.unique(seconds // 3600, return_inverse=True)
    by_hour = np.array([_hour_shift(hour, zone) for hour in result.tolist()], dtype=object)
    mixed = np.array([shift is None for shift in by_hour])
    if not mixed.any():
        return by_hour.astype(np.int64)[indices]
    shifts: _Longs = np.where(mixed, 0, by_hour).astype(np.int64)[indices]
    rows = np.flatnonzero(mixed[indices])
    moments, moment_places = np.unique(seconds[rows], return_inverse=True)
    shifts[rows] = np.array([_shift(moment, zone) for moment in moments.tolist()], dtype=np.int64)[moment_places]
    return shifts


@lru_cache(maxsize=4096)
def _hour_shift(hour: int, zone: str) -> int | None:
    first, last = _shift(hour * 3600, zone), _shift(hour * 3600 + 3599, zone)
    return first if first == last else None


def _shift(second: int, zone: str) -> int:
    try:
        shift = (_EPOCH + timedelta(seconds=second)).astimezone(ZoneInfo(zone)).utcoffset()
    except (OverflowError, ValueError):
        return int(_NEVER)
    return int(_NEVER) if shift is None else round(shift.total_seconds())
