"""Values of given types from bytes: the one way to msgspec's decoders.

msgspec looks at a type when it first meets it, and other threads see what it has of it so far, which ends the process
(version 0.22: a segmentation fault, where two threads were the first to read a footer). Here each type is looked at
under a lock, together with all that it is made of.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar, overload

import msgspec

Value = TypeVar("Value")

_LOOKING = threading.Lock()
_json: dict[Any, msgspec.json.Decoder[Any]] = {}
_msgpack: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


@overload
def json_decoder(kind: type[Value]) -> msgspec.json.Decoder[Value]: ...
@overload
def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]: ...
def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """A new decoder, for types that are made as the program runs; may be shared by threads."""
    with _LOOKING:
        return msgspec.json.Decoder(kind)


@overload
def from_json(data: bytes | str | msgspec.Raw, kind: type[Value]) -> Value: ...
@overload
def from_json(data: bytes | str | msgspec.Raw, kind: Any) -> Any: ...
def from_json(data: bytes | str | msgspec.Raw, kind: Any) -> Any:
    """The value of that type.

    Args:
        kind: hashable, and one of those that the program has: it is kept.

    Raises:
        msgspec.DecodeError: if it is none; UnicodeDecodeError, RecursionError: likewise.
    """
    return _json_of(kind).decode(data)


@overload
def from_msgpack(data: bytes | bytearray | memoryview, kind: type[Value]) -> Value: ...
@overload
def from_msgpack(data: bytes | bytearray | memoryview, kind: Any) -> Any: ...
def from_msgpack(data: bytes | bytearray | memoryview, kind: Any) -> Any:
    """As `from_json`."""
    decoder = _msgpack.get(kind)
    if decoder is None:
        with _LOOKING:
            decoder = _msgpack[kind] = msgspec.msgpack.Decoder(kind)
    return decoder.decode(data)


@overload
def converted(value: Any, kind: type[Value]) -> Value: ...
@overload
def converted(value: Any, kind: Any) -> Any: ...
def converted(value: Any, kind: Any) -> Any:
    """The same from plain values.

    Raises:
        msgspec.ValidationError: if they make none.
    """
    _json_of(kind)  # so that the type is known
    return msgspec.convert(value, kind)


def _json_of(kind: Any) -> msgspec.json.Decoder[Any]:
    decoder = _json.get(kind)
    if decoder is None:
        decoder = _json[kind] = json_decoder(kind)
    return decoder
