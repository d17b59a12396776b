"""The product's records as records of `log_model`, and its folds compared with the model's.

A record of the product concerns several datasets; the model's rules are applied to each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from distcommit.core.records.job_log_records import Cut as CutRecord
from distcommit.core.records.job_log_records import CutPhase, Decide, Generation, Heads, Rebucket
from distcommit.core.records.job_log_records import Head as ProductHead
from distcommit.core.records.log_records import (
    Checkpoint,
    DatasetState,
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
from distcommit.core.records.read_failure_records import ReadFailure
from distcommit.core.records.read_failure_records import ReadFailures as UnreadRecord
from distcommit.core.records.sealed_sequences import SealedSequence
from distcommit.core.watermark import Watermark
from distcommit.protocol.log_state import Fold as ProductFold
from tests.spec.log_model import DS, Cut, Details, Fold, Head, Move, Rec, Says, Seq, Unread, apply, valid

_UNKNOWN = DS(None, 0, None, "idle", 0, 0, None)


class LogModel:
    """The meaning of one commit log: append every record of the log, in the order of their numbers."""

    def __init__(self) -> None:
        self._fold = Fold(0, "", frozenset(), _UNKNOWN)
        self._datasets: dict[str, DS] = {}
        self._wrong = ""

    @classmethod
    def beginning_at(cls, record: Checkpoint) -> LogModel:
        """Return the model of a log that begins at a checkpoint, which is trusted."""
        model = cls()
        model._datasets = {state.dataset_urn: _dataset(state) for state in record.datasets}
        began, ended = record.cut_epochs
        model._fold = Fold(
            record.fence_epoch,
            record.fence_run_id,
            frozenset(record.decided_epochs),
            _UNKNOWN,
            _heads(record.heads),
            cuts=(began, ended),
            generation=record.generation,
            buckets=record.buckets,
            under_way=_move(record.pending_rebucket),
        )
        return model

    def watermark(self, urn: str) -> Watermark | None:
        """Return the dataset's watermark."""
        watermark: Watermark | None = self._dataset(urn).wm
        return watermark

    def append(self, record: Record) -> bool:
        """Apply a record; return False if the record is invalid there, and so changes nothing."""
        if self._fold.moved_to:
            return False
        if isinstance(record, Checkpoint):
            self._wrong = self._wrong or self._checkpoint_differs(record)
            self._fold = self._fold._replace(decided=self._fold.decided & set(record.decided_epochs))
            return True
        of_job = self._of_job(record)
        return self._append_of_datasets(record) if of_job is None else self._append_of_job(record, of_job)

    def _append_of_job(self, record: Record, part: Rec) -> bool:
        datasets = (self._datasets or {"": _UNKNOWN}) if part.kind == "MOVED" else {"": _UNKNOWN}
        twice = isinstance(record, CutRecord | Heads) and len({head.bucket for head in record.heads}) < len(
            record.heads
        )
        if twice or not all(valid(part, self._fold._replace(ds=dataset)) for dataset in datasets.values()):
            return False
        self._fold = apply(part, self._fold)
        return True

    def _append_of_datasets(self, record: Record) -> bool:
        listed = list(self._by_dataset(record))
        parts = dict(listed)
        fenced_in = getattr(record, "epoch", self._fold.fence) == self._fold.fence  # also if it names no dataset
        if not fenced_in or len(parts) < len(listed):
            return False
        folds = {urn: self._fold._replace(ds=self._dataset(urn)) for urn in parts}
        if not all(valid(part, folds[urn]) for urn, part in parts.items()):
            return False
        self._datasets.update((urn, apply(part, folds[urn]).ds) for urn, part in parts.items())
        if isinstance(record, Rebuilt):
            self._fold = self._fold._replace(heads=())
        return True

    def difference(self, fold: ProductFold) -> str:
        """Return the difference between a fold of the same records and the model; empty if there is none."""
        f = self._fold
        expected = (f.fence, f.owner, f.decided)
        theirs = (fold.fence_epoch, fold.fence_run_id, frozenset(fold.decided_epochs))
        if expected != theirs:
            return f"fence and decisions are {expected}, the fold says {theirs}"
        anchors = (f.heads, f.cuts, f.generation, f.buckets, f.under_way, f.moved_to)
        cuts = (fold.began_epoch, fold.ended_epoch)
        actual = (
            _heads(fold.heads.values()),
            cuts,
            fold.generation,
            fold.buckets,
            _move(fold.under_way),
            fold.moved_to,
        )
        if anchors != actual:
            return f"anchors and generations are {anchors}, the fold says {actual}"
        return self._wrong or self._datasets_differ(fold.datasets.values())

    def _dataset(self, urn: str) -> DS:
        """Return the dataset; an unknown one is idle."""
        return self._datasets.get(urn, _UNKNOWN)

    def _of_job(self, record: Record) -> Rec | None:
        """Return a record without datasets."""
        match record:
            case Fence(epoch, run_id):
                return Rec("FENCE", epoch, run_id)
            case Decide(epoch):
                return Rec("DECIDE", epoch)
            case CutRecord(epoch=epoch, phase=phase):
                return Rec("CUT", epoch, Cut(epoch, 1 if phase is CutPhase.BEGAN else 2, _heads(record.heads)))
            case Heads():
                return Rec("HEAD", 0, _heads(record.heads))
            case Rebucket(epoch):
                return Rec("REBUCKET", epoch, _move(record))
            case Moved(epoch, generation):
                return Rec("MOVED", epoch, generation)
            case Generation(epoch, generation):
                return Rec("GENERATION", epoch, generation)
        return None

    def _by_dataset(self, record: Record) -> Iterator[tuple[str, Rec]]:
        """Yield the record as one of each dataset."""
        match record:
            case Intent(epoch, sequences, gate):
                kind = "PUBLISHED" if gate is Gate.PASSED else "INTENT"
                for sequence in sequences:
                    yield sequence.dataset_urn, Rec(kind, epoch, self._sequence(sequence, gate))
            case Done(epoch, names):
                yield from ((name.dataset_urn, Rec("DONE", epoch, name.epoch)) for name in names)
            case Dropped(epoch, names):
                yield from ((name.dataset_urn, Rec("DROP", epoch, name.epoch)) for name in names)
            case Failed(epoch, name, quarantine, reason):
                yield name.dataset_urn, Rec("FAILED", epoch, name.epoch, Says(reason, again=not quarantine))
            case Postponed(epoch):
                for named in record.sequences:
                    seq = self._dataset(named.dataset_urn).seq
                    infos = tuple(named.steps.get(i, batch) for i, batch in enumerate(seq.infos if seq else ()))
                    says = Says(named.reason, record.outage, changes=named.change, infos=infos)
                    yield named.dataset_urn, Rec("LEFT", epoch, named.epoch, says)
            case UnreadRecord(epoch):
                for one in record.datasets:
                    says = Says(one.reason, one.outage, stops=one.stops)
                    yield one.dataset_urn, Rec("UNREAD", epoch, (one.low, one.expected_high, 0), says)
            case OperatorDecision(action, name):
                says = Says(f"quarantined by {record.requested_by}")
                yield name.dataset_urn, Rec(action.value.upper(), 0, name.epoch, says)
            case SetWatermark(urn, watermark):
                yield urn, Rec("SET", 0, watermark)
            case SetWatermarks(watermarks):
                yield from ((urn, Rec("SET", 0, watermark)) for urn, watermark in watermarks.items())
            case Rebuilt(epoch, states):
                for state in states:
                    details = Details(schemas=dict(state.schemas))
                    rebuilt = _UNKNOWN._replace(
                        wm=state.watermark, closed=state.closed_epoch, done=state.done_epoch, details=details
                    )
                    yield state.dataset_urn, Rec("REBUILT", epoch, rebuilt)

    def _sequence(self, sequence: SealedSequence, gate: Gate) -> Seq:
        t = self._dataset(sequence.dataset_urn)
        return _seq(sequence, t.wm, t.unread, held=gate is Gate.HELD)

    def _checkpoint_differs(self, record: Checkpoint) -> str:
        if (record.fence_epoch, record.fence_run_id) != (self._fold.fence, self._fold.owner):
            return f"a checkpoint says fence {record.fence_epoch}, it is {self._fold.fence}"
        if not set(record.decided_epochs) <= self._fold.decided:
            return f"a checkpoint says {record.decided_epochs} are decided, {self._fold.decided} are"
        differs = self._datasets_differ(record.datasets)
        return differs and f"a checkpoint differs: {differs}"

    def _datasets_differ(self, states: Iterable[DatasetState]) -> str:
        by_urn = {state.dataset_urn: state for state in states}
        for urn in {**self._datasets, **by_urn}:
            expected, state = self._dataset(urn), by_urn.get(urn) or DatasetState(urn)
            if _compared(expected) != _compared(_dataset(state)):
                return f"{urn!r} is {expected}, the fold says {state}"
        return ""


