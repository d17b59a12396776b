"""Extraction of raw bytes from JSON with lone surrogates, which msgspec rejects. A converter later rejects only the
records that it cannot read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NoReturn


def raw_at(body: bytes, name: str) -> tuple[list[str], bytes | None]:
    """Return an object's field names, and the bytes of field `name` or None. Raises ValueError for a non-object."""
    text = body.decode()
    begin = _behind_space(text, 0)
    if text[begin : begin + 1] != "{":
        raise ValueError("not an object")
    names, value, at = list[str](), None, _behind_space(text, begin + 1)
    if text[at : at + 1] == "}":
        return names, value
    while True:
        if text[at : at + 1] != '"':
            raise ValueError(f"a field's name must be at character {at}")
        field, at = _DECODER.raw_decode(text, at)
        at = _behind(text, at, ":")
        start = _behind_space(text, at)
        at = _end_of_value(text, start)
        names.append(field.encode(errors="replace").decode())
        value = text[start:at].encode() if field == name else value
        at = _behind_space(text, at)
        if text[at : at + 1] == "}":
            return names, value
        at = _behind_space(text, _behind(text, at, ","))


def raw_items(body: bytes) -> Iterator[bytes]:
    """Yield the bytes of a list's items. Raises ValueError if this is not a list."""
    text = body.decode()
    begin = _behind_space(text, 0)
    if text[begin : begin + 1] != "[":
        raise ValueError("not a list")
    at = _behind_space(text, begin + 1)
    while text[at : at + 1] != "]":
        end = _end_of_value(text, at)
        yield text[at:end].encode()
        at = _behind_space(text, end)
        if text[at : at + 1] != "]":
            at = _behind_space(text, _behind(text, at, ","))


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _end_of_value(text: str, at: int) -> int:
    return _DECODER.raw_decode(text, at)[1]


def _behind_space(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t", "\n", "\r"):
        at += 1
    return at


def _behind(text: str, at: int, mark: str) -> int:
    at = _behind_space(text, at)
    if text[at : at + 1] != mark:
        raise ValueError(f"{mark!r} must be at character {at}")
    return at + 1
