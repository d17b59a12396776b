"""The records of a commit log, and the state that folding them gives.

These structures are the stored format. `stores.logs.segment` writes them as MessagePack arrays, each record with its
tag in front. A field may only be added at the end, with a default. Any other change needs a new format version.
"""

from __future__ import annotations

from enum import Enum, IntEnum, StrEnum

from msgspec import Struct

from distcommit.core.records.read_failures import FailedReading, Unread
from distcommit.core.watermark import Position, Watermark
from distcommit.core.work import SchemaIds, SkippedRange

TargetEpochs = dict[str, tuple[int, ...]]
"""By branch that is committed at a target of its own: the epochs that the target's ledger may have for the dataset (0:
no row); none if nobody knows."""


class StepBatch(Struct, frozen=True, array_like=True):
    """Consecutive steps of one registered type, as data. `rows` is the MessagePack list of the steps' rows."""

    type_name: str
    version: int
    rows: bytes


class SealedSequence(Struct, frozen=True, array_like=True):
    """All commit steps of one dataset in one run, with the watermark they carry from `low` to `high`.

    Named (dataset_urn, epoch): at most one per dataset and run. `start` says where partitions without a position in
    `low` begin; `left_out` why work units of the plan are not in it, if any are not; `content_sum` what the records of
    its files come to (`sinks.files.content`), empty if that is not known; `schemas`: by converter, the ids of the
    schemas that the dataset's records may be of from then on; `targets`: what targets have once it is done;
    `replaces`: whether it publishes a replacement (`stores.folders.tombstones`).
    """

    dataset_urn: str
    epoch: int
    low: Watermark | None
    high: Watermark | None
    steps: tuple[StepBatch, ...]
    start: dict[str, Position] = {}
    skipped: tuple[SkippedRange, ...] = ()
    records: int = 0
    files: int = 0
    left_out: str = ""
    content_sum: str = ""
    schemas: SchemaIds = {}
    targets: TargetEpochs = {}
    replaces: bool = False


class SequenceName(Struct, frozen=True, array_like=True):
    """The name of a sequence: its dataset, and the epoch of the run that sealed it."""

    dataset_urn: str
    epoch: int


class Fence(Struct, frozen=True, array_like=True, tag="Fence"):
    """From here on only `epoch` may seal; `run_id` tells whose it is."""

    epoch: int
    run_id: str


class Gate(Enum):
    """When the steps of what is sealed may run.

    HELD: only after the job log's decision. PASSED: their effects were durable before they were sealed (at-least-once):
    the record closes them as DONE does, and they carry no steps.
    """

    OPEN = "open"
    HELD = "held"
    PASSED = "passed"


class Intent(Struct, frozen=True, array_like=True, tag="Intent"):
    """Seals sequences, all or none."""

    epoch: int
    sequences: tuple[SealedSequence, ...]
    gate: Gate = Gate.OPEN


class Done(Struct, frozen=True, array_like=True, tag="Done"):
    """All effects of these sequences are durable: their watermarks move with this record."""

    epoch: int
    sequences: tuple[SequenceName, ...]


class Failed(Struct, frozen=True, array_like=True, tag="Failed"):
    """A run could not finish this sequence; with `quarantine` nobody tries again until a person says so."""

    epoch: int
    sequence: SequenceName
    quarantine: bool
    reason: str


class LeftSequence(Struct, frozen=True, array_like=True):
    """A sequence that a run has left pending, and why."""

    dataset_urn: str
    epoch: int
    reason: str


class Left(Struct, frozen=True, array_like=True, tag="Left"):
    """A run leaves these sequences pending for the next one; it is nobody's failed attempt.

    `outage`: their target was tried with something else, and does not work.
    """

    epoch: int
    sequences: tuple[LeftSequence, ...]
    outage: bool = False


class Decide(Struct, frozen=True, array_like=True, tag="Decide"):
    """In the job log: the held sequences of `epoch` are to be published."""

    epoch: int


