"""Validation of regular expressions in settings."""

from __future__ import annotations

import re


def check_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the patterns if all are valid regular expressions.

    Raises:
        ValueError: naming the first invalid one.
    """
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    return patterns
