"""Records of bucket logs, and the dataset states that result from applying them in order. `job_log_records` has the
records of the job log, and `sealed_sequences` the sequences in the records.

These structures are the stored format. `stores.logs.segment_format` writes them as MessagePack arrays, each record with
its tag first. A field may only be added at the end, with a default. Any other change needs a new format version.
"""

from __future__ import annotations

from enum import Enum, StrEnum

from msgspec import Struct

from distcommit.core.records.job_log_records import Cut, Decide, Generation, Head, Heads, Rebucket
from distcommit.core.records.previous_run import PreviousRun
from distcommit.core.records.read_failure_records import ReadFailure, ReadFailures
from distcommit.core.records.sealed_sequences import PostponedSequence, SealedSequence, SequenceName, TargetEpochs
from distcommit.core.watermark import Position, Watermark
from distcommit.core.work_units import SchemaIds, SkippedRange


class Fence(Struct, frozen=True, array_like=True, tag="Fence"):
    """The start of a run in this log.

    Attributes:
        epoch: the epoch of the run that writes this record. Only this run may seal from here on.
        run_id: the id of that run.
    """

    epoch: int
    run_id: str


class Gate(Enum):
    """When the steps of sealed sequences may run."""

    OPEN = "open"
    """At once."""
    HELD = "held"
    """After the job log's decision."""
    PASSED = "passed"
    """The steps were executed before the seal (at-least-once). The record closes the sequences like DONE, and they
    have no steps.
    """


class Intent(Struct, frozen=True, array_like=True, tag="Intent"):
    """The seal of sequences, all or none.

    Attributes:
        epoch: the run that seals.
        sequences: the sealed sequences, with their steps: of this run, or of an older run that was killed.
        gate: when their steps may run; the same for all of them.
    """

    epoch: int
    sequences: tuple[SealedSequence, ...]
    gate: Gate = Gate.OPEN


class Done(Struct, frozen=True, array_like=True, tag="Done"):
    """The close of sequences: all of their effects are durable. Their watermarks move with this record.

    Attributes:
        epoch: the run that finished the sequences; a later run than theirs if it replayed them.
        sequences: the names of the finished sequences.
    """

    epoch: int
    sequences: tuple[SequenceName, ...]


class Failed(Struct, frozen=True, array_like=True, tag="Failed"):
    """The failure of a run to finish a sequence.

    Attributes:
        epoch: the run that failed; each run counts once.
        sequence: the name of the sequence.
        quarantine: whether no run tries again until an operator acts.
        reason: why it failed, for operators.
    """

    epoch: int
    sequence: SequenceName
    quarantine: bool
    reason: str


class Postponed(Struct, frozen=True, array_like=True, tag="Postponed"):
    """Sequences that a run leaves pending, perhaps with changed steps. This does not count as a failure.

    Attributes:
        epoch: the run that postpones.
        sequences: the postponed sequences.
        outage: whether an outage of their target is the cause.
    """

    epoch: int
    sequences: tuple[PostponedSequence, ...]
    outage: bool = False


class Dropped(Struct, frozen=True, array_like=True, tag="Dropped"):
    """Held sequences of an older epoch that was never decided. The run removes them; none of their steps was executed.

    Attributes:
        epoch: the run that removes them.
        sequences: their names, all of an older epoch.
    """

    epoch: int
    sequences: tuple[SequenceName, ...]


class OperatorAction(StrEnum):
    """An operator's action on a dataset. `protocol.record_validity.BY_HAND` has the required and the resulting status
    of each."""

    RETRY = "retry"
    """Execute a quarantined sequence again."""
    ACCEPT = "accept"
    """Close a quarantined sequence as done."""
    REVOKING = "revoking"
    """Start abandoning a quarantined sequence."""
    RESTORED = "restored"
    """Stop abandoning a sequence, which is quarantined again."""
    ABANDONED = "abandoned"
    """End abandoning: the sequence is removed."""
    QUARANTINE = "quarantine"
    """Quarantine a pending sequence."""
    GIVEN_UP = "given-up"
    """Accept a sequence whose abandoning cannot be finished."""
    READ_AGAIN = "read-again"
    """Resume planning of a stopped dataset. There is no sequence: the epoch in its name is the last run that failed to
    read the dataset.
    """


