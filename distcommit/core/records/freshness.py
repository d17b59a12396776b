"""How soon what a source has is to be visible, by dataset, and how much of one a run reads before the others."""

from __future__ import annotations

import re
from dataclasses import dataclass

BEHIND = "behind its target"
"""The kind of a run's note on a dataset that was further behind its source than its freshness target, as it began."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """Freshness targets of a job.

    `target_s`: seconds from a record's appearance in the source to its being visible; 0 for none. `targets`: of
    datasets whose whole names match these regular expressions, instead of `target_s`; the first that does counts.
    `records_per_run`: how many positions of one dataset a run reads, where its source can tell, 0 for all; one that has
    more is *backlogged* and read after the others. `slice_s`: how long a task goes on with backlogged ones, 0 for no
    limit.
    """

    target_s: float = 0
    targets: tuple[tuple[str, float], ...] = ()
    records_per_run: int = 0
    slice_s: float = 0

    def __bool__(self) -> bool:
        return bool(self.target_s or self.targets)

    @property
    def smallest_s(self) -> float:
        """The smallest target of all, 0 if there is none."""
        return min((each for each in (self.target_s, *(target for _, target in self.targets)) if each), default=0)

    def target_of(self, dataset_urn: str) -> float:
        """The dataset's target in seconds, 0 if it has none."""
        matching = (target for pattern, target in self.targets if re.fullmatch(pattern, dataset_urn))
        return next(matching, self.target_s)


NO_TARGETS = Freshness()