class Dropped(Struct, frozen=True, array_like=True, tag="Dropped"):
    """Held sequences of an older epoch that was never decided: nothing of them was published."""

    epoch: int
    sequences: tuple[SequenceName, ...]


class HandAction(StrEnum):
    """What a person may do to a quarantined sequence; QUARANTINE, to a pending one.

    GIVEN_UP accepts one that was to be abandoned, where that can't be finished. READ_AGAIN lets runs plan a
    dataset that the run of that epoch was the last to fail to read, and that was stopped; there is no sequence.
    """

    RETRY = "retry"
    ACCEPT = "accept"
    REVOKING = "revoking"
    RESTORED = "restored"
    ABANDONED = "abandoned"
    QUARANTINE = "quarantine"
    GIVEN_UP = "given-up"
    READ_AGAIN = "read-again"


class ByHand(Struct, frozen=True, array_like=True, tag="ByHand"):
    """A person's action on a sequence; needs no fence. `skipped`: of an accepted one, positions that are not there."""

    action: HandAction
    sequence: SequenceName
    who: str
    skipped: tuple[SkippedRange, ...] = ()


class SetWatermark(Struct, frozen=True, array_like=True, tag="SetWatermark"):
    """A person moves an idle dataset's watermark, in either direction."""

    dataset_urn: str
    watermark: Watermark | None
    who: str


class SetWatermarks(Struct, frozen=True, array_like=True, tag="SetWatermarks"):
    """A person sets the watermarks of many idle datasets at once, all or none."""

    watermarks: dict[str, Watermark]
    who: str


class DatasetStatus(StrEnum):
    """Where a dataset stands between its sequences."""

    IDLE = "idle"
    PENDING = "pending"
    QUARANTINED = "quarantined"
    REVOKING = "revoking"


class OpenSequence(Struct, frozen=True, array_like=True):
    """A sealed sequence that is not done yet, and its status, which is never `idle`.

    `held`: it may run only once its run was decided on; `tried_epochs`: runs that failed to replay it; `reason`: why it
    was not finished last time, and `outage` whether its target was to blame.
    """

    status: DatasetStatus
    sequence: SealedSequence
    held: bool = False
    tried_epochs: tuple[int, ...] = ()
    reason: str = ""
    outage: bool = False

    def __post_init__(self) -> None:
        """Reject a status that no open sequence has. Decoding reports it as an invalid value."""
        if self.status is DatasetStatus.IDLE:
            raise ValueError("an open sequence must not be idle")


class EarlierReading(Struct, frozen=True, array_like=True):
    """The range of an incarnation of a source that was read before the source was recreated."""

    watermark: Watermark
    origin: dict[str, Position] = {}


