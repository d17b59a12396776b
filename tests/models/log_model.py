"""A reference model of one commit log in plain Python, written from the design's table of records.

It is independent of `protocol.validity`, so that a mistake in either shows as a difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import structs

from distcommit.core.records.job_records import Cut, CutPhase, Decide, Generation, Head, Heads, Rebucket
from distcommit.core.records.log_records import (
    ByHand,
    Checkpoint,
    DatasetState,
    Done,
    Dropped,
    Failed,
    Fence,
    Gate,
    Intent,
    Left,
    Moved,
    Rebuilt,
    Record,
    SealedSequence,
    SequenceName,
    SetWatermark,
    SetWatermarks,
)
from distcommit.core.records.read_failures import ReadFailure, Unread
from distcommit.core.watermark import Watermark
from distcommit.protocol.fold import Fold

_NEEDS_AND_GIVES = {
    "retry": ("quarantined", "pending"),
    "accept": ("quarantined", "idle"),
    "revoking": ("quarantined", "revoking"),
    "restored": ("revoking", "quarantined"),
    "abandoned": ("revoking", "idle"),
    "quarantine": ("pending", "quarantined"),
    "given-up": ("revoking", "idle"),
}


@dataclass(slots=True)
class LogDataset:
    """One dataset's state in the log model."""

    status: str = "idle"
    sequence: SealedSequence | None = None
    held: bool = False
    watermark: Watermark | None = None
    closed: int = 0
    done: int = 0
    tried: set[int] = field(default_factory=set)
    accepted: list[int] = field(default_factory=list)
    reason: str = ""
    outage: bool = False
    left_out: str = ""
    unread: ReadFailure | None = None
    schemas: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, state: DatasetState) -> LogDataset:
        """Return a dataset from its stored state alone."""
        return cls(
            state.status.value,
            state.sequence,
            state.open is not None and state.open.held,
            state.watermark,
            state.closed_epoch,
            state.done_epoch,
            set(state.tried_epochs),
            list(state.accepted_epochs[-1:]),
            left_out=state.done_left_out,
            unread=state.unread,
            schemas=dict(state.schemas),
        )

    def has(self, epoch: int, *statuses: str) -> bool:
        """Return whether the sequence of that epoch is present with one of these statuses."""
        return self.sequence is not None and self.sequence.epoch == epoch and self.status in statuses


