"""The state of one log."""

from __future__ import annotations

from distcommit.core.records.job_log_records import Head, Rebucket
from distcommit.core.records.log_records import Checkpoint, DatasetState, DatasetStatus, OpenSequence
from distcommit.core.records.sealed_sequences import SealedSequence, SequenceName


class Fold:
    """The state of a log after the records up to `number`. `record_effects.apply` advances it. Not shared between
    threads.

    Attributes:
        number: number of the newest record, valid or not.
        fence_epoch: epoch of the newest fence. Only this run may seal and close.
        fence_run_id: run of the newest fence.
        datasets: states by URN.
        decided_epochs: epochs of the runs that decided to publish their held sequences.
        ignored: number and type of each invalid record.
        last_checkpoint: number of the newest checkpoint.
        previous_checkpoint: number of the checkpoint before it.
        moved_to: in a bucket log, the generation in which it continues; 0 if it has not moved.
        began_epoch: in the job log, epoch of the newest CUT with phase BEGAN.
        ended_epoch: in the job log, epoch of the newest CUT with phase ENDED.
        heads: in the job log, the newest recorded head of each bucket.
        generation: in the job log, the current generation.
        buckets: in the job log, the number of buckets; 0 for the number with which the store was created.
        under_way: in the job log, the unfinished move to the next generation.
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
        """Whether the job log has the newest run's CUT with phase ENDED."""
        return self.ended_epoch == self.fence_epoch

    def state_of(self, urn: str) -> DatasetState:
        """Return a dataset's state. An unknown dataset is idle and has no watermark."""
        return self.datasets.get(urn) or DatasetState(urn)

    def sequence(self, name: SequenceName) -> SealedSequence | None:
        sequence = self.state_of(name.dataset_urn).sequence
        return sequence if sequence is not None and sequence.epoch == name.epoch else None

    def pending(self) -> list[OpenSequence]:
        """Return the pending sequences. A run executes them, or drops them if they are held and were never decided."""
        open_sequences = (state.open for state in self.datasets.values())
        return [
            sequence for sequence in open_sequences if sequence is not None and sequence.status is DatasetStatus.PENDING
        ]

    def checkpoint(self, decided_from: int = 0) -> Checkpoint:
        """Return the whole state as a checkpoint, without decisions of epochs below `decided_from`."""
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
