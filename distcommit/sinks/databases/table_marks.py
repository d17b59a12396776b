"""Identities of tables for databases that have none: a mark in the definition of each table that a sink creates.

A table that another client has recreated has no mark, or another one. Altering a table does not change the mark.
"""

from __future__ import annotations

import re
import secrets

_MARK = re.compile(r"distcommit:([0-9a-f]{15})")


def new_mark() -> str:
    """Return a text that no other table has in its definition."""
    return f"distcommit:{secrets.randbits(60):015x}"


def identity_in(definition: str) -> int:
    """Return the 60-bit number of the mark in a table's definition or comment; 0 if there is none."""
    found = _MARK.search(definition)
    return int(found[1], 16) if found else 0
