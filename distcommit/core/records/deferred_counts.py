"""Reports and counts of the records that sources leave for later runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec import Struct

MAX_NAMED = 10
"""Maximum number of datasets that are named for each cause."""


@dataclass(frozen=True, slots=True)
class DeferredRecords:
    """Records of a dataset that the source leaves for later runs by a rule of its own. This is not a problem.

    Attributes:
        dataset_urn: the dataset.
        records: how many records; at least 1.
        cause: the rule, and when a run will read the records. Use the same text for all datasets of one cause.
        is_minimum: whether there may be more than `records`.
    """

    dataset_urn: str
    records: int
    cause: str
    is_minimum: bool = False


class DeferredCause(Struct, frozen=True):
    """Count of the records that sources left for later runs for one cause."""

    cause: str
    """Why the records were left, and when a run will read them. Equal texts are one cause."""
    datasets: int
    """Number of datasets with records that were left."""
    records: int
    """Number of records that were left, of all these datasets."""
    is_minimum: bool = False
    """True if there may be more than `records`, because a dataset has more than the source counts."""
    largest: dict[str, int] = {}
    """Records by dataset, of the ten datasets with the most."""


class DeferredCounts(Struct, frozen=True):
    """Counts of the records that sources left for later runs, by cause."""

    causes: tuple[DeferredCause, ...] = ()
    """Sums by cause."""

    def __add__(self, other: DeferredCounts) -> DeferredCounts:
        if not (self and other):
            return self or other
        by_cause: dict[str, list[DeferredCause]] = {}
        for part in (*self.causes, *other.causes):
            by_cause.setdefault(part.cause, []).append(part)
        return DeferredCounts(tuple(map(_sum, by_cause.values())))

    def __bool__(self) -> bool:
        return bool(self.causes)


def deferred(dataset: str, cause: str, records: int, *, is_minimum: bool) -> DeferredCounts:
    """Return the counts of one dataset. `is_minimum`: there may be more than `records`."""
    return DeferredCounts((DeferredCause(cause, 1, records, is_minimum, {dataset: records}),))


def _sum(parts: Iterable[DeferredCause]) -> DeferredCause:
    parts = list(parts)
    named = sorted((item for part in parts for item in part.largest.items()), key=lambda item: (-item[1], item[0]))
    return DeferredCause(
        parts[0].cause,
        sum(part.datasets for part in parts),
        sum(part.records for part in parts),
        any(part.is_minimum for part in parts),
        dict(named[:MAX_NAMED]),
    )
