"""Validation of values from custom classes before they are stored together with other values."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from distcommit.core.support.decoding import from_json, from_msgpack

Value = TypeVar("Value", bound=msgspec.Struct)


def storable(value: Value) -> Value:
    """Return the value as it is read back after storing it, in MessagePack or in JSON.

    Structs accept any field values, and one value that cannot be stored would prevent storing the rest of its file.
    Examples are invalid Unicode, NaN, numbers beyond 64 bits and values of other types.

    Raises:
        ValueError: naming the value that cannot be stored.
    """
    try:
        from_json(msgspec.json.encode(value), type(value))
        return from_msgpack(msgspec.msgpack.encode(value), type(value))
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
