"""How a log's records are written where that is not as they are read: the fields of version 1, in their order.

What an older program wrote takes the defaults; what no program writes is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct, ValidationError
from msgspec.structs import asdict

from distcommit.model.log_records import (
    ByHand,
    Checkpoint,
    Cut,
    DatasetState,
    DatasetStatus,
    Decide,
    Done,
    Dropped,
    EarlierReading,
    Failed,
    Fence,
    Gate,
    Generation,
    Head,
    Heads,
    Intent,
    Left,
    Moved,
    OpenSequence,
    Rebucket,
    Rebuilt,
    Record,
    SealedSequence,
    SetWatermark,
    SetWatermarks,
    TargetEpochs,
)
from distcommit.model.unread import FailedReading, Unread
from distcommit.model.watermark import Position, Watermark
from distcommit.model.work import SchemaIds, SkippedRange


class StoredIntent(Struct, frozen=True, array_like=True, tag="Intent"):
    """An Intent: a field for each gate that is not open."""

    epoch: int
    sequences: tuple[SealedSequence, ...]
    held: bool = False
    published: bool = False


class StoredState(Struct, frozen=True, array_like=True):
    """A DatasetState: fields of its open sequence among those of its own."""

    dataset_urn: str
    status: DatasetStatus = DatasetStatus.IDLE
    sequence: SealedSequence | None = None
    held: bool = False
    watermark: Watermark | None = None
    closed_epoch: int = 0
    done_epoch: int = 0
    tried_epochs: tuple[int, ...] = ()
    reason: str = ""
    origin: dict[str, Position] = {}
    skipped: tuple[SkippedRange, ...] = ()
    accepted_epochs: tuple[int, ...] = ()
    done_records: int = 0
    done_files: int = 0
    done_left_out: str = ""
    outage: bool = False
    done_content_sum: str = ""
    unread: FailedReading | None = None
    schemas: SchemaIds = {}
    targets: TargetEpochs = {}
    forgotten: Watermark | None = None
    replacement: int = 0
    earlier: tuple[EarlierReading, ...] = ()


class StoredRebuilt(Struct, frozen=True, array_like=True, tag="Rebuilt"):
    """A Rebuilt."""

    epoch: int
    datasets: tuple[StoredState, ...]
    who: str


class StoredCheckpoint(Struct, frozen=True, array_like=True, tag="Checkpoint"):
    """A Checkpoint."""

    fence_epoch: int
    fence_run_id: str
    decided_epochs: tuple[int, ...]
    datasets: tuple[StoredState, ...]
    previous: int
    cuts: tuple[int, int] = (0, 0)
    heads: tuple[Head, ...] = ()
    generation: int = 0
    buckets: int = 0
    under_way: Rebucket | None = None


StoredRecord = (
    Fence
    | StoredIntent
    | Done
    | Failed
    | Left
    | Unread
    | Decide
    | Dropped
    | ByHand
    | SetWatermark
    | SetWatermarks
    | StoredRebuilt
    | Cut
    | Heads
    | Rebucket
    | Moved
    | Generation
    | StoredCheckpoint
)


def stored(record: Record) -> StoredRecord:
    """The record as it is written."""
    match record:
        case Intent():
            held, passed = record.gate is Gate.HELD, record.gate is Gate.PASSED
            return StoredIntent(record.epoch, record.sequences, held, passed)
        case Rebuilt():
            return StoredRebuilt(**_fields(record, _stored_state))
        case Checkpoint():
            return StoredCheckpoint(**_fields(record, _stored_state))
        case _:
            return record


def known(written: StoredRecord) -> Record:
    """The record that was written.

    Raises:
        ValidationError: if no program writes such a one.
    """
    match written:
        case StoredIntent():
            if written.held and written.published:
                raise ValidationError("an Intent that is both held and published")
            gate = Gate.HELD if written.held else Gate.PASSED if written.published else Gate.OPEN
            return Intent(written.epoch, written.sequences, gate)
        case StoredRebuilt():
            return Rebuilt(**_fields(written, _known_state))
        case StoredCheckpoint():
            return Checkpoint(**_fields(written, _known_state))
        case _:
            return written


def _fields(record: Rebuilt | Checkpoint | StoredRebuilt | StoredCheckpoint, changed: Callable[[Any], Any]) -> Any:
    return asdict(record) | {"datasets": tuple(map(changed, record.datasets))}


def _stored_state(state: DatasetState) -> StoredState:
    fields = asdict(state)
    mine = fields.pop("open")
    return StoredState(**fields, **(asdict(mine) if mine else {}))


def _known_state(written: StoredState) -> DatasetState:
    is_idle = written.status is DatasetStatus.IDLE
    if is_idle is not (written.sequence is None):
        raise ValidationError(f"a dataset that is {written.status.value} {'with' if is_idle else 'without'} a sequence")
    fields = asdict(written)
    mine = {name: fields.pop(name) for name in OpenSequence.__struct_fields__}
    return DatasetState(**fields, open=None if is_idle else OpenSequence(**mine))
