"""Decoding of bytes to typed values. All of msgspec's decoders are created here.

When msgspec first uses a type, it analyzes the type without a lock. Another thread that uses the type at that moment
sees a partial result, which crashes the process (msgspec 0.22). So each type is analyzed under a lock, with all types
that it contains.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar, overload

import msgspec

Value = TypeVar("Value")

_ANALYSIS = threading.Lock()
_json: dict[Any, msgspec.json.Decoder[Any]] = {}
_msgpack: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


@overload
def json_decoder(kind: type[Value]) -> msgspec.json.Decoder[Value]: ...
@overload
def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]: ...
def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return a new decoder, for types created at run time. Threads may share it."""
    with _ANALYSIS:
        return msgspec.json.Decoder(kind)


@overload
def from_json(data: bytes | str | msgspec.Raw, kind: type[Value]) -> Value: ...
@overload
def from_json(data: bytes | str | msgspec.Raw, kind: Any) -> Any: ...
def from_json(data: bytes | str | msgspec.Raw, kind: Any) -> Any:
    """Decode a value of that type.

    Args:
        data: the JSON text.
        kind: a hashable type that lives as long as the program, because its decoder is cached.

    Raises:
        msgspec.DecodeError: if the data is not such a value; also UnicodeDecodeError, RecursionError.
    """
    return _json_of(kind).decode(data)


@overload
def from_msgpack(data: bytes | bytearray | memoryview, kind: type[Value]) -> Value: ...
@overload
def from_msgpack(data: bytes | bytearray | memoryview, kind: Any) -> Any: ...
def from_msgpack(data: bytes | bytearray | memoryview, kind: Any) -> Any:
    """Decode MessagePack. Arguments and errors are those of `from_json`."""
    decoder = _msgpack.get(kind)
    if decoder is None:
        with _ANALYSIS:
            decoder = _msgpack[kind] = msgspec.msgpack.Decoder(kind)
    return decoder.decode(data)


@overload
def converted(value: Any, kind: type[Value]) -> Value: ...
@overload
def converted(value: Any, kind: Any) -> Any: ...
def converted(value: Any, kind: Any) -> Any:
    """Convert plain values to that type.

    Raises:
        msgspec.ValidationError: if they are not such a value.
    """
    _json_of(kind)  # analyzes the type under the lock
    return msgspec.convert(value, kind)


def _json_of(kind: Any) -> msgspec.json.Decoder[Any]:
    decoder = _json.get(kind)
    if decoder is None:
        decoder = _json[kind] = json_decoder(kind)
    return decoder
