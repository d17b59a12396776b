"""The rules of schema evolution: which changes of a dataset's columns are accepted.

Accepted are a new nullable column, a missing nullable column, and a wider type. A type is wider if it has more bits
(signed integers, unsigned integers and floating-point types separately), more digits before the point of a decimal of
the same scale, or a finer unit of a timestamp. All other changes are rejected, with a reason.

| question | function |
| --- | --- |
| Can files of both schemas be read as one table? | `compare_schemas` |
| Can snapshot readers join columns of both types? | `is_joinable` |
| Does a schema have the columns that a job file declares? | `check_declared_columns.misfits`, with `is_narrower` |
| Can messages of one registered schema be read as another? | `is_readable_as` |
| Does a table have the columns of records, or of its data files? | `table_field_comparison` |
| Must a table's column be widened for a type? | `needs_widening` |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from distcommit.schemas.storable_types import ALL_LISTS, plain_type, replace_types

_of = pa.types
_UNITS = ("s", "ms", "us", "ns")
_EXACT_BITS = 32
"""Largest number of bits of an integer type whose values are all exact in float64."""
_FAMILIES = (_of.is_floating, _of.is_decimal, _of.is_time, _of.is_duration, _of.is_timestamp)
"""Tests of type families. Of two types of one family, the wider one has all values of the narrower one."""


@dataclass(frozen=True, slots=True)
class SchemaComparison:
    """The comparison of two schemas.

    Attributes:
        kind: `identical` if both have the same columns, in any order; `compatible` if they have a common schema.
        merged: the common schema; None if the schemas are incompatible.
        reasons: the incompatibilities, with the path of each column: `buyer.name is string here, and int64 before`.
    """

    kind: Literal["identical", "compatible", "incompatible"]
    merged: pa.Schema | None
    reasons: tuple[str, ...] = ()


def compare_schemas(earlier: pa.Schema, later: pa.Schema) -> SchemaComparison:
    """Compare a new schema with the common schema of all earlier records.

    Two schemas are compatible if files of both can be read with a common schema without loss. A column of only one
    schema must be nullable. The types of a common column must be equal, or one must be wider; `float64` is also wider
    than an integer of at most 32 bits. The order of the schemas does not matter, so an older producer may run beside a
    newer one. Lists, maps and structs are compared by their contents, dictionaries by their values.
    """
    reasons: list[str] = []
    fields = _merged_fields(list(earlier), list(later), "", reasons)
    if reasons:
        return SchemaComparison("incompatible", None, tuple(reasons))
    same = {_bare(field) for field in earlier} == {_bare(field) for field in later}
    return SchemaComparison("identical" if same else "compatible", pa.schema(fields))


def nullable(schema: pa.Schema) -> pa.Schema:
    """Return a schema with nullable columns and fields at all depths, except the keys of maps.

    Such schemas are compatible even if only one of them has a column or field.
    """
    return pa.schema([(f.name, replace_types(f.type, lambda kind: kind, all_nullable=True)) for f in schema])


def is_joinable(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether readers can join columns of both types, even if the common type loses precision."""
    schemas = [nullable(pa.schema([("column", kind)])) for kind in (one, other)]
    try:
        pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException:
        return False
    return True


def wider_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the wider of two types of one family: signed integers, unsigned integers, floating-point numbers, decimals
    of one scale, or timestamps of one zone. None for other types.
    """
    if one == other:
        return one
    for is_kind in (_of.is_signed_integer, _of.is_unsigned_integer, _of.is_floating):
        if is_kind(one) and is_kind(other):
            return max(one, other, key=lambda kind: kind.bit_width)
    if _of.is_decimal(one) and _of.is_decimal(other) and one.scale == other.scale:
        return max(one, other, key=lambda kind: (kind.precision, kind.bit_width))
    if _of.is_timestamp(one) and _of.is_timestamp(other) and one.tz == other.tz:
        return max(one, other, key=lambda kind: _UNITS.index(kind.unit))
    return None


def needs_widening(column: pa.DataType, values: pa.DataType) -> bool:
    """Return whether a column can store all values of another type only after its type is widened."""
    return wider_type(column, values) not in (None, column)


def is_narrower(kind: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether each value of a type is also a value of the declared type. A struct may have further fields.
    Integers are never narrower than floating-point numbers or decimals.
    """
    kind, declared = plain_type(kind), plain_type(declared)
    if _of.is_null(kind) or kind == declared:
        return True
    if _is_list(kind) and _is_list(declared):
        return is_narrower(kind.value_type, declared.value_type)
    if _of.is_map(kind) and _of.is_map(declared):
        return is_narrower(kind.key_type, declared.key_type) and is_narrower(kind.item_type, declared.item_type)
    if _of.is_struct(kind) and _of.is_struct(declared):
        below = [(kind.get_field_index(field.name), field.type) for field in declared]
        return all(index >= 0 and is_narrower(kind.field(index).type, required) for index, required in below)
    if _of.is_integer(kind) and _of.is_integer(declared):
        signed, declared_signed = _of.is_signed_integer(kind), _of.is_signed_integer(declared)
        if signed and not declared_signed:
            return False
        width = kind.bit_width if signed == declared_signed else kind.bit_width + 1
        return bool(width <= declared.bit_width)
    return _is_narrower_scalar(kind, declared)