def _compared(t: DS) -> tuple[object, ...]:
    """Return what the product records of a dataset, too."""
    sequence = t.seq and (t.seq.files, t.seq.held, t.seq.changes, t.seq.infos)
    details = t.details
    more = (details.tried, details.accepted, details.reason, details.outage, details.schemas or {})
    return t.wm, sequence, t.state, t.closed, t.done, t.unread, more


def _dataset(state: DatasetState) -> DS:
    """Return a dataset from its stored state."""
    unread, sequence = _unread(state.read_failure), state.sequence
    held = state.open is not None and state.open.held
    outage = state.open is not None and state.open.outage
    changes = state.open.changes if state.open else 0
    return DS(
        state.watermark,
        0,
        None if sequence is None else _seq(sequence, state.watermark, unread, held=held)._replace(changes=changes),
        state.status.value,
        state.closed_epoch,
        state.done_epoch,
        None,
        unread,
        Details(
            frozenset(state.tried_epochs),
            state.accepted_epochs[-1] if state.accepted_epochs else 0,
            state.reason,
            outage,
            state.done_partial_reason,
            dict(state.schemas),
        ),
    )


def _seq(sequence: SealedSequence, watermark: Watermark | None, unread: Unread | None, *, held: bool) -> Seq:
    high = watermark if sequence.high is None else sequence.high
    return Seq(
        sequence.dataset_urn,
        sequence.epoch,
        (replace(sequence, steps=()),),
        sequence.low,
        high,
        held=held,
        left_out=sequence.partial_reason,
        schemas=dict(sequence.schemas),
        unread=_left_unread(unread, sequence.low, high) if sequence.partial_reason else None,
        infos=sequence.steps,
    )


def _left_unread(unread: Unread | None, low: Watermark | None, high: Watermark | None) -> Unread | None:
    """Return the read failure for the partitions that an incomplete sequence does not move."""
    if unread is None or low is None or high is None or high.incarnation != unread.hi.incarnation:
        return None
    ends = unread.hi.positions
    stay = {p: end for p, end in ends.items() if low.positions.get(p) == high.positions.get(p)}
    return unread._replace(hi=Watermark(stay, high.incarnation)) if stay else None


def _unread(failure: ReadFailure | None) -> Unread | None:
    if failure is None:
        return None
    runs, stopped = failure.failed_runs, failure.stopped
    return Unread(runs, failure.epoch, failure.expected_high, stopped, 0, failure.reason, failure.outage)


def _heads(heads: Iterable[ProductHead]) -> tuple[Head, ...]:
    return tuple(Head(head.bucket, head.number, head) for head in sorted(heads, key=lambda head: head.bucket))


def _move(record: Rebucket | None) -> Move | None:
    if record is None:
        return None
    return Move(record.generation, record.buckets, record.settings, record.epoch)
