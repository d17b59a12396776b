"""Marks in the definitions of tables that were made here, for databases that have no identity of tables.

A table that is dropped and made again by somebody else has none, or another one. Altering a table leaves it.
"""

from __future__ import annotations

import re
import secrets

_MARK = re.compile(r"distcommit:([0-9a-f]{15})")


def new_mark() -> str:
    """A text that no other table has in its definition."""
    return f"distcommit:{secrets.randbits(60):015x}"


def identity_in(definition: str) -> int:
    """The number of the mark in a definition or comment, of 60 bits; 0 if there is none."""
    found = _MARK.search(definition)
    return int(found[1], 16) if found else 0
