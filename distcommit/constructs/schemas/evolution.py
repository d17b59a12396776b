"""Which schemas files of one dataset may have: those that a reader finds to be one table.

Two are compatible if there is a schema that both can be read as without losing anything: columns that only one of them
has may be null, and types of the same column are the same or one is wider. The relation does not depend on the order in
which schemas come, so an older producer beside a newer one is no other case than the newer one alone.

Wider are: integers of more bits (signed and unsigned by themselves), floating point of more bits, float64 for integers
of at most 32 bits, decimals of more digits before the point, timestamps of a finer unit. Lists, maps and structs go by
what they hold. A dictionary is its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

_UNITS = ("s", "ms", "us", "ns")
_EXACT_BITS = 32
"""Integers of so many bits are floating point numbers, too."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Two schemas side by side.

    Attributes:
        kind: `incompatible` if there are reasons; `identical` if both have the same columns, in any order.
        merged: what both can be read as; None if they are incompatible.
        reasons: why they are, by the paths of columns: `buyer.name is string here, and int64 before`.
    """

    kind: Literal["identical", "compatible", "incompatible"]
    merged: pa.Schema | None
    reasons: tuple[str, ...] = ()


def compared(known: pa.Schema, found: pa.Schema) -> Compared:
    """What a schema is to the ones before it.

    Args:
        known: the schema that those before can be read as.
        found: the other one.
    """
    reasons: list[str] = []
    fields = _fields(list(known), list(found), "", reasons)
    if reasons:
        return Compared("incompatible", None, tuple(reasons))
    same = {_bare(field) for field in known} == {_bare(field) for field in found}
    return Compared("identical" if same else "compatible", pa.schema(fields))


def nullable(schema: pa.Schema) -> pa.Schema:
    """The same with columns that may be null, and so may all that is within them, but for the keys of maps. Then what
    else one of two schemas has, at any depth, is compatible, and files of both can be read as one table."""
    return pa.schema([pa.field(each.name, _nullable(each.type)) for each in schema])


def _nullable(kind: pa.DataType) -> pa.DataType:
    of = pa.types
    if of.is_struct(kind):
        return pa.struct([pa.field(each.name, _nullable(each.type)) for each in kind])
    if of.is_list(kind):
        return pa.list_(_nullable_item(kind))
    if of.is_large_list(kind):
        return pa.large_list(_nullable_item(kind))
    if of.is_fixed_size_list(kind):
        return pa.list_(_nullable_item(kind), kind.list_size)
    if of.is_map(kind):
        return pa.map_(kind.key_type, pa.field(kind.item_field.name, _nullable(kind.item_type)))
    return kind


def _nullable_item(kind: pa.DataType) -> pa.Field:
    return pa.field(kind.value_field.name, _nullable(kind.value_type))


def _bare(field: pa.Field) -> pa.Field:
    return field.remove_metadata()


def _fields(known: Sequence[pa.Field], found: Sequence[pa.Field], path: str, reasons: list[str]) -> list[pa.Field]:
    """The fields of both, those of `known` first."""
    before, now = {field.name: field for field in known}, {field.name: field for field in found}
    merged = []
    for name in dict.fromkeys((*before, *now)):
        old, new = before.get(name), now.get(name)
        if old is not None and new is not None:
            merged.append(_field(old, new, path + name, reasons))
            continue
        only = old or new
        assert only is not None
        if not only.nullable:
            reasons.append(f"{path}{name} {'is new' if old is None else 'is not there'}, and can't be null")
        merged.append(_bare(only))
    return merged


def _field(old: pa.Field, new: pa.Field, path: str, reasons: list[str]) -> pa.Field:
    kind = _type(_plain(old.type), _plain(new.type), path, reasons)
    return pa.field(old.name, kind, old.nullable or new.nullable)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _type(old: pa.DataType, new: pa.DataType, path: str, reasons: list[str]) -> pa.DataType:
    """What both can be read as; says so if there is nothing."""
    of = pa.types
    if of.is_struct(old) and of.is_struct(new):
        return pa.struct(_fields(list(old), list(new), f"{path}.", reasons))
    if of.is_list(old) and of.is_list(new):
        return pa.list_(_field(old.value_field, new.value_field, f"{path}[]", reasons))
    if of.is_map(old) and of.is_map(new) and old.key_type == new.key_type:
        return pa.map_(old.key_type, _field(old.item_field, new.item_field, f"{path}.*", reasons))
    merged = old if old == new else _wider(old, new)
    if merged is None:
        reasons.append(f"{path} is {new} here, and {old} before")
        return old
    return merged


def _wider(old: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    """The narrowest type that holds all values of both; None if there is none."""
    of = pa.types
    for is_kind in (of.is_signed_integer, of.is_unsigned_integer, of.is_floating):
        if is_kind(old) and is_kind(new):
            return max(old, new, key=lambda kind: kind.bit_width)
    for whole, number in ((old, new), (new, old)):
        if of.is_integer(whole) and of.is_floating(number) and whole.bit_width <= _EXACT_BITS:
            return pa.float64()
    if of.is_decimal(old) and of.is_decimal(new) and old.scale == new.scale:
        return max(old, new, key=lambda kind: (kind.precision, kind.bit_width))
    if of.is_timestamp(old) and of.is_timestamp(new) and old.tz == new.tz:
        return max(old, new, key=lambda kind: _UNITS.index(kind.unit))
    return None
