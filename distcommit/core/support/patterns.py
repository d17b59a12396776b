"""Regular expressions in settings."""

from __future__ import annotations

import re


def check_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Returns regular expressions that are some.

    Raises:
        ValueError: naming the first that is none.
    """
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    return patterns
