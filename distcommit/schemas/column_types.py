"""Types of columns as a job file writes them, and their Arrow types.

id: int64
price: decimal(18, 2)
tags: [string]                          # a list
address: {street: string, no: int32}    # a struct
counts: {"*": int64}                    # a map with keys of any name
odd: {"**": int64}                      # a struct with a field named `*`; a name of stars only is written with one more
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

import pyarrow as pa
from pydantic import AfterValidator

from distcommit.core.support.settings_model import SettingError
from distcommit.schemas.schema_size_limits import MAX_DECLARED_LEVELS
from distcommit.schemas.storable_types import replace_types

_SCALARS = {
    "string": pa.string(),
    "binary": pa.binary(),
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
JSON_TEXT = pa.json_()
"""Type of a JSON value that is stored as text. A job file cannot name this type."""
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")


def field_name(written: str) -> str:
    """Return the name of a field from its form in a job file, where a name of stars only has one more star."""
    return written[1:] if len(written) > 1 and not written.strip("*") else written


def written_name(name: str) -> str:
    """Return the form of a field's name in a job file."""
    return f"{name}*" if name and not name.strip("*") else name


def arrow_type(written: object, depth: int = 0) -> pa.DataType:
    """Return the Arrow type of a type in a job file.

    Args:
        depth: number of enclosing types.

    Raises:
        ValueError: if it is not a type. The message lists the types.
    """
    if depth > MAX_DECLARED_LEVELS:
        raise SettingError(f"must not be nested more than {MAX_DECLARED_LEVELS} deep")
    match written:
        case str() if written in _SCALARS:
            return _SCALARS[written]
        case str() if digits := _DECIMAL.fullmatch(written):
            precision, scale = int(digits[1]), int(digits[2])
            if 1 <= precision <= 38 and scale <= precision:
                return pa.decimal128(precision, scale)
        case [items]:
            return pa.list_(arrow_type(items, depth + 1))
        case {"*": values, **extra} if not extra:
            return pa.map_(pa.string(), arrow_type(values, depth + 1))
        case Mapping() if written and all(isinstance(name, str) for name in written):
            return pa.struct([(field_name(name), arrow_type(below, depth + 1)) for name, below in written.items()])
    raise SettingError(
        f"must be one of {', '.join(_SCALARS)}, decimal(PRECISION, SCALE) of at most 38 digits, [TYPE] for a list,"
        ' {NAME: TYPE, ...} for a struct, or {"*": TYPE} for a map',
        actual=f"{written!r:.100}",
    )


def _checked(written: object) -> object:
    arrow_type(written)
    return written


ColumnType = Annotated[Any, AfterValidator(_checked)]
"""A column's type in the settings of a job file; validated by `arrow_type`."""


def stored_type(kind: pa.DataType) -> pa.DataType:
    """Replace each `arrow.json` type within a type by text."""
    return replace_types(kind, lambda inner: pa.string() if inner == JSON_TEXT else inner)
