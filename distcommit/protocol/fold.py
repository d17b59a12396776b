"""The state that the records of one log give. What each does to it: `protocol.folding`; where it counts:
`protocol.validity`."""

from __future__ import annotations

from distcommit.core.records.job_records import Head, Rebucket
from distcommit.core.records.log_records import (
    Checkpoint,
    DatasetState,
    DatasetStatus,
    OpenSequence,
    SealedSequence,
    SequenceName,
)


class Fold:
    """The state of one log after some records; `apply` moves it on. Not shared between threads.

    `number`: that of the newest record, valid or not. `moved_to`: the generation in which a bucket's log goes on, 0 if
    this one does.

    The job log alone has the others: `began_epoch` and `ended_epoch`, the epochs of the newest CUT of each phase;
    `heads`, the newest head of each bucket; `generation` and `buckets`, which count (0: as the store was made);
    `under_way`, the move to the next generation.
    """

    __slots__ = (
        "began_epoch",
        "buckets",
        "datasets",
        "decided_epochs",
        "ended_epoch",
        "fence_epoch",
        "fence_run_id",
        "generation",
        "heads",
        "ignored",
        "last_checkpoint",
        "moved_to",
        "number",
        "previous_checkpoint",
        "under_way",
    )

    def __init__(self) -> None:
        self.number = self.fence_epoch = 0
        self.fence_run_id = ""
        self.decided_epochs: frozenset[int] = frozenset()
        self.datasets: dict[str, DatasetState] = {}
        self.last_checkpoint = self.previous_checkpoint = 0
        self.began_epoch = self.ended_epoch = 0
        self.heads: dict[int, Head] = {}
        self.generation = self.buckets = self.moved_to = 0
        self.under_way: Rebucket | None = None
        self.ignored: list[tuple[int, str]] = []

    @property
    def has_ended(self) -> bool:
        """Whether the newest run has ended: its CUT of phase ENDED is in the job log."""
        return self.ended_epoch == self.fence_epoch

    def state_of(self, urn: str) -> DatasetState:
        """The dataset's state; a dataset never heard of is idle, without a watermark."""
        return self.datasets.get(urn) or DatasetState(urn)

    def sequence(self, name: SequenceName) -> SealedSequence | None:
        """The present sequence of that name, whatever its status."""
        sequence = self.state_of(name.dataset_urn).sequence
        return sequence if sequence is not None and sequence.epoch == name.epoch else None

    def pending(self) -> list[OpenSequence]:
        """Sequences that are to be executed (or dropped, if held and never decided)."""
        found = (state.open for state in self.datasets.values())
        return [each for each in found if each is not None and each.status is DatasetStatus.PENDING]

    def checkpoint(self, decided_from: int = 0) -> Checkpoint:
        """The whole fold as a record; decisions of epochs below `decided_from` are needed by nobody any more."""
        return Checkpoint(
            self.fence_epoch,
            self.fence_run_id,
            tuple(sorted(epoch for epoch in self.decided_epochs if epoch >= decided_from)),
            tuple(self.datasets[urn] for urn in sorted(self.datasets)),
            self.last_checkpoint,
            (self.began_epoch, self.ended_epoch),
            tuple(self.heads[bucket] for bucket in sorted(self.heads)),
            self.generation,
            self.buckets,
            self.under_way,
        )
