"""Table names from dataset URNs. If the template contains `{dataset}`, each dataset has another name."""

from __future__ import annotations

import re
from hashlib import blake2b, sha256

from distcommit.core.support.settings_model import SettingError

DATASET = "{dataset}"
_HASH_BYTES = 8
_SHORTENED = re.compile(r"_[0-9a-f]{16}$")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,199}")
_MARKED = re.compile(r".*_[0-9a-f]{12}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_]")


def check_template(template: str) -> str:
    """Return the template. Raises ValueError if it is empty, not printable, or has braces other than one
    `{dataset}`."""
    remainder = template.replace(DATASET, "", 1)
    if not template or "{" in remainder or "}" in remainder or not template.isprintable():
        raise SettingError(f"must be a table's name, in which {DATASET} may stand once for the dataset's URN")
    return template


def database_table_name(
    template: str,
    urn: str,
    *,
    most_bytes: int,
    any_case: bool = True,
    basic_characters: bool = False,
    selected: tuple[str, ...] = (),
) -> str:
    """Return the name of a dataset's table. If the database would change the name or cut it off, or the name is in
    `selected` or ends like a hash, return a shortened name with a hash at its end.

    Args:
        most_bytes: longest name that the database accepts, in bytes of UTF-8.
        any_case: whether the database distinguishes names by case.
        basic_characters: whether names are limited to Unicode's basic multilingual plane.
        selected: reserved names, such as the ledger's.
    """
    name = template.replace(DATASET, urn)
    raw = name.encode()
    last = "\uffff" if basic_characters else "\U0010ffff"
    is_valid = (
        name.isprintable() and max(name) <= last and not name.endswith(" ") and (any_case or name == name.lower())
    )
    if is_valid and len(raw) <= most_bytes and name not in selected and not _SHORTENED.search(name):
        return name
    plain = "".join(
        text if text.isprintable() and text <= last else "_" for text in (name if any_case else name.lower())
    )
    begin = plain.encode()[: most_bytes - 2 * _HASH_BYTES - 1].decode(errors="ignore")
    return f"{begin}_{blake2b(raw, digest_size=_HASH_BYTES).hexdigest()}"


def plain_name(urn: str) -> str:
    """Return at most 200 letters, digits and `_` for the dataset. If characters were replaced by `_`, a hash of the URN
    follows, so that `a.b` and `a_b` differ."""
    if _PLAIN.fullmatch(urn) and not _MARKED.fullmatch(urn):
        return urn
    safe = _UNSAFE.sub("_", urn)[:180]
    if not safe[:1].isalpha():
        safe = f"d_{safe}"
    return f"{safe}_{sha256(urn.encode()).hexdigest()[:12]}"


def plain_table_name(template: str, urn: str) -> str:
    return template.replace(DATASET, plain_name(urn))
