"""Times that every reader holds: those of the years 1 to 9999, in UTC. Arrow's types hold others, too."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DAY_S = 86_400
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_MOST = (1 << 63) - 1
OUTSIDE = "a time is not within the years 1 to 9999 in UTC"


def are_within_calendar(array: pa.Array) -> bool:
    """Return whether all dates and times of an array are of the years 1 to 9999 in UTC, at any depth.

    Times in nanoseconds that are within a day of their type's limits are not: Arrow gives them a wrong local day.
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


def text_of(array: pa.Array, row: int) -> str:
    """Return a value as Python shows it, or as the number that is stored where Python does not hold it."""
    value = array[row]
    try:
        return repr(value.as_py())
    except (OverflowError, ValueError):
        return str(value.cast(pa.int32() if pa.types.is_date32(array.type) else pa.int64()).as_py())


def _are_within(array: pa.Array) -> bool:
    kind = array.type
    numbers = array.view(pa.int32() if pa.types.is_date32(kind) else pa.int64())
    found = pc.min_max(numbers).as_py()
    if found["min"] is None:
        return True
    low, high = _limits(kind)
    return bool(low <= found["min"] and found["max"] <= high)


def _limits(kind: pa.DataType) -> tuple[int, int]:
    """The least and the greatest stored number."""
    if pa.types.is_date32(kind):
        return _FIRST_DAY, _LAST_DAY
    a_second = _UNITS["ms" if pa.types.is_date64(kind) else kind.unit]
    margin = _DAY_S * a_second
    first, end = _FIRST_DAY * margin, (_LAST_DAY + 1) * margin
    return max(first, -_MOST + margin), min(end - 1, _MOST - margin)
