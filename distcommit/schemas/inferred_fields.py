"""Inference of the fields of JSON objects, in the notation of job files (`schemas.column_types`).

Whole numbers are `int64`, or `decimal(38, 0)` if one has more than 64 bits. Numbers with fractions are `float64`; a
number that float64 can't represent exactly is rejected later. All text is `string`. Objects are structs, lists are
lists. A name with only null or empty values has no type yet and is not a field. If values have different kinds, such as
text and numbers, the kind of the first value is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa

from distcommit.schemas.column_types import arrow_type, field_name, written_name
from distcommit.schemas.schema_size_limits import MAX_INFERRED_LEVELS

Fields = Mapping[str, Any]
"""Types by name, as in a job file."""

_NO_TYPE = None


def infer_fields(values: pa.Array) -> dict[str, Any]:
    """Return the fields of all objects among the values, which are bytes, text or null."""
    return typed_fields(infer_names(values))


def infer_names(values: pa.Array) -> dict[str, Any]:
    """Return the types of all names in the objects among the values, which are bytes, text or null.

    The type is None if all values of a name are null, `[None]` if they are empty lists, and `{}` if they are empty
    objects. `typed_fields` leaves such names out.
    """
    names: Any = {}
    for value in values.to_pylist():
        try:
            record = msgspec.json.decode(value) if value is not None else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(record, dict):
            names = _widened(names, record, 0)
    return dict(names)


def typed_fields(names: Fields) -> dict[str, Any]:
    """Return the fields, without names that have no type."""
    return _typed(names) or {}


def wire_schema(names: Fields) -> pa.Schema:
    """Return the schema for Arrow's JSON reader. The reader accepts only null and empty values for names without a
    type.
    """
    return pa.schema([(field_name(name), _wire_type(written)) for name, written in names.items()])


def _wire_type(written: Any) -> pa.DataType:
    match written:
        case None:
            return pa.null()
        case [below]:
            return pa.list_(_wire_type(below))
        case dict():
            return pa.struct([(field_name(name), _wire_type(below)) for name, below in written.items()])
    return arrow_type(written)


def merged_fields(earlier: Fields, new: Fields) -> dict[str, Any]:
    """Return the earlier fields unchanged, followed by new fields, at all levels."""
    merged = {name: _added(written, new[name]) if name in new else written for name, written in earlier.items()}
    return merged | {name: written for name, written in new.items() if name not in earlier}


def field_paths(fields: Fields, before: str = "") -> list[str]:
    """Return the paths of all fields that hold values: `buyer.name`, `tags`, `items[].price`."""
    return [path for name, written in fields.items() for path in _paths(written, f"{before}{name}")]


def _paths(written: Any, path: str) -> list[str]:
    match written:
        case [below]:
            return _paths(below, f"{path}[]")
        case dict():
            return field_paths(written, f"{path}.")
    return [path]


def _added(earlier: Any, new: Any) -> Any:
    match earlier, new:
        case dict(), dict():
            return merged_fields(earlier, new)
        case [below], [other]:
            return [_added(below, other)]
    return earlier


def _widened(kind: Any, value: object, depth: int) -> Any:
    """Return a field's type after one more value. Lists and objects are changed in place."""
    match value:
        case None:
            return kind
        case bool():
            return "bool" if kind is _NO_TYPE else kind
        case int() if -(1 << 63) <= value < 1 << 63:
            return "int64" if kind is _NO_TYPE else kind
        case int():
            return "decimal(38, 0)" if kind in (_NO_TYPE, "int64") else kind
        case float():
            return "float64" if kind in (_NO_TYPE, "int64") else kind
        case str():
            return "string" if kind is _NO_TYPE else kind
        case list() if depth < MAX_INFERRED_LEVELS and (kind is _NO_TYPE or isinstance(kind, list)):
            below = kind or [_NO_TYPE]
            for item in value:
                below[0] = _widened(below[0], item, depth + 1)
            return below
        case dict() if depth < MAX_INFERRED_LEVELS and (kind is _NO_TYPE or isinstance(kind, dict)):
            fields = {} if kind is _NO_TYPE else kind
            for name, inner in value.items():
                written = written_name(name)
                fields[written] = _widened(fields.get(written), inner, depth + 1)
            return fields
    return kind


def _typed(observed: Any) -> Any:
    match observed:
        case [below]:
            kind = _typed(below)
            return _NO_TYPE if kind is _NO_TYPE else [kind]
        case dict():
            fields = {name: kind for name, below in observed.items() if (kind := _typed(below)) is not _NO_TYPE}
            return fields or _NO_TYPE
    return observed
