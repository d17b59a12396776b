"""Reads a commit log for operators: the writer of each record, and whether the record has an effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from distcommit.core.errors import ConfigurationError, DistcommitError
from distcommit.core.records.job_log_records import Cut, CutPhase, Decide, Generation, Head, Heads, Rebucket
from distcommit.core.records.log_records import (
    Checkpoint,
    Done,
    Dropped,
    Failed,
    Fence,
    Gate,
    Intent,
    Moved,
    OperatorDecision,
    Postponed,
    Rebuilt,
    Record,
    SetWatermark,
    SetWatermarks,
)
from distcommit.core.records.read_failure_records import DatasetReadFailure, ReadFailures
from distcommit.core.records.sealed_sequences import PostponedSequence, SealedSequence, SequenceName
from distcommit.core.support.counts import count_of
from distcommit.core.watermark import Watermark, format_position
from distcommit.protocol.log_state import Fold
from distcommit.protocol.record_effects import apply
from distcommit.protocol.record_validity import rejection_reason
from distcommit.stores.state.job_store import JobStore

_NAMED = 3
_GATES = {Gate.OPEN: "", Gate.HELD: " (held)", Gate.PASSED: " (published already)"}


class LogLine(msgspec.Struct):
    """A segment of a log.

    Attributes:
        number: number of the segment in the log.
        epoch: epoch of the run that wrote the segment; 0 for an operator, or if the segment is unreadable.
        writer: id of the process that wrote the segment; empty if it is unreadable.
        record: type of the record, such as `Done`; empty if the segment is unreadable.
        summary: content of the record in one line.
        ignored: why the record has no effect, or an unknown one; empty if it has an effect.
        unreadable: error of an unreadable segment. The effects of later segments are unknown up to the next checkpoint.
    """

    number: int
    epoch: int = 0
    writer: str = ""
    record: str = ""
    summary: str = ""
    ignored: str = ""
    unreadable: str = ""


class LogResult(msgspec.Struct):
    """The segments of a log, oldest first; for one dataset, only the segments that concern it.

    Attributes:
        log: path of the folder of the log.
        dataset: URN of the dataset to which the result is limited; empty for the whole log.
        lines: the segments.
    """

    log: str
    dataset: str
    lines: list[LogLine]


def read_log(store: JobStore, *, bucket: int | None = None, dataset: str | None = None) -> LogResult:
    """Return the segments of the job log or of a bucket log, also while a run is alive.

    Args:
        bucket: number of the bucket; None reads the job log.
        dataset: return only segments that concern this dataset, from the log of its bucket.

    Raises:
        ConfigurationError: if there is no such bucket, or `bucket` and `dataset` are both given.
        DistcommitError, OSError: if the log's folder can't be read.
    """
    if bucket is not None and dataset is not None:
        raise ConfigurationError(
            "--bucket and --dataset exclude each other",
            id="ARGUMENT_INVALID",
            expected="--bucket or --dataset",
            found="both",
            todo="leave out --bucket: the command finds the bucket of a dataset",
        )
    if dataset is not None:
        bucket = store.bucket_of(dataset)
    if bucket is not None and not 0 <= bucket < store.buckets:
        raise ConfigurationError(
            "there is no such bucket", id="ARGUMENT_INVALID", expected=f"0 to {store.buckets - 1}", found=str(bucket)
        )
    log = store.job_log() if bucket is None else store.bucket_log(bucket)
    lines: list[LogLine] = []
    fold: Fold | None = None
    for number, segment in log.segments():
        if isinstance(segment, DistcommitError):
            fold = None
            lines.append(LogLine(number, unreadable=str(segment)))
            continue
        record = segment.record
        if fold is None and isinstance(record, Checkpoint):
            fold = Fold()
        ignored = "its effect is unknown, because records before it are missing"
        if fold is not None:
            ignored = rejection_reason(record, fold)
            apply(number, record, fold)
        if dataset is None or _concerns(record, dataset):
            summary = _summary(record, dataset)
            lines.append(LogLine(number, segment.epoch, segment.writer_id, type(record).__name__, summary, ignored))
    return LogResult(log.folder, dataset or "", lines)


def _concerns(record: Record, dataset: str) -> bool:
    match record:
        case Intent() | Done() | Postponed() | Dropped():
            return any(sequence.dataset_urn == dataset for sequence in record.sequences)
        case Failed() | OperatorDecision():
            return record.sequence.dataset_urn == dataset
        case SetWatermark():
            return record.dataset_urn == dataset
        case SetWatermarks():
            return dataset in record.watermarks
        case Rebuilt() | Checkpoint() | ReadFailures():
            return any(state.dataset_urn == dataset for state in record.datasets)
        case _:
            return True


def _summary(record: Record, dataset: str | None) -> str:

    def is_selected(urn: str) -> bool:
        return dataset is None or urn == dataset

    match record:
        case Checkpoint():
            states = [state for state in record.datasets if is_selected(state.dataset_urn)]
            if dataset is not None:
                return _few(states, lambda state: f"{state.status.value} at {_position(state.watermark)}")
            counts = Counter(state.status.value for state in states)
            decided = f"; decided: {_few(record.decided_epochs, str)}" if record.decided_epochs else ""
            actual = ", ".join(f"{count:,} {status}" for status, count in sorted(counts.items())) or "no datasets"
            return f"epoch {record.fence_epoch}: {actual}{decided}"
        case Fence():
            return f"epoch {record.epoch} begins, run {record.run_id}"
        case Decide():
            return f"the held sequences of epoch {record.epoch} are published"
        case Intent():
            return _few([s for s in record.sequences if is_selected(s.dataset_urn)], _sealed) + _GATES[record.gate]
        case Done():
            return _few([name for name in record.sequences if is_selected(name.dataset_urn)], _name)
        case Dropped():
            return _few([name for name in record.sequences if is_selected(name.dataset_urn)], _name)
        case Failed():
            return f"{_name(record.sequence)}{', quarantined' if record.quarantine else ''}: {record.reason}"
        case Postponed():
            postponed = [one for one in record.sequences if is_selected(one.dataset_urn)]
            reasons = _few(postponed, _postponed)
            return ("its target does not work: " if record.outage else "") + reasons
        case ReadFailures():
            return _few([one for one in record.datasets if is_selected(one.dataset_urn)], _read_failure)
        case OperatorDecision():
            return f"{record.action.value} {_name(record.sequence)}, by {record.requested_by}"
        case SetWatermark():
            return f"{record.dataset_urn} to {_position(record.watermark)}, by {record.requested_by}"
        case SetWatermarks():
            moved = [(urn, watermark) for urn, watermark in record.watermarks.items() if is_selected(urn)]
            return f"{_few(moved, lambda one: f'{one[0]} to {_position(one[1])}')}, by {record.requested_by}"
        case Rebuilt():
            states = [state for state in record.datasets if is_selected(state.dataset_urn)]
            return f"{_few(states, lambda s: f'{s.dataset_urn} to {_position(s.watermark)}')}, by {record.requested_by}"
        case Cut():
            phase = "has ended" if record.phase is CutPhase.ENDED else "has replayed older sequences"
            return f"epoch {record.epoch} {phase}; buckets are at {_few(record.heads, _head)}"
        case Heads():
            return f"buckets are at {_few(record.heads, _head)}, by {record.requested_by}"
        case Rebucket():
            return f"the move to generation {record.generation}, of {count_of(record.buckets, 'bucket')}, begins"
        case Moved():
            return f"continues in generation {record.generation}"
        case Generation():
            return f"generation {record.generation} is current"


def _few(values: Iterable[object], describe: Callable[..., str]) -> str:
    listed = list(values)
    more = f" and {len(listed) - _NAMED:,} more" if len(listed) > _NAMED else ""
    return "; ".join(describe(value) for value in listed[:_NAMED]) + more


def _head(head: Head) -> str:
    return f"{head.bucket}:{head.number}{'' if head.is_complete else ' (its end is lost)'}"


def _name(name: SequenceName) -> str:
    return f"{name.dataset_urn} of epoch {name.epoch}"


def _sealed(sequence: SealedSequence) -> str:
    moved = f"{_position(sequence.low)} -> {_position(sequence.high)}"
    schemas = "".join(f", {name} of schemas {_few(ids, str)}" for name, ids in sequence.schemas.items())
    size = f"{count_of(sequence.records, 'record')} in {count_of(sequence.files, 'file')}"
    return f"{sequence.dataset_urn} {moved}, {size}{schemas}"


def _postponed(one: PostponedSequence) -> str:
    changed = f" (change {one.change} of its commit infos)" if one.change else ""
    return f"{one.dataset_urn} of epoch {one.epoch}{changed}: {one.reason}"


def _read_failure(one: DatasetReadFailure) -> str:
    moved = f"{_position(one.low)} -> {_position(one.expected_high)}"
    stopped = "; stopped" if one.stops else "; an outage" if one.outage else ""
    return f"{one.dataset_urn} {moved}{stopped}: {one.reason}"


def _position(watermark: Watermark | None) -> str:
    if watermark is None:
        return "nothing"
    return (
        ", ".join(
            f"{partition}:{format_position(position)}" for partition, position in sorted(watermark.positions.items())
        )
        or "none"
    )
