"""Compatibility of the schemas of one dataset, whose files must be readable as one table.

Two schemas are compatible if both can be read as a common schema without loss. A column of only one schema must be
nullable. The types of a common column must be equal, or one must be wider. The relation is symmetric, so an older
producer may run beside a newer one.

A wider type is: an integer with more bits (signed and unsigned separately), a floating-point type with more bits,
float64 for integers of at most 32 bits, a decimal with more digits before the point, a timestamp with a finer unit.
Lists, maps and structs are compared by their contents, dictionaries by their values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

_UNITS = ("s", "ms", "us", "ns")
_EXACT_BITS = 32
"""Integers of at most this many bits are exact in float64."""


@dataclass(frozen=True, slots=True)
class SchemaComparison:
    """The comparison of two schemas.

    Attributes:
        kind: `identical` if both have the same columns, in any order.
        merged: the common schema; None if they are incompatible.
        reasons: the incompatibilities, with the paths of columns: `buyer.name is string here, and int64 before`.
    """

    kind: Literal["identical", "compatible", "incompatible"]
    merged: pa.Schema | None
    reasons: tuple[str, ...] = ()


def compare_schemas(earlier: pa.Schema, later: pa.Schema) -> SchemaComparison:
    """Compare a schema with the earlier ones.

    Args:
        earlier: the common schema of the earlier ones.
        later: the new schema.
    """
    reasons: list[str] = []
    fields = _fields(list(earlier), list(later), "", reasons)
    if reasons:
        return SchemaComparison("incompatible", None, tuple(reasons))
    same = {_bare(field) for field in earlier} == {_bare(field) for field in later}
    return SchemaComparison("identical" if same else "compatible", pa.schema(fields))


def nullable(schema: pa.Schema) -> pa.Schema:
    """Return a schema with nullable columns, at all depths except the keys of maps.

    Then a column or field of only one of two schemas is compatible.
    """
    return pa.schema([pa.field(field.name, _nullable(field.type)) for field in schema])


def _nullable(kind: pa.DataType) -> pa.DataType:
    of = pa.types
    if of.is_struct(kind):
        return pa.struct([pa.field(field.name, _nullable(field.type)) for field in kind])
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


def _fields(earlier: Sequence[pa.Field], later: Sequence[pa.Field], path: str, reasons: list[str]) -> list[pa.Field]:
    """Return the fields of both, those of `earlier` first. Appends incompatibilities to `reasons`."""
    before, now = {field.name: field for field in earlier}, {field.name: field for field in later}
    merged = []
    for name in dict.fromkeys((*before, *now)):
        old, new = before.get(name), now.get(name)
        if old is not None and new is not None:
            merged.append(_field(old, new, path + name, reasons))
            continue
        only = old or new
        assert only is not None
        if not only.nullable:
            reasons.append(f"{path}{name} {'is new' if old is None else 'is missing'}, and is not nullable")
        merged.append(_bare(only))
    return merged


def _field(old: pa.Field, new: pa.Field, path: str, reasons: list[str]) -> pa.Field:
    kind = _type(_plain(old.type), _plain(new.type), path, reasons)
    return pa.field(old.name, kind, old.nullable or new.nullable)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _type(old: pa.DataType, new: pa.DataType, path: str, reasons: list[str]) -> pa.DataType:
    """Return the common type. Appends an incompatibility to `reasons`."""
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
    """Return the narrowest type that holds all values of both; None if none does."""
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