class OperatorDecision(Struct, frozen=True, array_like=True, tag="OperatorDecision"):
    """An operator's action on a sequence, without a fence.

    Attributes:
        action: the action.
        sequence: the name of the sequence.
        requested_by: the operator who requested it.
        skipped: the positions that an accepted sequence does not publish; empty with other actions.
    """

    action: OperatorAction
    sequence: SequenceName
    requested_by: str
    skipped: tuple[SkippedRange, ...] = ()


class SetWatermark(Struct, frozen=True, array_like=True, tag="SetWatermark"):
    """An operator's change of an idle dataset's watermark, forward or back.

    Attributes:
        dataset_urn: the dataset.
        watermark: the new watermark; None if the next run must start as with a new dataset.
        requested_by: the operator who requested it.
    """

    dataset_urn: str
    watermark: Watermark | None
    requested_by: str


class SetWatermarks(Struct, frozen=True, array_like=True, tag="SetWatermarks"):
    """An operator's change of the watermarks of many idle datasets, all or none.

    Attributes:
        watermarks: the new watermarks by dataset URN.
        requested_by: the operator who requested it.
    """

    watermarks: dict[str, Watermark]
    requested_by: str


class DatasetStatus(StrEnum):
    """The status of a dataset: that of its open sequence, or IDLE."""

    IDLE = "idle"
    PENDING = "pending"
    QUARANTINED = "quarantined"
    REVOKING = "revoking"


class OpenSequence(Struct, frozen=True, array_like=True):
    """A sealed sequence that is not done.

    Attributes:
        status: the status, never IDLE.
        sequence: the sequence, with the newest recorded change of its steps.
        held: whether its steps may run only after the job log's decision.
        tried_epochs: the runs that failed to replay the sequence.
        reason: why the last run did not finish the sequence.
        outage: whether an outage of the target was the cause.
        changes: how often committers have changed the steps since the seal.
    """

    status: DatasetStatus
    sequence: SealedSequence
    held: bool = False
    tried_epochs: tuple[int, ...] = ()
    reason: str = ""
    outage: bool = False
    changes: int = 0

    def __post_init__(self) -> None:
        """Reject a status that no open sequence has. Decoding reports it as an invalid value."""
        if self.status is DatasetStatus.IDLE:
            raise ValueError("an open sequence must not be idle")


class EarlierReading(Struct, frozen=True, array_like=True):
    """The range that was read of an earlier incarnation of a source.

    Attributes:
        watermark: the end of the range, in positions of that incarnation.
        origin: the first positions that were read, by partition.
    """

    watermark: Watermark
    origin: dict[str, Position] = {}


