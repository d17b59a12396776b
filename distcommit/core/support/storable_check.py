"""Validation of values from custom classes before they are stored together with other values."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from distcommit.core.support.decoding import from_json, from_msgpack

Value = TypeVar("Value", bound=msgspec.Struct)


def storable(value: Value) -> Value:
    """Return the value as a reader would decode it, after encoding it as MessagePack or JSON.

    Structs accept field values of any type. A value that cannot be encoded, such as invalid Unicode, NaN or a number
    beyond 64 bits, would prevent storing the rest of its file.

    Raises:
        ValueError: naming the value that cannot be stored.
    """
    try:
        from_json(msgspec.json.encode(value), type(value))
        return from_msgpack(msgspec.msgpack.encode(value), type(value))
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
