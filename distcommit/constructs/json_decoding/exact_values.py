"""Exact conversion of JSON values for Arrow."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import msgspec
import pyarrow as pa

from distcommit.core.support.decoding import json_decoder
from distcommit.schemas.column_types import JSON_TEXT

_FLOATS = json_decoder(float | None)


def exact_value(value: Any, kind: pa.DataType) -> Any:
    """Return a decoded value in a form that Arrow converts exactly. Arrow (26.0) changes a decimal with too many
    digits, or kills the process.

    Raises:
        ValueError: if a number has more digits than its column.
        msgspec.DecodeError: if the value of a column of floats is not a number.
    """
    if value is None:
        return None
    if isinstance(value, msgspec.Raw):
        return _json_text(value) if kind == JSON_TEXT else _exact_float(value)
    if pa.types.is_struct(kind):
        return {name: exact_value(below, kind.field(name).type) for name, below in value.items()}
    if pa.types.is_list(kind):
        return [exact_value(below, kind.value_type) for below in value]
    if pa.types.is_map(kind):
        return {name: exact_value(below, kind.item_type) for name, below in value.items()}
    if not pa.types.is_decimal(kind):
        return value
    sign, digits, exponent = value.as_tuple()
    if isinstance(exponent, int):
        shortened = "".join(map(str, digits)).rstrip("0")
        exponent += len(digits) - len(shortened)
        if not shortened:
            return Decimal(0)
        if exponent >= -kind.scale and len(shortened) + exponent <= kind.precision - kind.scale:
            return Decimal((sign, tuple(map(int, shortened)), exponent))
    raise ValueError(f"{str(value)[:50]} is not a {kind}")


def _json_text(value: msgspec.Raw) -> str | None:
    return None if (text := bytes(value).strip().decode()) == "null" else text


def _exact_float(value: msgspec.Raw) -> float | None:
    number: float | None = _FLOATS.decode(value)
    if number is not None and Decimal(repr(number)) != Decimal(text := bytes(value).strip().decode()):
        raise ValueError(f"{text[:50]} has more digits than float64 can represent: declare it as decimal or float64")
    return number


def _integers(bits: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)]


_PYTHON_TYPES: dict[pa.DataType, Any] = {
    pa.string(): str,
    pa.bool_(): bool,
    pa.int32(): _integers(32),
    pa.int64(): _integers(64),
    pa.float64(): float,
    pa.date32(): date,
    pa.timestamp("us", "UTC"): datetime,
}


def _or_null(kind: pa.DataType, exact_floats: bool) -> Any:
    decoded = python_type(kind, exact_floats)
    return decoded if decoded is msgspec.Raw else decoded | None


def python_type(kind: pa.DataType, exact_floats: bool) -> Any:
    """Return the type as which msgspec decodes values for `exact_value`.

    Args:
        exact_floats: whether floats stay text until `exact_value` converts them.

    Raises:
        ValueError: if JSON has no such type.
    """
    if pa.types.is_struct(kind):
        below = {f.name: _or_null(f.type, exact_floats) for f in kind}
        # The decoder (0.22) takes a name that is not ASCII for the empty name, until encoding has cached its UTF-8.
        msgspec.json.encode(list(below))
        return TypedDict("Fields", below, total=False)  # type: ignore[operator]
    if pa.types.is_list(kind):
        return list[_or_null(kind.value_type, exact_floats)]  # type: ignore[misc]
    if pa.types.is_map(kind):
        return dict[str, _or_null(kind.item_type, exact_floats)]  # type: ignore[misc]
    if kind == JSON_TEXT or (exact_floats and pa.types.is_floating(kind)):
        return msgspec.Raw
    if kind not in _PYTHON_TYPES and not pa.types.is_decimal(kind):
        raise ValueError(f"JSON has no type {kind}")
    return _PYTHON_TYPES.get(kind, Decimal)