class LogModel:
    """The meaning of one commit log: append every record of the log, in the order of their numbers."""

    def __init__(self) -> None:
        self.fence = 0
        self.run_id = ""
        self.decided: set[int] = set()
        self.datasets: dict[str, LogDataset] = {}
        self.wrong = ""
        self.heads: dict[int, Head] = {}
        self.cuts = {CutPhase.BEGAN: 0, CutPhase.ENDED: 0}
        self.generation = self.buckets = self.moved_to = 0
        self.under_way: Rebucket | None = None

    @classmethod
    def beginning_at(cls, record: Checkpoint) -> LogModel:
        """Return the model of a log that begins at a checkpoint, which is trusted."""
        model = cls()
        model.fence, model.run_id, model.decided = record.fence_epoch, record.fence_run_id, set(record.decided_epochs)
        model.datasets = {state.dataset_urn: LogDataset.of(state) for state in record.datasets}
        model.heads = {head.bucket: head for head in record.heads}
        model.cuts = dict(zip(CutPhase, record.cuts, strict=True))
        model.generation, model.buckets, model.under_way = record.generation, record.buckets, record.under_way
        return model

    def dataset(self, urn: str) -> LogDataset:
        """Return the dataset; an unknown one is idle."""
        return self.datasets.get(urn) or LogDataset()

    def append(self, record: Record) -> bool:
        """Apply a record; return False if the record is invalid there, and so changes nothing."""
        if self.moved_to:
            return False
        match record:
            case Cut() | Heads() | Rebucket() | Moved() | Generation():
                return self._of_job(record)
            case Checkpoint():
                self.wrong = self.wrong or _checkpoint_differs(self, record)
                self.decided &= set(record.decided_epochs)
                return True
            case Fence(epoch, run_id):
                if epoch <= self.fence:
                    return False
                self.fence, self.run_id = epoch, run_id
                return True
            case Decide(epoch):
                if epoch == self.fence:
                    self.decided.add(epoch)
                return epoch == self.fence
            case Intent():
                return self._intent(record)
            case Done() | Dropped():
                return self._end(record)
            case Failed(epoch, name, quarantine, reason):
                if epoch != self.fence or not self.dataset(name.dataset_urn).has(name.epoch, "pending"):
                    return False
                self.datasets[name.dataset_urn].tried.add(epoch)
                self.datasets[name.dataset_urn].status = "quarantined" if quarantine else "pending"
                self.datasets[name.dataset_urn].reason = reason
                self.datasets[name.dataset_urn].outage = False
                return True
            case Left():
                return self._failed_commits(record)
            case Unread():
                return self._unread(record)
            case ByHand():
                return self._by_hand(record)
            case SetWatermark(urn, watermark):
                return self._set({urn: watermark})
            case SetWatermarks(watermarks):
                return self._set(watermarks)
            case Rebuilt():
                return self._rebuilt(record)

    def difference(self, fold: Fold) -> str:
        """Return the difference between a fold of the same records and the model; empty if there is none."""
        expected = (self.fence, self.run_id, self.decided)
        theirs = (fold.fence_epoch, fold.fence_run_id, set(fold.decided_epochs))
        if expected != theirs:
            return f"fence and decisions are {expected}, the fold says {theirs}"
        anchors = (self.heads, tuple(self.cuts.values()), self.generation, self.buckets, self.under_way, self.moved_to)
        cuts = (fold.began_epoch, fold.ended_epoch)
        actual = (fold.heads, cuts, fold.generation, fold.buckets, fold.under_way, fold.moved_to)
        if anchors != actual:
            return f"anchors and generations are {anchors}, the fold says {actual}"
        return self.wrong or _datasets_differ(self, fold.datasets.values())

    def _set(self, watermarks: Mapping[str, Watermark | None]) -> bool:
        if any(self.dataset(urn).status != "idle" for urn in watermarks):
            return False
        for urn, watermark in watermarks.items():
            dataset = self.datasets.setdefault(urn, LogDataset())
            dataset.watermark, dataset.closed, dataset.unread = watermark, self.fence, None
        return True

    def _rebuilt(self, record: Rebuilt) -> bool:
        epoch, states = record.epoch, record.datasets
        if epoch != self.fence or len({state.dataset_urn for state in states}) < len(states):
            return False
        if any(state.closed_epoch > epoch for state in states):
            return False
        for state in states:
            self.datasets[state.dataset_urn] = LogDataset(
                status="idle", watermark=state.watermark, closed=state.closed_epoch, done=state.done_epoch
            )
            self.datasets[state.dataset_urn].schemas = dict(state.schemas)
        self.heads = {}
        return True

    def _of_job(self, record: Cut | Heads | Rebucket | Moved | Generation) -> bool:
        if not isinstance(record, Heads) and record.epoch != self.fence:
            return False
        match record:
            case Cut() | Heads():
                least = 0 if isinstance(record, Cut) else 1
                heads = {head.bucket: head for head in record.heads}
                back = any(b in self.heads and h.number < self.heads[b].number + least for b, h in heads.items())
                if back or self.under_way or len(heads) < len(record.heads):
                    return False
                self.heads.update(heads)
                if isinstance(record, Cut):
                    self.cuts[record.phase] = record.epoch
            case Rebucket(_, generation, buckets, settings):
                another = self.under_way and (self.under_way.buckets, self.under_way.settings) != (buckets, settings)
                if another or generation != self.generation + 1 or buckets < 1:
                    return False
                self.under_way = record
            case Moved():
                if any(known.status != "idle" for known in self.datasets.values()):
                    return False
                self.moved_to = record.generation
            case Generation(_, generation):
                if self.under_way is None or self.under_way.generation != generation:
                    return False
                self.generation, self.buckets = generation, self.under_way.buckets
                self.under_way, self.heads = None, {}
        return True

    def _intent(self, record: Intent) -> bool:
        names = Counter(sequence.dataset_urn for sequence in record.sequences)
        for sequence in record.sequences:
            dataset = self.dataset(sequence.dataset_urn)
            free = dataset.status == "idle" and dataset.closed < record.epoch and dataset.watermark == sequence.low
            if not free or sequence.epoch != record.epoch or names[sequence.dataset_urn] > 1:
                return False
        if record.epoch != self.fence:
            return False
        for sequence in record.sequences:
            dataset = self.datasets.setdefault(sequence.dataset_urn, LogDataset())
            dataset.status, dataset.sequence, dataset.closed = "pending", sequence, record.epoch
            dataset.held = record.gate is Gate.HELD
            if record.gate is Gate.PASSED:
                self._to_idle(SequenceName(sequence.dataset_urn, sequence.epoch), published=True)
        return True

    def _failed_commits(self, record: Left) -> bool:
        pending = [self.dataset(named.dataset_urn).has(named.epoch, "pending") for named in record.sequences]
        once = len({named.dataset_urn for named in record.sequences}) == len(record.sequences)
        if record.epoch != self.fence or not once or not all(pending):
            return False
        for named in record.sequences:
            self.datasets[named.dataset_urn].reason = named.reason
            self.datasets[named.dataset_urn].outage = record.outage
        return True

    def _unread(self, record: Unread) -> bool:
        for one in record.datasets:
            dataset = self.dataset(one.dataset_urn)
            partly = bool(dataset.left_out) and dataset.done == record.epoch
            if (
                dataset.status != "idle"
                or dataset.watermark != one.low
                or (dataset.closed >= record.epoch and not partly)
            ):
                return False
            if dataset.unread is not None and dataset.unread.epoch >= record.epoch:
                return False
        if record.epoch != self.fence or len({one.dataset_urn for one in record.datasets}) < len(record.datasets):
            return False
        for one in record.datasets:
            dataset = self.datasets.setdefault(one.dataset_urn, LogDataset())
            before = dataset.unread.failed_runs if dataset.unread else 0
            dataset.unread = ReadFailure(
                record.epoch,
                before if one.outage else before + 1,
                one.expected_high,
                one.reason,
                one.stops,
                one.outage,
            )
        return True

    def _end(self, record: Done | Dropped) -> bool:
        done = isinstance(record, Done)
        twice = len({name.dataset_urn for name in record.sequences}) < len(record.sequences)
        if record.epoch != self.fence or twice:
            return False
        for name in record.sequences:
            dataset = self.dataset(name.dataset_urn)
            if done and not dataset.has(name.epoch, "pending", "quarantined"):
                return False
            if not done and not (dataset.has(name.epoch, "pending") and dataset.held and name.epoch < record.epoch):
                return False
        for name in record.sequences:
            self._to_idle(name, published=done)
        return True

    def _by_hand(self, record: ByHand) -> bool:
        if record.action.value == "read-again":
            return self._read_again(record.sequence)
        needed, given = _NEEDS_AND_GIVES[record.action.value]
        urn, epoch = record.sequence.dataset_urn, record.sequence.epoch
        if not self.dataset(urn).has(epoch, needed):
            return False
        dataset = self.datasets[urn]
        if given == "idle":
            accepted = record.action.value in ("accept", "given-up")
            self._to_idle(record.sequence, published=accepted)
            dataset.accepted = [epoch] if accepted else dataset.accepted
        elif record.action.value == "retry":
            dataset.tried = set()
        elif record.action.value == "quarantine":
            dataset.reason = dataset.reason or f"quarantined by {record.who}"
        dataset.status = given
        return True

    def _read_again(self, name: SequenceName) -> bool:
        dataset = self.dataset(name.dataset_urn)
        stopped = dataset.unread is not None and dataset.unread.stopped and dataset.unread.epoch == name.epoch
        if dataset.status != "idle" or dataset.unread is None or not stopped:
            return False
        dataset.unread = structs.replace(dataset.unread, failed_runs=0, stopped=False)
        return True

    def _to_idle(self, name: SequenceName, *, published: bool) -> None:
        dataset = self.datasets[name.dataset_urn]
        if published and dataset.sequence is not None:
            low, high = dataset.watermark, dataset.sequence.high
            if high is not None and high != low:
                dataset.unread = _left_unread(dataset.unread, low, high) if dataset.sequence.left_out else None
            dataset.watermark = high if high is not None else low
            dataset.left_out = dataset.sequence.left_out
            dataset.done = max(dataset.done, name.epoch)
            dataset.schemas = dataset.schemas | dataset.sequence.schemas
        dataset.status, dataset.sequence, dataset.held, dataset.tried = "idle", None, False, set()
        dataset.reason, dataset.outage = "", False


