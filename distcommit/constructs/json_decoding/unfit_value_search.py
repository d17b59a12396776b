"""Search for an unfit value of a rejected JSON record."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pyarrow as pa

from distcommit.core.support.decoding import from_json

_VALUE_BYTES = 60
_KEY_CHARACTERS = 40


def located(text: bytes | str, kind: pa.StructType, reason: Callable[[msgspec.Raw, pa.DataType], str]) -> str:
    """Return why the first unfit value does not fit, with path and first bytes; empty if none is found.

    Args:
        kind: struct of the columns.
        reason: returns why a value does not fit; empty if it fits.
    """
    try:
        for path, value, value_type in _leaves(msgspec.Raw(text), kind, "$"):
            if cause := reason(value, value_type):
                return f"{cause} - at `{path}`, value {bytes(value).strip()[:_VALUE_BYTES]!r}"
    except (msgspec.DecodeError, ValueError, RecursionError):  # the whole text is malformed, or nested too deep
        pass
    return ""


def _leaves(value: msgspec.Raw, kind: pa.DataType, path: str) -> Iterator[tuple[str, msgspec.Raw, pa.DataType]]:
    """Yield innermost values with path and type. A value that should be an object or list, but is not, stays whole."""
    try:
        if pa.types.is_struct(kind):
            fields = from_json(value, dict[str, msgspec.Raw] | None) or {}
            for field in kind:
                if field.name in fields:
                    yield from _leaves(fields[field.name], field.type, f"{path}.{field.name}")
        elif pa.types.is_list(kind):
            for index, item in enumerate(from_json(value, list[msgspec.Raw] | None) or ()):
                yield from _leaves(item, kind.value_type, f"{path}[{index}]")
        elif pa.types.is_map(kind):
            for key, item in (from_json(value, dict[str, msgspec.Raw] | None) or {}).items():
                yield from _leaves(item, kind.item_type, f"{path}[{key[:_KEY_CHARACTERS]!r}]")
        else:
            yield path, value, kind
    except msgspec.DecodeError:
        if path == "$":
            raise
        yield path, value, kind
