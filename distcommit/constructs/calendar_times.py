"""Times of the years 1 to 9999 in UTC, which all readers can hold."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DAY_S = 86_400
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_MOST = (1 << 63) - 1
_ISO_SECONDS = b"0000-00-00T00:00:00"
_ISO_LONGEST = 27
"""Length of a time with microseconds and Z, in characters."""
OUTSIDE_CALENDAR = "a time is not within the years 1 to 9999 in UTC"


def are_within_calendar(array: pa.Array) -> bool:
    """Return whether all times, at any depth, are in the years 1 to 9999 in UTC.

    Nanosecond times within a day of their limits are outside, because Arrow computes a wrong local day.
    """
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return are_within_calendar(array.storage)
    if pa.types.is_dictionary(kind):
        return are_within_calendar(array.dictionary)
    if pa.types.is_struct(kind):
        return all(are_within_calendar(below) for below in array.flatten())
    if pa.types.is_map(kind):
        return are_within_calendar(array.keys) and are_within_calendar(array.items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return are_within_calendar(array.flatten())
    return not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)) or _are_within(array)


def display_text(array: pa.Array, row: int) -> str:
    """Return a value in Python's notation. If Python can't represent it, return its stored number."""
    value = array[row]
    try:
        return repr(value.as_py())
    except (OverflowError, ValueError):
        return str(value.cast(pa.int32() if pa.types.is_date32(array.type) else pa.int64()).as_py())


def _are_within(array: pa.Array) -> bool:
    kind = array.type
    numbers = array.view(pa.int32() if pa.types.is_date32(kind) else pa.int64())
    ends = pc.min_max(numbers).as_py()
    if ends["min"] is None:
        return True
    low, high = _limits(kind)
    return bool(low <= ends["min"] and ends["max"] <= high)


def _limits(kind: pa.DataType) -> tuple[int, int]:
    if pa.types.is_date32(kind):
        return _FIRST_DAY, _LAST_DAY
    a_second = _UNITS["ms" if pa.types.is_date64(kind) else kind.unit]
    margin = _DAY_S * a_second
    first, end = _FIRST_DAY * margin, (_LAST_DAY + 1) * margin
    return max(first, -_MOST + margin), min(end - 1, _MOST - margin)


def are_uniform_utc_times(texts: pa.Array) -> bool:
    """Return whether all texts look like `2024-02-29T12:00:00.123456Z`, with equal digits.

    Years must be 1000 to 9899; months and days are not checked. Other texts may still be times.
    """
    rows = len(texts)
    if not rows or texts.null_count:
        return False
    bounds = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + rows + 1]
    size = int(bounds[-1] - bounds[0]) // rows
    if size not in (len(_ISO_SECONDS) + 1, *range(len(_ISO_SECONDS) + 3, _ISO_LONGEST + 1)):
        return False
    if not np.array_equal(bounds[1:] - bounds[:-1], np.full(rows, size, np.int32)):
        return False
    text = np.frombuffer(texts.buffers()[2], np.uint8)[bounds[0] : bounds[-1]].reshape(rows, size)
    form = _ISO_SECONDS + (b"." + b"0" * (size - 21) if size > len(_ISO_SECONDS) + 1 else b"") + b"Z"
    above = text - np.frombuffer(form, np.uint8)  # unsigned: smaller bytes wrap to large numbers
    most = np.array([9 if letter == ord("0") else 0 for letter in form], np.uint8)
    most[[11, 14, 17]] = 2, 5, 5
    if not (above <= most).all():
        return False
    centuries, hours = above[:, 0] * 10 + above[:, 1], above[:, 11] * 10 + above[:, 12]
    return bool(centuries.min() >= 10 and centuries.max() <= 98 and hours.max() <= 23)
