"""Comparison of a table's fields with those of records or of data files, for table formats with their own types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

TypeT = TypeVar("TypeT")
Holds = Callable[[TypeT, TypeT], bool]
"""Returns whether a column of the first type can store all values of the second type."""


@dataclass(frozen=True, slots=True)
class TableField(Generic[TypeT]):
    """A column of a table, or a field within one. The item of a list is named `element`; a map has `key` and `value`.

    Attributes:
        identity: the name or id by which data files refer to the field.
        name: the field's name.
        type: the field's type.
        required: whether the field must not be null.
        has_default: whether the field has a default value for data files without it.
    """

    identity: str | int
    name: str
    type: TypeT
    required: bool
    has_default: bool = False


@dataclass(frozen=True, slots=True)
class InnerFields(Generic[TypeT]):
    """The fields directly within a type.

    Attributes:
        of: kind of the type; empty for a type without nested fields.
        fields: the fields in order: the struct's fields, the list's item, or the map's key and value.
    """

    of: Literal["struct", "list", "map", ""] = ""
    fields: Sequence[TableField[TypeT]] = ()


Inner = Callable[[TypeT], InnerFields[TypeT]]


def missing_from_table(
    table: TypeT, records: TypeT, inner: Inner[TypeT], holds: Holds[TypeT], path: str = ""
) -> Iterator[str]:
    """Yield the problems of storing records in a table: missing columns, and types that cannot store all values.
    `inner` returns the fields within a type.
    """
    have, want = inner(table), inner(records)
    if not want.of or have.of != want.of:
        if not holds(table, records):
            yield f"column {path} is {table}, and records have {records}"
        return
    by_name = {field.name: field for field in have.fields}
    for field in want.fields:
        below = _below(path, field)
        if field.name in by_name:
            yield from missing_from_table(by_name[field.name].type, field.type, inner, holds, below)
        else:
            yield f"no column {below}"


def not_readable_from_files(
    table: TypeT, files: TypeT, inner: Inner[TypeT], holds: Holds[TypeT], path: str = ""
) -> Iterator[str]:
    """Yield the reasons why readers of an altered table do not get all values of its older data files."""
    have, written = inner(table), inner(files)
    if not written.of or have.of != written.of:
        if not holds(table, files):
            yield f"column {path} is {table}, and the files have {files}"
        return
    now = {field.identity: field for field in have.fields}
    for field in written.fields:
        name, present = _below(path, field), now.pop(field.identity, None)
        if present is None:
            yield f"column {name}{f' (id {field.identity})' if field.identity != field.name else ''} was dropped"
            continue
        if present.required and not field.required:
            yield f"column {name} requires a value now"
        yield from not_readable_from_files(present.type, field.type, inner, holds, name)
    for field in now.values() if have.of == "struct" else ():
        if field.required and not field.has_default:
            yield f"column {_below(path, field)} was added and requires a value"


def _below(path: str, field: TableField[TypeT]) -> str:
    return f"{path}.{field.name}" if path else field.name
