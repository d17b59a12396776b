"""Arrow arrays in which nulls stand above values: lists, maps and structs that are null and have something below them.

Readers of other systems, slices and C++ code make such arrays; `pa.array` never does.
"""

from __future__ import annotations

import string
from itertools import accumulate
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st


@st.composite
def covered_arrays(draw: st.DrawFn, kind: pa.DataType) -> tuple[pa.Array, list[Any]]:
    """A slice of such an array of nested lists, structs, small integers and text, and what it shows."""
    values = draw(st.lists(_values_of(kind), max_size=6))
    array = covered_array(kind, values, draw(st.randoms(use_true_random=False)))
    first = draw(st.integers(0, len(values)))
    return array[first:], values[first:]


def covered_array(kind: pa.DataType, values: list[Any], random: Random) -> pa.Array:
    """The array of these values; null lists, maps and structs cover some of what the others hold."""
    others = [value for value in values if value is not None]
    missing = pa.array([value is None for value in values], pa.bool_())
    if others and pa.types.is_struct(kind):
        full = [random.choice(others) if value is None else value for value in values]
        below = [covered_array(field.type, [value[field.name] for value in full], random) for field in kind]
        return pa.StructArray.from_arrays(below, fields=list(kind), mask=missing)
    if others and pa.types.is_fixed_size_list(kind):
        full = [random.choice(others) if value is None else value for value in values]
        items = covered_array(kind.value_type, [item for value in full for item in value], random)
        return pa.FixedSizeListArray.from_arrays(items, type=kind, mask=missing)
    if others and (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind)):
        full = [random.choice([[], *others]) if value is None else value for value in values]
        flat = [item for value in full for item in value]
        large = pa.types.is_large_list(kind)
        ends = pa.array([0, *accumulate(map(len, full))], pa.int64() if large else pa.int32())
        if pa.types.is_map(kind):
            keys = covered_array(kind.key_type, [key for key, _ in flat], random)
            items = covered_array(kind.item_type, [item for _, item in flat], random)
            return pa.MapArray.from_arrays(ends, keys, items, type=kind, mask=missing)
        of = pa.LargeListArray if large else pa.ListArray
        return of.from_arrays(ends, covered_array(kind.value_type, flat, random), type=kind, mask=missing)
    return pa.array(values, kind)


def _values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({field.name: _values_of(field.type) for field in kind})
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return st.none() | st.lists(_values_of(kind.value_type), max_size=3)
    if pa.types.is_integer(kind):
        return st.none() | st.integers(-9, 9)
    return st.none() | st.text(string.ascii_letters, max_size=2)