def _left_unread(unread: ReadFailure | None, low: Watermark | None, high: Watermark) -> ReadFailure | None:
    """Return the read failure for the partitions that an incomplete sequence has not moved."""
    if unread is None or low is None or high.incarnation != unread.expected_high.incarnation:
        return None
    ends = unread.expected_high.positions
    stay = {p: end for p, end in ends.items() if low.positions.get(p) == high.positions.get(p)}
    return structs.replace(unread, expected_high=Watermark(stay, high.incarnation)) if stay else None


def _checkpoint_differs(model: LogModel, record: Checkpoint) -> str:
    if (record.fence_epoch, record.fence_run_id) != (model.fence, model.run_id):
        return f"a checkpoint says fence {record.fence_epoch}, it is {model.fence}"
    if not set(record.decided_epochs) <= model.decided:
        return f"a checkpoint says {record.decided_epochs} are decided, {model.decided} are"
    differs = _datasets_differ(model, record.datasets)
    return differs and f"a checkpoint differs: {differs}"


def _datasets_differ(model: LogModel, states: Iterable[DatasetState]) -> str:
    by_urn = {state.dataset_urn: state for state in states}
    for urn in {**model.datasets, **by_urn}:
        expected, state = model.dataset(urn), by_urn.get(urn) or DatasetState(urn)
        expected_values = (
            expected.status,
            expected.sequence,
            expected.held,
            expected.watermark,
            expected.closed,
            expected.done,
        )
        open_now = state.open
        held, outage = (open_now.held, open_now.outage) if open_now else (False, False)
        theirs = (state.status.value, state.sequence, held, state.watermark, state.closed_epoch)
        more = (expected.tried, expected.accepted, expected.reason, expected.outage, expected.unread, expected.schemas)
        accepted = list(state.accepted_epochs[-1:])
        also = (set(state.tried_epochs), accepted, state.reason, outage, state.unread, state.schemas)
        if expected_values != (*theirs, state.done_epoch) or more != also:
            return f"{urn!r} is {expected}, the fold says {state}"
    return ""
