"""Names of tables made of dataset URNs: safe in paths, catalogs and SQL, and another one for each dataset."""

from __future__ import annotations

import re
from hashlib import sha256

DATASET = "{dataset}"
"""What stands for the dataset in a template of table names."""
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,199}")
_MARKED = re.compile(r".*_[0-9a-f]{12}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_]")


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
