"""Numbers with their nouns, for messages."""

from __future__ import annotations


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun, which gets an `s` unless the number is 1: `1 record`, `1,024 records`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
