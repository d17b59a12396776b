"""Values that somebody else's class has made, before they are stored together with those of others."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from distcommit.decoding import from_json, from_msgpack

Value = TypeVar("Value", bound=msgspec.Struct)


def storable(value: Value) -> Value:
    """The value as it is read back once it was stored, in MessagePack or in JSON.

    Structs hold whatever they were made with, and what can't be stored would take the rest of its file with it: text
    that is no valid Unicode, numbers that are none or beyond 64 bits, values of other types.

    Raises:
        ValueError: saying what can't be stored.
    """
    try:
        from_json(msgspec.json.encode(value), type(value))
        return from_msgpack(msgspec.msgpack.encode(value), type(value))
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
