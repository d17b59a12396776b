"""Answers of a server. The bytes of their records are unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from distcommit.core.support.decoding import json_decoder
from distcommit.sources.rest.raw_json import raw_at, raw_items

_OBJECT: msgspec.json.Decoder[dict[str, msgspec.Raw]] = json_decoder(dict[str, msgspec.Raw])
_LIST: msgspec.json.Decoder[list[msgspec.Raw]] = json_decoder(list[msgspec.Raw])


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class NoSuchFieldError(ValueError):
    """Error of a path that names a missing field."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a server.

    Attributes:
        body: the body as received.
        records: JSON bytes of each record.
        next_link: URL of `rel="next"` in the header `Link`; empty if there is none.
    """

    body: bytes
    records: list[bytes]
    next_link: str = ""

    @classmethod
    def parse(cls, body: bytes, records: str, next_link: str = "") -> Answer:
        """Parse a body.

        Args:
            records: dotted path of the list of records; empty if the body is the list.

        Raises:
            ValueError: if the body is not JSON, or the path does not lead to a list.
        """
        try:
            items = _items(_raw_at(body.removeprefix(_BYTE_ORDER_MARK), records))
        except RecursionError:
            raise ValueError("JSON that is nested too deeply") from None
        return cls(body.removeprefix(_BYTE_ORDER_MARK), items, next_link)

    def text_at(self, path: str, *, or_true: bool = False) -> str:
        """Return the text or number at a path; empty if it is missing, null or false.

        Args:
            or_true: whether `true` is accepted, too.

        Raises:
            ValueError: if the value has another type.
        """
        try:
            value = value_at(self.body, path)
        except NoSuchFieldError:
            return ""
        if value is None or value is False:
            return ""
        if isinstance(value, str) or type(value) is int or (or_true and value is True):
            return str(value)
        raise ValueError(f"the value at {path} must be a text or a number, and is a {type(value).__name__}")

    def count_at(self, path: str) -> int:
        """Return the whole number at a path; raises ValueError if it is missing or negative."""
        value = value_at(self.body, path)
        if type(value) is not int or value < 0:
            raise ValueError(f"the value at {path} must be a number of pages or records, and is {value!r:.60}")
        return value


def value_at(json: bytes, path: str) -> Any:
    """Return the value at a dotted path.

    Raises:
        NoSuchFieldError: if a field of the path does not exist.
        ValueError: if a part of the path is not an object.
    """
    try:
        return msgspec.json.decode(_raw_at(json, path))
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None


def _raw_at(json: bytes, path: str) -> bytes | msgspec.Raw:
    at: bytes | msgspec.Raw = json
    for name in path.split(".") if path else ():
        names, value = _field(at, name)
        if value is None:
            raise NoSuchFieldError(f"no field {name!r} among {', '.join(names) or 'none'}"[:300])
        at = value
    return at


def _field(json: bytes | msgspec.Raw, name: str) -> tuple[Iterable[str], bytes | msgspec.Raw | None]:
    try:
        fields = _OBJECT.decode(json)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if not _may_have_surrogates(json):
            raise
        return raw_at(bytes(json), name)
    return fields, fields.get(name)


def _items(json: bytes | msgspec.Raw) -> list[bytes]:
    try:
        return [bytes(item) for item in _LIST.decode(json)]
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if not _may_have_surrogates(json):
            raise
        return list(raw_items(bytes(json)))


def _may_have_surrogates(json: bytes | msgspec.Raw) -> bool:
    return _SURROGATE.search(bytes(json)) is not None
