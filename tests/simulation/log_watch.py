"""The content of the logs, compared with the reference model.

Each record is valid at its place and of its writer's epoch, each checkpoint agrees with the records below it, and so
does the product's own fold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.records.job_log_records import Decide
from distcommit.core.records.log_records import (
    Checkpoint,
    DatasetStatus,
    Done,
    Dropped,
    Failed,
    Fence,
    Gate,
    Intent,
    OperatorDecision,
    Rebuilt,
    Record,
    SetWatermark,
    SetWatermarks,
)
from distcommit.core.records.read_failure_records import ReadFailures
from distcommit.core.records.sealed_sequences import SequenceName
from distcommit.core.watermark import Watermark, as_offset, at_or_past
from distcommit.protocol.log_state import Fold
from distcommit.protocol.paths.store import segment_number
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.step_registry import load_steps
from distcommit.stores.logs.commit_log import CommitLog
from distcommit.stores.logs.segment_format import Segment, decode_segment
from distcommit.stores.state.job_store import JobStore
from tests.spec.product_log import LogModel

ANOTHERS_ID = "00112233445566778899aabbccddeeff"
"""The writer of foreign records, which need not be valid at their place."""
Placed = tuple[int, Segment]
_BY_PEOPLE = (OperatorDecision, SetWatermark, SetWatermarks)
_OF_THEIR_WRITER = (Intent, Done, Failed, Decide, Dropped, Rebuilt, ReadFailures)


class LogWatch:
    """Every record that was ever put into the logs of a store, including truncated segments and logs of all
    generations.

    Args:
        store: the store at the beginning of the watch.
    """

    def __init__(self, store: JobStore) -> None:
        self._records = {log.folder: _standing(log) for log in _logs(store)}

    def saw(self, path: str, data: bytes) -> None:
        """Record that a file was put. A segment of a truncated number is ignored."""
        folder, _, name = path.rpartition("/")
        number, records = segment_number(name), self._records.setdefault(folder, [])
        if number is not None and (not records or number > records[-1][0]):
            records.append((number, decode_segment(data, path)))

    def violation(self, store: JobStore) -> str:
        """Return a violation of the logs, if any."""
        return _violation(store, self._records)


def log_violation(store: JobStore) -> str:
    """Return a violation of the present logs, if any."""
    return _violation(store, {log.folder: _standing(log) for log in _logs(store)})


def _logs(store: JobStore) -> list[CommitLog]:
    return [store.job_log(), *map(store.bucket_log, range(store.buckets))]


def _standing(log: CommitLog) -> list[Placed]:
    """Return the segments from the lowest checkpoint on that are sound and without a gap up to the newest."""
    segments: list[Placed] = []
    for number, segment in log.segments():
        if segments and number != segments[-1][0] + 1:
            segments.clear()
        if isinstance(segment, Segment):
            segments.append((number, segment))
        else:  # the product reports this if it matters
            segments.clear()
    while segments and not isinstance(segments[0][1].record, Checkpoint):
        segments.pop(0)
    return segments


def _violation(store: JobStore, records: Mapping[str, Sequence[Placed]]) -> str:
    job_log = store.job_log()
    decided = _decided(records[job_log.folder])
    ended = records.keys() - {log.folder for log in _logs(store)}
    for log in [*_logs(store), *(CommitLog(store.fs, folder) for folder in sorted(ended))]:
        own_records = records[log.folder]
        wrong = _log_violation(own_records, log.refresh()) or (
            "" if log.folder == job_log.folder else _held_violation(own_records, decided)
        )
        if wrong:
            return f"{log.folder}: {wrong}"
    return ""


def _log_violation(records: Sequence[Placed], fold: Fold) -> str:
    if not records or not isinstance(records[0][1].record, Checkpoint):
        return "no checkpoint to begin at"
    model = LogModel.beginning_at(records[0][1].record)
    by_hand: dict[str, Watermark] = {}
    for number, segment in records[1:]:
        record = segment.record
        if wrong := _undone(record, by_hand):
            return f"segment {number} undoes an operator action made since its rebuild began: {wrong}"
        ours = segment.writer_id != ANOTHERS_ID  # of programs that leave foreign records
        if not model.append(record) and ours:
            return f"segment {number} is not valid at its place: {record}"
        required = 0 if isinstance(record, _BY_PEOPLE) else segment.epoch
        if isinstance(record, _OF_THEIR_WRITER):
            required = record.epoch
        if segment.epoch != required and ours:
            return f"segment {number} was written by epoch {segment.epoch}, and says {record}"
    return model.difference(fold)


def _undone(record: Record, by_hand: dict[str, Watermark]) -> str:
    """Return a dataset that a rebuild puts behind the watermark that an operator has set since its fence."""
    match record:
        case Fence():
            by_hand.clear()
        case SetWatermark(urn, Watermark() as watermark):
            by_hand[urn] = watermark
        case Rebuilt(_, states):
            for state in states:
                set_watermark = by_hand.get(state.dataset_urn)
                reached = state.watermark.positions if state.watermark else {}
                if set_watermark is not None and not all(
                    p in reached and at_or_past(reached[p], at) for p, at in set_watermark.positions.items()
                ):
                    return f"{set_watermark} is {state}"
    return ""


def _decided(records: Sequence[Placed]) -> dict[int, bool]:
    """Return whether an epoch with its fence in the job log was decided; unneeded older decisions are truncated."""
    decisions: dict[int, bool] = {}
    for _, segment in records:
        match segment.record:
            case Fence(epoch):
                decisions[epoch] = False
            case Decide(epoch) if epoch in decisions:
                decisions[epoch] = True
    return decisions


def _held_violation(records: Sequence[Placed], decided: Mapping[int, bool]) -> str:
    """Return a violation unless held sequences are published exactly if their epoch was decided."""
    held: set[SequenceName] = set()
    for number, segment in records:
        match segment.record:
            case Intent(epoch, sequences, Gate.HELD):
                held |= {SequenceName(sequence.dataset_urn, epoch) for sequence in sequences}
            case Done(_, names) if any(name in held and not decided.get(name.epoch, True) for name in names):
                return f"segment {number} closes what nobody has decided on: {names}"
            case Dropped(_, names) if any(decided.get(name.epoch, False) for name in names):
                return f"segment {number} drops what was decided on: {names}"
    return ""


def set_back(store: JobStore) -> int:
    """Return how many records operators have made runs read a second time, by the present logs."""
    records = 0
    for log in map(store.bucket_log, range(store.buckets)):
        model = LogModel()
        for _, segment in _standing(log):
            match segment.record:
                case Checkpoint() as record:
                    model = LogModel.beginning_at(record)
                case SetWatermark(urn, Watermark(positions)):
                    before = model.watermark(urn)
                    reached = before.positions.items() if before else ()
                    records += sum(as_offset(position) - as_offset(positions.get(p, 0)) for p, position in reached)
            model.append(segment.record)
    return records


def lost_files(store: JobStore) -> str:
    """Return a file of an open sequence that is neither staged nor published; empty if there is none."""
    context = StepContext(store.fs, store.roots.staging, store.roots.output)
    for bucket in range(store.buckets):
        for state in store.bucket_log(bucket).refresh().datasets.values():
            if state.sequence is None or state.status is DatasetStatus.REVOKING:
                continue
            renames = [batch for batch in state.sequence.steps if batch.type_name == FsRenameCommitStep.type_name]
            for step in load_steps(renames, context):
                if isinstance(step, FsRenameCommitStep) and not _is_there(store.fs, step):
                    return f"{step.file.staged_path} of {state.dataset_urn} ({state.status.value}) is nowhere"
    return ""


def _is_there(fs: FileSystem, step: FsRenameCommitStep) -> bool:
    return any(fs.status(path) is not None for path in (step.source, step.target, step.source, step.target))