def is_readable_as(
    written: pa.DataType, read: pa.DataType, is_readable_scalar: Callable[[pa.DataType, pa.DataType], bool]
) -> bool:
    """Return whether values written as one type can be read as another. A missing field is read as null, a further
    field is ignored. `is_readable_scalar` decides about two different types without fields.
    """
    if _of.is_struct(written) and _of.is_struct(read):
        pairs = [(written.field(field.name).type, field.type) for field in read if field.name in written.names]
    elif _of.is_list(written) and _of.is_list(read):
        pairs = [(written.value_type, read.value_type)]
    elif _of.is_map(written) and _of.is_map(read):
        pairs = [(written.item_type, read.item_type)]
    else:
        return written == read or is_readable_scalar(written, read)
    return all(is_readable_as(*pair, is_readable_scalar) for pair in pairs)


def _is_narrower_scalar(kind: pa.DataType, declared: pa.DataType) -> bool:
    if str(kind).removeprefix("large_") == str(declared).removeprefix("large_"):
        return True
    if not any(family(kind) and family(declared) for family in _FAMILIES):
        return False
    if _of.is_timestamp(kind):
        if bool(kind.tz) != bool(declared.tz):
            return False
        kind = pa.timestamp(kind.unit, declared.tz)  # zones affect only the display of times
    both = [pa.schema([pa.field("", side)]) for side in (declared, kind)]
    return bool(pa.unify_schemas(both, promote_options="permissive").field(0).type == declared)


def _is_list(kind: pa.DataType) -> bool:
    return any(is_list(kind) for is_list in ALL_LISTS)


def _bare(field: pa.Field) -> pa.Field:
    return field.remove_metadata()


def _merged_fields(
    earlier: Sequence[pa.Field], later: Sequence[pa.Field], path: str, reasons: list[str]
) -> list[pa.Field]:
    """Return the fields of both, those of `earlier` first. Add incompatibilities to `reasons`."""
    before, now = {field.name: field for field in earlier}, {field.name: field for field in later}
    merged = []
    for name in dict.fromkeys((*before, *now)):
        old, new = before.get(name), now.get(name)
        if old is not None and new is not None:
            merged.append(_merged_field(old, new, path + name, reasons))
            continue
        only = old or new
        assert only is not None
        if not only.nullable:
            reasons.append(f"{path}{name} {'is new' if old is None else 'is missing'}, and is not nullable")
        merged.append(_bare(only))
    return merged


def _merged_field(old: pa.Field, new: pa.Field, path: str, reasons: list[str]) -> pa.Field:
    old_type, new_type = (f.type.value_type if _of.is_dictionary(f.type) else f.type for f in (old, new))
    return pa.field(old.name, _merged_type(old_type, new_type, path, reasons), old.nullable or new.nullable)


def _merged_type(old: pa.DataType, new: pa.DataType, path: str, reasons: list[str]) -> pa.DataType:
    """Return the common type. Add an incompatibility to `reasons`."""
    if _of.is_struct(old) and _of.is_struct(new):
        return pa.struct(_merged_fields(list(old), list(new), f"{path}.", reasons))
    if _of.is_list(old) and _of.is_list(new):
        return pa.list_(_merged_field(old.value_field, new.value_field, f"{path}[]", reasons))
    if _of.is_map(old) and _of.is_map(new) and old.key_type == new.key_type:
        return pa.map_(old.key_type, _merged_field(old.item_field, new.item_field, f"{path}.*", reasons))
    if (merged := wider_type(old, new)) is not None:
        return merged
    for combined, number in ((old, new), (new, old)):
        if _of.is_integer(combined) and _of.is_floating(number) and combined.bit_width <= _EXACT_BITS:
            return pa.float64()
    reasons.append(f"{path} is {new} here, and {old} before")
    return old
