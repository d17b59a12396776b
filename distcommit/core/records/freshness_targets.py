"""Freshness targets: the time within which records must be visible, and the number of records that a run reads of a
dataset before the other datasets are read."""

from __future__ import annotations

import re
from dataclasses import dataclass

BEHIND = "behind its target"
"""Kind of the note on a dataset that missed its freshness target when the run started."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """Freshness targets of a job.

    Attributes:
        target_s: seconds between a record's appearance in the source and its visibility; 0 for none.
        targets: regular expressions with the target of datasets whose whole name matches, in place of `target_s`. The
            first match counts.
        records_per_run: positions of one dataset that a run reads, if its source can count them; 0 for all. A dataset
            with at least as many is *backlogged* and read after the others.
        slice_s: seconds for which a task continues with backlogged datasets; 0 for no limit.
    """

    target_s: float = 0
    targets: tuple[tuple[str, float], ...] = ()
    records_per_run: int = 0
    slice_s: float = 0

    def __bool__(self) -> bool:
        return bool(self.target_s or self.targets)

    @property
    def smallest_s(self) -> float:
        """Return the smallest target of all, 0 if there is none."""
        return min(
            (seconds for seconds in (self.target_s, *(target for _, target in self.targets)) if seconds), default=0
        )

    def target_of(self, dataset_urn: str) -> float:
        """Return the dataset's target in seconds, 0 if it has none."""
        matching = (target for pattern, target in self.targets if re.fullmatch(pattern, dataset_urn))
        return next(matching, self.target_s)


NO_TARGETS = Freshness()
