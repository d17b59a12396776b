"""Choose the datasets that are looked at for small files after a run: few of many, and other ones after each run."""

from __future__ import annotations

from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

from distcommit.core.records.log_records import DatasetState
from distcommit.pipeline.maintenance.compaction_groups import CompactionPolicy

MOST_BYTES = 1 << 30
"""Size of the small files of a turn after which it takes no further dataset."""
_MOST_DATASETS = 1000
_FEW_DATASETS = 100


class CompactionTurn:
    """The datasets of one compaction after a run, chosen by their names and the run's epoch.

    If the job has up to about a hundred datasets, a turn looks at all of them. Of more it looks at every n-th, where n
    is at most `min_files` of the policy: a dataset that gets a file in each run has enough files after so many runs.

    Args:
        policy: which files are merged.
        epoch: epoch of the run.

    Attributes:
        chosen: URNs of the datasets with files to merge.
    """

    def __init__(self, policy: CompactionPolicy, epoch: int) -> None:
        self.policy, self._epoch = policy, epoch
        self.chosen: list[str] = []
        self._bytes = 0

    @property
    def is_over(self) -> bool:
        return self._bytes >= MOST_BYTES or len(self.chosen) >= _MOST_DATASETS

    def buckets(self, count: int) -> list[int]:
        """Return all buckets of the job, in another order for each run."""
        first = self._digest("") % count
        return [*range(first, count), *range(first)]

    def some_of(self, states: Sequence[DatasetState], buckets: int) -> list[DatasetState]:
        """Return the datasets of a bucket to look at. `buckets`: number of buckets of the job."""
        share = max(1, min(self.policy.min_files, len(states) * buckets // _FEW_DATASETS))
        return [state for state in states if self._digest(state.dataset_urn) % share == 0]

    def add(self, dataset_urn: str, merged_bytes: int) -> None:
        """Add a dataset with that many bytes in files to merge."""
        self.chosen.append(dataset_urn)
        self._bytes += merged_bytes

    def _digest(self, text: str) -> int:
        return xxh3_64_intdigest(f"{self._epoch} {text}".encode())