class DatasetState(Struct, frozen=True, array_like=True):
    """The state of one dataset, as the records of its bucket log produce it.

    Attributes:
        dataset_urn: the dataset.
        open: the sequence that is not done, if there is one.
        watermark: the stored watermark; None if nothing was committed.
        closed_epoch: runs up to this epoch can no longer seal the dataset.
        done_epoch: the newest epoch whose sequence is published.
        origin: the first position ever read, by partition.
        skipped: the ranges without published records.
        accepted_epochs: the epoch of the newest sequence that an operator released with accept; empty if there is
            none.
        done_records: the records of `done_epoch`.
        done_files: the files of `done_epoch`.
        done_partial_reason: why `done_epoch` did not publish its whole plan.
        done_content_sum: the content sum of `done_epoch`.
        read_failure: the current read failure.
        schemas: the schema ids of the dataset's records, by converter.
        targets: the epochs in the ledgers of targets, as far as the store knows.
        unset_watermark: the last watermark before an operator set it to null; None once there is a new one.
        replacement: the newest epoch whose files replaced those of earlier epochs; 0 if there is none.
        earlier_readings: the ranges that were read of earlier incarnations of the source.
        previous_run: the work units of the newest run that committed the dataset or failed to read it. None if an
            operator has set the watermark since then.
    """

    dataset_urn: str
    open: OpenSequence | None = None
    watermark: Watermark | None = None
    closed_epoch: int = 0
    done_epoch: int = 0
    origin: dict[str, Position] = {}
    skipped: tuple[SkippedRange, ...] = ()
    accepted_epochs: tuple[int, ...] = ()
    done_records: int = 0
    done_files: int = 0
    done_partial_reason: str = ""
    done_content_sum: str = ""
    read_failure: ReadFailure | None = None
    schemas: SchemaIds = {}
    targets: TargetEpochs = {}
    unset_watermark: Watermark | None = None
    replacement: int = 0
    earlier_readings: tuple[EarlierReading, ...] = ()
    previous_run: PreviousRun | None = None

    def bases(self, branch: str) -> tuple[int, ...]:
        """Return the epochs that a target's ledger may have before the next commit to that branch.

        Empty if they are not known, because the branch is new to the dataset.
        """
        return self.targets.get(branch, () if self.done_epoch else (0,))

    @property
    def reached(self) -> Watermark | None:
        """Return the end of what was read: the watermark, or the one before an operator set it to null."""
        return self.watermark if self.watermark is not None else self.unset_watermark

    @property
    def is_stopped(self) -> bool:
        """Return whether no run plans the dataset, because too many runs failed to read it."""
        return self.read_failure is not None and self.read_failure.stopped

    @property
    def status(self) -> DatasetStatus:
        """The status of the open sequence; IDLE without one."""
        return self.open.status if self.open else DatasetStatus.IDLE

    @property
    def sequence(self) -> SealedSequence | None:
        """The open sequence, if there is one."""
        return self.open.sequence if self.open else None

    @property
    def reason(self) -> str:
        """Why the last run did not finish the open sequence; empty without a failure."""
        return self.open.reason if self.open else ""

    @property
    def tried_epochs(self) -> tuple[int, ...]:
        """The runs that failed to replay the open sequence."""
        return self.open.tried_epochs if self.open else ()


class Rebuilt(Struct, frozen=True, array_like=True, tag="Rebuilt"):
    """New states of datasets, which an operator's rebuild derived from the published files.

    In the job log, this record has no datasets. It discards all log heads, so that the bucket logs continue from their
    present ends.

    Attributes:
        epoch: the epoch of the newest fence. No run up to this epoch can seal these datasets afterwards.
        datasets: the new states; empty in the job log.
        requested_by: the operator who requested it.
    """

    epoch: int
    datasets: tuple[DatasetState, ...]
    requested_by: str


class Moved(Struct, frozen=True, array_like=True, tag="Moved"):
    """The last valid record of a bucket's log. The log continues in the next generation.

    Attributes:
        epoch: the run that moves the logs.
        generation: the number of the next generation.
    """

    epoch: int
    generation: int


class Checkpoint(Struct, frozen=True, array_like=True, tag="Checkpoint"):
    """The whole fold, so that older segments can be deleted.

    Attributes:
        fence_epoch: the epoch of the newest fence.
        fence_run_id: the run of the newest fence.
        decided_epochs: the runs whose held sequences must be published.
        datasets: the states.
        previous: the number of the previous checkpoint.
        cut_epochs: in the job log, the epochs of the newest CUT of each phase.
        heads: in the job log, the newest head of each bucket.
        generation: in the job log, the current generation.
        buckets: in the job log, its number of buckets (0: as the store was created).
        pending_rebucket: in the job log, the move to the next generation.
    """

    fence_epoch: int
    fence_run_id: str
    decided_epochs: tuple[int, ...]
    datasets: tuple[DatasetState, ...]
    previous: int
    cut_epochs: tuple[int, int] = (0, 0)
    heads: tuple[Head, ...] = ()
    generation: int = 0
    buckets: int = 0
    pending_rebucket: Rebucket | None = None


Record = (
    Fence
    | Intent
    | Done
    | Failed
    | Postponed
    | ReadFailures
    | Decide
    | Dropped
    | OperatorDecision
    | SetWatermark
    | SetWatermarks
    | Rebuilt
    | Cut
    | Heads
    | Rebucket
    | Moved
    | Generation
    | Checkpoint
)
