"""Texts that this process must not show: values of settings that may be secret.

Errors of clients, drivers and custom classes may quote a setting's value. Every error text that is stored or shown
passes `redacted`. A value is known from where it is read (the job file, a secret's file) or, on an executor, from the
task flow, which carries the values that the driver knew.
"""

from __future__ import annotations

from collections.abc import Iterable

HIDDEN = "***"
_SHORTEST = 6
"""Shorter values may stand in a text by chance."""
_values: set[str] = set()


class Redaction:
    """The values to redact, for a process that unpickles this."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values = frozenset(values)
        redact(self._values)

    @classmethod
    def known(cls) -> Redaction:
        """Return the values that are hidden in this process now."""
        return cls(_values)

    def __reduce__(self) -> tuple[type[Redaction], tuple[frozenset[str]]]:
        return Redaction, (self._values,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Redaction) and self._values == other._values

    def __hash__(self) -> int:
        return hash(self._values)

    def __repr__(self) -> str:
        return f"Redaction({len(self._values)} values)"


def redact(values: Iterable[str]) -> None:
    """Hide these values from now on, in this process."""
    _values.update(value for value in values if len(value) >= _SHORTEST)


def redacted(text: str) -> str:
    """Return the text with `***` for each value that is to be hidden."""
    for value in sorted(_values, key=len, reverse=True) if _values else ():
        text = text.replace(value, HIDDEN)
    return text
