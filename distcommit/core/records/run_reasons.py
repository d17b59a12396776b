"""Reasons: why parts of a run were not completed, and notes on completed parts. Their number is bounded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from distcommit.core.errors import plain_text, reason_text

MAX_REASONS = 20
"""Maximum number of reasons in the report of a task; the others are counted. Keeps the driver's memory O(partitions).
"""
_NAMED = 3
"""Maximum number of names in the text of a cause."""
MAX_RUN_REASONS = 100
"""Maximum number of reasons of a phase or a run; the others are counted."""


class Reason(Struct, frozen=True):
    """Why a dataset, bucket or partition was not completed, or a note on it."""

    subject: str
    """The dataset, bucket or partition."""
    kind: str
    """Kind of the reason, such as `failed` or `left pending`, or the id of an error."""
    text: str
    """The reason."""
    remedy: tuple[str, ...] = ()
    """Words of the command that resolves the reason, as in `DatasetProblem`; empty if there is none."""


class Cause(Struct, frozen=True):
    """A cause that several datasets may share."""

    kind: str
    """Kind of the reasons."""
    text: str
    """The first reason; without the names that differ between the subjects, if there are several."""
    subjects: tuple[str, ...]
    """Names of the datasets, buckets or partitions, sorted."""

    @property
    def names(self) -> str:
        """The first names, and the number of the others."""
        more = len(self.subjects) - _NAMED
        return ", ".join(self.subjects[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


class Reasons(Struct, frozen=True):
    """The first reasons, and the number of the others."""

    entries: tuple[Reason, ...] = ()
    """The first reasons, in order."""
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

    def causes(self) -> list[Cause]:
        """Return the causes of the reasons, in order. Reasons with the same `cause_key` share a cause."""
        groups: dict[tuple[str, str], list[Reason]] = {}
        for reason in self.entries:
            groups.setdefault((reason.kind, cause_key(reason.text, reason.subject)), []).append(reason)
        causes = []
        for (kind, _), reasons in groups.items():
            subjects = tuple(sorted({reason.subject for reason in reasons}))
            text = reasons[0].text if len(reasons) == 1 else _NAMES.sub(_shared_names, reasons[0].text, count=1)
            causes.append(Cause(kind, " ".join(text.split()), subjects))
        return causes


def cause_key(text: str, subject: str) -> str:
    """Return a key of the cause that a reason states.

    Reasons have the same key if their texts differ only in numbers, in quoted bytes, and in the names of the dataset
    (`subject`) and its parts.
    """
    key = _VARYING.sub("", _NAMES.sub(_shared_names, text, count=1))
    return re.sub(rf"(?<!\w){re.escape(subject)}(?!\w)", "", key)


_NAMES = re.compile(r" \[(\w+=[^\]]*)\]")
"""The names involved, in the text of an error."""
_VARYING = re.compile(r"\b\d+\b|b'(?:[^'\\]|\\.)*'")
_OF_ONE_DATASET = frozenset({"bucket", "dataset", "file", "offset", "partition", "path", "task", "work_unit"})


def _shared_names(names: re.Match[str]) -> str:
    shared = [name for name in names[1].split(", ") if name.partition("=")[0] not in _OF_ONE_DATASET]
    return f" [{', '.join(shared)}]" if shared else ""
