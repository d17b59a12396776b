"""What an answer says: its records, each as the bytes that came, and what leads to the next one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from distcommit.decoding import json_decoder
from distcommit.sources.rest.raw_json import raw_at, raw_items

_OBJECT: msgspec.json.Decoder[dict[str, msgspec.Raw]] = json_decoder(dict[str, msgspec.Raw])
_LIST: msgspec.json.Decoder[list[msgspec.Raw]] = json_decoder(list[msgspec.Raw])


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class NoSuchFieldError(ValueError):
    """There is no such field."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a server.

    Attributes:
        body: as it came.
        records: the JSON of each record.
        next_link: what its header `Link` names as next; empty if nothing.
    """

    body: bytes
    records: list[bytes]
    next_link: str = ""

    @classmethod
    def parse(cls, body: bytes, records: str, next_link: str = "") -> Answer:
        """The answer of a body.

        Args:
            body: JSON.
            records: where the list of records is in it; empty if it is that.
            next_link: see above.

        Raises:
            ValueError: if it is no JSON, or there is no list there.
        """
        try:
            found = _items(_raw_at(body.removeprefix(_BYTE_ORDER_MARK), records))
        except RecursionError:
            raise ValueError("JSON that is nested too deeply") from None
        return cls(body.removeprefix(_BYTE_ORDER_MARK), found, next_link)

    def text_at(self, path: str, *, or_true: bool = False) -> str:
        """The text or number there; empty if there is nothing, null or false.

        Args:
            path: names with dots between.
            or_true: whether `true` stands for a text that is not empty.

        Raises:
            ValueError: if it is anything else.
        """
        try:
            found = value_at(self.body, path)
        except NoSuchFieldError:
            return ""
        if found is None or found is False:
            return ""
        if isinstance(found, str) or type(found) is int or (or_true and found is True):
            return str(found)
        raise ValueError(f"at {path} a {type(found).__name__}, which leads nowhere")

    def count_at(self, path: str) -> int:
        """Return the whole number at a path.

        Raises:
            ValueError: if there is none, or it is below 0.
        """
        found = value_at(self.body, path)
        if type(found) is not int or found < 0:
            raise ValueError(f"at {path} {found!r:.60}, which is not a number of pages or records")
        return found


def value_at(json: bytes, path: str) -> Any:
    """The value of the field that a path with dots names.

    Raises:
        NoSuchFieldError: if it is not there.
        ValueError: if what should have the field is no object.
    """
    try:
        return msgspec.json.decode(_raw_at(json, path))
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None


def _raw_at(json: bytes, path: str) -> bytes | msgspec.Raw:
    at: bytes | msgspec.Raw = json
    for name in path.split(".") if path else ():
        names, found = _field(at, name)
        if found is None:
            raise NoSuchFieldError(f"no field {name!r} among {', '.join(names) or 'none'}"[:300])
        at = found
    return at


def _field(json: bytes | msgspec.Raw, name: str) -> tuple[Iterable[str], bytes | msgspec.Raw | None]:
    """The names of an object's fields, and the JSON of one."""
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
    """The JSON of each item of a list."""
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
