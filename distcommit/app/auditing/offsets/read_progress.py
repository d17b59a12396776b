"""Derives how far a dataset was read from its published files, epoch by epoch.

Each incarnation of a source (the id of a recreated Kafka topic) has its own positions. The newest epoch names the
incarnation of the watermark, because a run publishes another incarnation only after an operator has set the watermark
for it. Files without an incarnation belong to the incarnation of the files before them. Stored positions without one
belong to the first incarnation that a file names. If that incarnation's files begin before the stored positions, the
source was recreated, and the positions belong to an older incarnation.

Holes that a footer or a stored sequence names count as covered, like published offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from distcommit.core.records.log_records import DatasetState
from distcommit.core.records.previous_run import PreviousRun
from distcommit.core.records.sealed_sequences import TargetEpochs
from distcommit.core.watermark import Position, Watermark
from distcommit.core.work_units import SkippedRange
from distcommit.protocol.audit_expected_positions import earlier_readings_after, reach_after_start
from distcommit.sinks.files.offset_sets import OffsetSets


@dataclass(frozen=True, slots=True)
class EpochFiles:
    """The files of one dataset and epoch.

    Attributes:
        epoch: epoch that published the files.
        incarnation: incarnation of the source to which `covered` and `named` belong.
        covered: offsets that need not be read again.
        paths: paths of the files; empty if the offsets come from ledgers.
        skipped: ranges that the sequence of these files skips, if the store knows the sequence.
        named: offsets that the files mention in any branch.
        may_lack: whether files may be missing without a gap in the offsets.
    """

    epoch: int
    incarnation: str
    covered: OffsetSets
    paths: tuple[str, ...] = ()
    skipped: tuple[SkippedRange, ...] = ()
    named: OffsetSets = field(default_factory=OffsetSets)
    may_lack: bool = False


@dataclass(slots=True)
class _Reach:
    """The first and the last position that was read, by partition of one incarnation."""

    positions: dict[str, Position] = field(default_factory=dict)
    origin: dict[str, Position] = field(default_factory=dict)
    gaps: list[SkippedRange] = field(default_factory=list)

    def begin(self, partitions: Iterable[str]) -> None:
        """Set unknown positions of these partitions to 0."""
        self.begin_at(dict.fromkeys(partitions, 0))

    def begin_at(self, first: Mapping[str, int]) -> None:
        """Set unknown positions of partitions to those in `first`."""
        for partition, at in first.items():
            if partition not in self.positions:
                self.positions[partition] = self.origin[partition] = at

    def forget_uncounted(self) -> None:
        """Delete positions that are not offsets, such as file names: footers do not contain newer ones."""
        self.positions = {partition: at for partition, at in self.positions.items() if isinstance(at, int)}


class Continuation:
    """Read progress of a dataset. It begins at the stored state, and the caller adds the files of later epochs, oldest
    first.
    """

    def __init__(
        self,
        state: DatasetState,
        mended: Mapping[str, OffsetSets] | None = None,
        first: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        """Begin at a stored state.

        Args:
            mended: by incarnation, offsets whose files were deleted and that a later epoch has published again.
            first: by incarnation and partition, the first position if no older one is known.
        """
        self._mended, self._first, self._read_epoch = mended or {}, first or {}, state.done_epoch
        self.incarnation = state.watermark.incarnation if state.watermark else ""
        positions = dict(state.watermark.positions) if state.watermark else {}
        self._reached = {self.incarnation: _Reach(positions, dict(state.origin) if state.watermark else {})}
        self._skipped, self.done_epoch = list(state.skipped), state.done_epoch

    @property
    def watermark(self) -> Watermark | None:
        """The watermark in the newest incarnation; None if no record is proven to be published."""
        positions = self._reach.positions
        return Watermark(positions, self.incarnation) if positions or self.incarnation else None

    @property
    def earlier(self) -> list[str]:
        """Incarnations before the newest one."""
        return sorted(name for name in self._reached if name not in ("", self.incarnation))

    @property
    def origin(self) -> dict[str, Position]:
        """The first position of each partition of the newest incarnation."""
        return self._reach.origin

    @property
    def gaps(self) -> list[SkippedRange]:
        """Offset ranges between published files that no file covers."""
        return self._reach.gaps

    @property
    def skipped(self) -> tuple[SkippedRange, ...]:
        """The ranges to record as skipped, including gaps."""
        return (*self._skipped, *self.gaps)

    def state_after(self, before: DatasetState, replacement: int, targets: TargetEpochs) -> DatasetState:
        """Return the rebuilt state of the dataset."""
        origin, skipped, forgotten = self.origin, self.skipped, before.unset_watermark
        if before.watermark is None and forgotten is not None:
            if self.watermark is None:
                origin = dict(before.origin)
            else:
                newer = skipped[len(before.skipped) :]
                origin, skipped = reach_after_start(before, origin, self.incarnation, newer)
                forgotten = None
        return DatasetState(
            before.dataset_urn,
            watermark=self.watermark,
            done_epoch=self.done_epoch,
            origin=origin,
            skipped=skipped,
            accepted_epochs=before.accepted_epochs,
            schemas=before.schemas,
            targets=targets,
            unset_watermark=forgotten,
            replacement=max(before.replacement, replacement),
            earlier_readings=earlier_readings_after(before, self.watermark),
            previous_run=self._previous_run(before),
        )

    def _previous_run(self, before: DatasetState) -> PreviousRun | None:
        """Return the run of the sealed sequence if the sequence is published, otherwise the stored previous run."""
        sequence = before.sequence
        is_published = sequence is not None and sequence.epoch <= self.done_epoch
        return (sequence.run if sequence is not None and is_published else None) or before.previous_run

    def joins(self, files: EpochFiles) -> bool:
        """Return whether the files continue the known range of each partition without a gap. Return False if files may
        be missing, or if they name records with an unknown outcome in a branch.
        """
        if files.may_lack or files.named.difference(files.covered).count():
            return False
        positions = self._turned(files)[1].positions
        return all(
            positions.get(partition, 0) == ranges[0][0] and len(ranges) == 1
            for partition in files.covered.partitions()
            for ranges in [list(files.covered.ranges(partition))]
        )

    def leave(self, files: EpochFiles) -> None:
        """Treat the files as not published. A partition that only these files have gets position 0, so that the next
        run reads its records again or reports them as lost.
        """
        reach = self._turn(files)
        reach.begin(files.covered.partitions())
        reach.begin(files.named.partitions())

    def move(self, files: EpochFiles) -> None:
        """Treat an epoch as completely published."""
        reach = self._turn(files)
        for partition in files.covered.partitions():
            for low, high in files.covered.ranges(partition):
                at = reach.positions.get(partition)
                reach.origin.setdefault(partition, low)
                if isinstance(at, int) and at < low:
                    reason = f"no file has them (rebuild, epoch {files.epoch})"
                    for first, end in self._missing(partition, at, low):
                        reach.gaps.append(SkippedRange(partition, first, end, reason, incarnation=self.incarnation))
                reach.positions[partition] = max(high, at) if isinstance(at, int) else high
        if files.covered.partitions():
            reach.forget_uncounted()
        self._skipped += files.skipped
        self.done_epoch = files.epoch

    def add_complete_epoch(self, incarnation: str, epoch: int, read_epoch: int = 0) -> None:
        """Treat an epoch that reprocessed records as completely published.

        Args:
            read_epoch: newest epoch that had read these records from the source. Its other files may be missing.
        """
        mended = self._mended.get(incarnation, OffsetSets())
        if incarnation not in self._reached and read_epoch > self._read_epoch:
            self._turn(EpochFiles(read_epoch, incarnation, mended))
        reach = self._reached.get(incarnation, _Reach())
        reach.begin_at(self._first.get(incarnation, {}))
        positions = reach.positions
        for partition in mended.partitions():
            for low, high in mended.ranges(partition):
                at = positions.get(partition)
                if isinstance(at, int) and low <= at < high:  # the last offsets of an older file
                    positions[partition] = high
        self.done_epoch = max(self.done_epoch, epoch)

    def add_reprocessed(self, reprocessed: OffsetSets, state: DatasetState) -> None:
        """Treat reprocessed records as published in partitions without a stored position. Uncovered offsets between the
        known position and these records are gaps.
        """
        existing = state.watermark.positions if state.watermark else {}
        of_new = OffsetSets()
        for partition in reprocessed.partitions():
            for low, high in reprocessed.ranges(partition) if partition not in existing else ():
                of_new.add_range(partition, low, high)
        self.move(EpochFiles(self.done_epoch, self.incarnation, of_new))

    def _missing(self, partition: str, low: int, high: int) -> list[tuple[int, int]]:
        missing = OffsetSets()
        missing.add_range(partition, low, high)
        return [*missing.difference(self._mended.get(self.incarnation, OffsetSets())).ranges(partition)]

    def cover(self, epochs: Iterable[EpochFiles]) -> None:
        """Extend the known range by epochs that may be incomplete, up to the first gap.

        Epochs that may lack files are skipped, and offsets of an older epoch after the end of a newer epoch: the newer
        run began at an earlier stored position, so it did not know them. A partition without a known position begins at
        0.
        """
        offsets_by_incarnation: dict[str, OffsetSets] = {}
        for files in epochs:
            self._turn(files).begin(files.named.partitions())
            if not files.may_lack:
                older = offsets_by_incarnation.get(self.incarnation, OffsetSets())
                offsets_by_incarnation[self.incarnation] = _up_to_end(older, files.covered).union(files.covered)
            self.done_epoch = files.epoch
        reach, newest = self._reach, offsets_by_incarnation.get(self.incarnation, OffsetSets())
        reach.begin(newest.partitions())
        for partition in newest.partitions():
            first = at = reach.positions.get(partition, 0)
            for low, high in newest.ranges(partition):
                if isinstance(at, int) and low <= at:
                    at = max(at, high)
            if at != first:
                reach.origin.setdefault(partition, first)
                reach.positions[partition] = at
                reach.forget_uncounted()

    @property
    def _reach(self) -> _Reach:
        return self._reached[self.incarnation]

    def _turn(self, files: EpochFiles) -> _Reach:
        self.incarnation, reach = self._turned(files)
        self._read_epoch = max(self._read_epoch, files.epoch)
        reach = self._reached.setdefault(self.incarnation, reach)
        reach.begin_at(self._first.get(self.incarnation, {}))
        return reach

    def _turned(self, files: EpochFiles) -> tuple[str, _Reach]:
        """Return the incarnation of the files, and the positions reached in it before the files."""
        reach, named = self._reach, files.incarnation or self.incarnation
        if not self.incarnation and named not in self._reached and not _is_before(files.covered, reach.positions):
            return named, reach
        return named, self._reached.get(named) or _Reach()


def _is_before(offsets: OffsetSets, positions: dict[str, Position]) -> bool:
    return any(
        isinstance(at, int) and next(offsets.ranges(partition), (at, at))[0] < at for partition, at in positions.items()
    )


def _up_to_end(offsets: OffsetSets, newer: OffsetSets) -> OffsetSets:
    """Return the offsets up to the last offset of `newer` in each partition."""
    behind = OffsetSets()
    for partition in newer.partitions():
        behind.add_range(partition, _end(newer, partition), _end(offsets, partition))
    return offsets.difference(behind)


def _end(offsets: OffsetSets, partition: str) -> int:
    return max((high for _, high in offsets.ranges(partition)), default=0)
