"""Reasons: why parts of a run were not completed, and notes on completed parts. Their number is bounded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from distcommit.core.errors import plain_text, reason_text

MAX_REASONS = 20
"""Maximum number of reasons in the report of a task; the others are counted. Keeps the driver's memory O(partitions).
"""
MAX_RUN_REASONS = 100
"""Maximum number of reasons of a phase or a run; the others are counted."""


class Reason(Struct, frozen=True):
    """Why a dataset, a bucket or a partition was not completed; or a note on it."""

    subject: str
    kind: str
    """Kind of the reason, such as `failed` or `left pending`, or the id of an error."""
    text: str
    remedy: tuple[str, ...] = ()
    """Words of the command that resolves the reason, as in `DatasetProblem`; empty if there is none."""


class Reasons(Struct, frozen=True):
    """The first reasons, and the number of the others."""

    entries: tuple[Reason, ...] = ()
    omitted_count: int = 0
    """Number of reasons that are not in `entries`."""

    @classmethod
    def of(cls, subject: str, kind: str, text: str, remedy: tuple[str, ...] = ()) -> Reasons:
        """Return a single reason. If the text begins with its kind, the kind is removed from the text."""
        return cls((Reason(plain_text(subject, 300), kind, reason_text(text.removeprefix(f"{kind}: ")), remedy),))

    @classmethod
    def first_of(cls, parts: Iterable[Reasons], stored: int = MAX_RUN_REASONS) -> Reasons:
        """Concatenate reasons. Only the first `stored` ones are kept, and the others are counted."""
        first: list[Reason] = []
        left_out = 0
        for part in parts:
            room = stored - len(first)
            first += part.entries[:room]
            left_out += part.omitted_count + len(part.entries[room:])
        return cls(tuple(first), left_out)

    def __add__(self, other: Reasons) -> Reasons:
        return Reasons.first_of((self, other), MAX_REASONS)

    def __iter__(self) -> Iterator[Reason]:
        return iter(self.entries)

    def __bool__(self) -> bool:
        return bool(self.entries) or self.omitted_count > 0
