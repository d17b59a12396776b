"""Names of tables, made of datasets' URNs: no two datasets have the same one, unless one table for all is asked for."""

from __future__ import annotations

import re
from hashlib import blake2b, sha256

DATASET = "{dataset}"
_HASH_BYTES = 8
_SHORTENED = re.compile(r"_[0-9a-f]{16}$")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,199}")
_MARKED = re.compile(r".*_[0-9a-f]{12}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_]")


def check_template(template: str) -> str:
    """Returns the template of tables' names if it is one.

    Raises:
        ValueError: if it is empty, or has other braces than those of `{dataset}`, once.
    """
    rest = template.replace(DATASET, "", 1)
    if not template or "{" in rest or "}" in rest or not template.isprintable():
        raise ValueError("is a table's name, in which `{dataset}` may stand once for the dataset's URN")
    return template


def table_name(
    template: str,
    urn: str,
    *,
    most_bytes: int,
    any_case: bool = True,
    basic_characters: bool = False,
    taken: tuple[str, ...] = (),
) -> str:
    """The table of a dataset: the template with the URN as it is.

    A name that the database would not keep as it is, and one that looks as if it had been altered here, ends in a hash
    of the whole of it.

    Args:
        template: as `check_template` lets it through. Without `{dataset}` all datasets have one table.
        urn: the dataset.
        most_bytes: the longest name that the database has.
        any_case: whether it tells names apart by their case.
        basic_characters: whether it has those of Unicode's basic plane alone.
        taken: names of tables that are no dataset's.
    """
    name = template.replace(DATASET, urn)
    raw = name.encode()
    last = "\uffff" if basic_characters else "\U0010ffff"
    kept = name.isprintable() and max(name) <= last and not name.endswith(" ") and (any_case or name == name.lower())
    if kept and len(raw) <= most_bytes and name not in taken and not _SHORTENED.search(name):
        return name
    plain = "".join(
        each if each.isprintable() and each <= last else "_" for each in (name if any_case else name.lower())
    )
    begin = plain.encode()[: most_bytes - 2 * _HASH_BYTES - 1].decode(errors="ignore")
    return f"{begin}_{blake2b(raw, digest_size=_HASH_BYTES).hexdigest()}"


def plain_name(urn: str) -> str:
    """A name of letters, digits and `_` for the dataset, at most 200 characters.

    A URN that is such a name stays as it is. Any other one has `_` for what can't stand there, and ends in a part of
    its SHA-256, so that `a.b` and `a_b` are two names; so does a URN that ends as if it were such a name.
    """
    if _PLAIN.fullmatch(urn) and not _MARKED.fullmatch(urn):
        return urn
    safe = _UNSAFE.sub("_", urn)[:180]
    if not safe[:1].isalpha():
        safe = f"d_{safe}"
    return f"{safe}_{sha256(urn.encode()).hexdigest()[:12]}"


def table_of(template: str, urn: str) -> str:
    """The dataset's table: the template with the dataset's name for `{dataset}`."""
    return template.replace(DATASET, plain_name(urn))