class DatasetState(Struct, frozen=True, array_like=True):
    """The state of one dataset in the fold.

    `open`: its sequence that is not done, if it has one; `closed_epoch`: newest epoch that may not seal again;
    `done_epoch`: newest epoch whose sequence is published; `origin`: the first position ever read, by partition;
    `accepted_epochs`: the newest sequence that an operator accepted;
    `done_records`, `done_files`, `done_content_sum` and `done_left_out`: what the sequence of `done_epoch` published,
    and why not more; `unread`: what could not be read, if that was so the last time; `schemas`: by converter, the ids
    of the schemas that its records are of; `targets`: what targets have, as the store knows it. `forgotten`: the
    watermark that it had when an operator set it to null, until it has another one; `replacement`: the epoch of its
    newest replacement, 0 if there is none; `earlier`: how far other incarnations of its source were read.
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
    done_left_out: str = ""
    done_content_sum: str = ""
    unread: FailedReading | None = None
    schemas: SchemaIds = {}
    targets: TargetEpochs = {}
    forgotten: Watermark | None = None
    replacement: int = 0
    earlier: tuple[EarlierReading, ...] = ()

    def bases(self, branch: str) -> tuple[int, ...]:
        """Return the epochs that the ledger of a branch's target may have for the dataset before its next commit there;
        none if they are not known, because the branch is new to the dataset."""
        return self.targets.get(branch, () if self.done_epoch else (0,))

    @property
    def reached(self) -> Watermark | None:
        """How far the dataset was read: its watermark, or the one that an operator has set to null since."""
        return self.watermark if self.watermark is not None else self.forgotten

    @property
    def is_stopped(self) -> bool:
        """Whether no run plans it, since too many could not read it."""
        return self.unread is not None and self.unread.stopped

    @property
    def status(self) -> DatasetStatus:
        """Where it stands between its sequences."""
        return self.open.status if self.open else DatasetStatus.IDLE

    @property
    def sequence(self) -> SealedSequence | None:
        """The sequence that is not done, if it has one."""
        return self.open.sequence if self.open else None

    @property
    def reason(self) -> str:
        """Why its sequence is not done, if a run could not finish it."""
        return self.open.reason if self.open else ""

    @property
    def tried_epochs(self) -> tuple[int, ...]:
        """Runs that failed to replay its sequence."""
        return self.open.tried_epochs if self.open else ()


class Rebuilt(Struct, frozen=True, array_like=True, tag="Rebuilt"):
    """The states of these datasets are what a person had made from the published files, whatever they were before.

    In the job log, of none: the heads of all buckets are forgotten, so that their logs go on as they stand.
    """

    epoch: int
    datasets: tuple[DatasetState, ...]
    who: str


class Head(Struct, frozen=True, array_like=True):
    """Where a bucket's log was: the number and the checksum of its newest segment, which covers who wrote it.

    `is_whole`: False of a bucket that had lost what stood above its last head. It keeps that head, and every run looks
    at it again.
    """

    bucket: int
    number: int
    checksum: str
    is_whole: bool = True


class CutPhase(IntEnum):
    """Where in a run a CUT stands: when all that older runs left is replayed, or when the run has ended."""

    BEGAN = 1
    ENDED = 2


class Cut(Struct, frozen=True, array_like=True, tag="Cut"):
    """In the job log: where the bucket logs were, as a run saw them after its own fences. ENDED says that it ended."""

    epoch: int
    phase: CutPhase
    heads: tuple[Head, ...]


class Heads(Struct, frozen=True, array_like=True, tag="Heads"):
    """In the job log: where bucket logs were after what a person did; each above the last head of its bucket."""

    heads: tuple[Head, ...]
    who: str


class Rebucket(Struct, frozen=True, array_like=True, tag="Rebucket"):
    """In the job log: from here on nothing goes on but the move to generation `generation`, of so many buckets.

    `settings`: what gives a dataset its name and its bucket there, as the store pins it.
    """

    epoch: int
    generation: int
    buckets: int
    settings: dict[str, str] = {}


class Moved(Struct, frozen=True, array_like=True, tag="Moved"):
    """In a bucket's log, its last valid record: what it holds goes on in the logs of that generation."""

    epoch: int
    generation: int


class Generation(Struct, frozen=True, array_like=True, tag="Generation"):
    """In the job log: the logs of the generation that was under way are complete, and count from here on."""

    epoch: int
    generation: int


class Checkpoint(Struct, frozen=True, array_like=True, tag="Checkpoint"):
    """The whole fold: older segments can be deleted. `previous`: the number of the checkpoint before it.

    The last five are the job log's: epochs of the newest CUTs of each phase, the newest head of each bucket, and how
    many buckets there are in which generation (0: as the store was made), or will be.
    """

    fence_epoch: int
    fence_run_id: str
    decided_epochs: tuple[int, ...]
    datasets: tuple[DatasetState, ...]
    previous: int
    cuts: tuple[int, int] = (0, 0)
    heads: tuple[Head, ...] = ()
    generation: int = 0
    buckets: int = 0
    under_way: Rebucket | None = None


Record = (
    Fence
    | Intent
    | Done
    | Failed
    | Left
    | Unread
    | Decide
    | Dropped
    | ByHand
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
