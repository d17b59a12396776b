"""Dataset URNs: validity and folder name.

A URN is any non-empty text. All results are functions of the text alone, so that every process of every version
computes the same name.
"""

from __future__ import annotations

import re
from hashlib import sha256

from distcommit.core.errors import ConfigurationError, plain_text

MAX_URN_BYTES = 1024
_UNESCAPED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.@=")
_MAX_FOLDER_BYTES = 200
_PLAIN = re.compile(r"[A-Za-z0-9@=-][A-Za-z0-9_.@=-]*")


def check_urn(urn: str) -> str:
    """Return `urn` if it can name a dataset.

    Raises:
        ConfigurationError: if it is not text, is empty, exceeds 1,024 bytes or is not valid Unicode.
    """
    if type(urn) is not str:
        raise _invalid_urn(f"a {type(urn).__name__}: {plain_text(urn, 60)}")
    try:
        size = len(urn.encode())
    except UnicodeEncodeError:
        size = 0
    if not 0 < size <= MAX_URN_BYTES:
        raise _invalid_urn(f"{len(urn)} characters: {urn[:60]!r}")
    return urn


def _invalid_urn(actual: str) -> ConfigurationError:
    return ConfigurationError(
        "a dataset URN is invalid",
        id="DATASET_NAME_INVALID",
        expected=f"text of 1 to {MAX_URN_BYTES} bytes of valid UTF-8",
        found=actual,
        todo="rename the dataset at its source or exclude it",
    )


def folder_of(urn: str) -> str:
    """Return the name of the dataset's folder. Different URNs have different names.

    Bytes other than letters, digits and `-_.@=` become `%XX`. A leading `.` or `_` becomes `%XX` too, because readers
    treat such folders as hidden. A name above 200 bytes keeps its first 120 and ends in `%~` and the SHA-256 of the
    URN.
    """
    if len(urn) <= _MAX_FOLDER_BYTES and _PLAIN.fullmatch(urn):  # the common case, at a fraction of the cost
        return urn
    raw = urn.encode()
    name = "".join(
        chr(byte) if byte in _UNESCAPED and not (index == 0 and byte in b"._") else f"%{byte:02X}"
        for index, byte in enumerate(raw)
    )
    if len(name) <= _MAX_FOLDER_BYTES:
        return name
    return f"{name[:120].rsplit('%', 1)[0] if '%' in name[118:120] else name[:120]}%~{sha256(raw).hexdigest()}"
