"""Joins the content of all branches of a dataset, from file footers and the ledgers of targets.

A sequence publishes its files first, then commits at one target after the other, all or nothing. So if a ledger has an
epoch, all branches that are committed earlier have it as well. An epoch that only some branches have belongs to an
interrupted sequence. If only files have it, they are set aside, and the next run reads the records again.

A committed target cannot be rolled back. If a target has the epoch and other branches lack it, the rebuild reports a
problem. An operator then restores the target, or accepts that the other branches lack the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from distcommit.app.auditing.files.read_published_files import PublishedFile, PublishedFolder, may_lack, read_published
from distcommit.app.auditing.offsets.branch_coverage import Coverage
from distcommit.app.auditing.offsets.read_progress import Continuation, EpochFiles
from distcommit.app.auditing.target_ledgers import Ledgers
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.records.log_records import DatasetState
from distcommit.core.records.sealed_sequences import SealedSequence
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import SkippedRange
from distcommit.sinks.files.offset_sets import OffsetSets, offsets_of, parsed
from distcommit.stores.folders.tombstones import ReplacedRecords
from distcommit.stores.state.job_store import JobStore


@dataclass(slots=True)
class JoinedRecords:
    """The records of one incarnation in all branches.

    Attributes:
        covered: offsets with a known outcome in each branch, and holes.
        half: offsets with a known outcome in some branches only.
        holes: offsets without a source record.
        missing: offsets of `half` that a branch lacks, by branch; only branches that lack some.
    """

    covered: OffsetSets
    half: OffsetSets
    holes: OffsetSets
    missing: dict[str, OffsetSets] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Branches:
    """The content of all branches of a dataset.

    Attributes:
        files: published files. A rebuild uses only files of epochs that the store does not record as done.
        rows: ledger rows of the branches that commit at a target.
        replaced: input records whose output was replaced.
    """

    files: Sequence[PublishedFile]
    rows: Sequence[LedgerRow]
    replaced: Sequence[ReplacedRecords] = ()

    @property
    def ledger_epoch(self) -> int:
        """The newest epoch in a ledger; 0 without ledgers."""
        return max((row.epoch for row in self.rows), default=0)

    @property
    def newest_epoch(self) -> int:
        """The newest epoch in files and ledgers; 0 for an empty output."""
        return max(self.ledger_epoch, *(file.footer.epoch for file in self.files), 0)

    def without(self, epoch: int) -> Branches:
        """Return a copy without the files of an epoch."""
        return Branches([file for file in self.files if file.footer.epoch != epoch], self.rows, self.replaced)

    def of(self, epoch: int) -> list[PublishedFile]:
        """Return the files of an epoch with records that were read from the source in that epoch."""
        return [file for file in self.files if file.footer.epoch == epoch and not file.footer.replaces]

    def incarnations(self) -> list[str]:
        """Return the incarnations of the source, oldest first. Incarnations of the same age are sorted by name."""
        newest = {replaced.incarnation: (0, 0) for replaced in self.replaced}
        for file in self.files:
            name = file.footer.incarnation
            read_epoch = max(file.footer.replaces, default=file.footer.epoch)  # of records reprocessed or merged since
            newest[name] = max(newest.get(name, (0, 0)), (read_epoch, 0))
        for row in self.rows:
            for index, part in enumerate(row.covered):
                is_last = index == len(row.covered) - 1
                age = (row.epoch, 0) if is_last else (0, index)
                newest[part.incarnation] = max(newest.get(part.incarnation, (0, 0)), age)
        return sorted(newest, key=lambda name: (newest[name], name))

    def joined(self, incarnation: str) -> JoinedRecords:
        """Return the records of an incarnation.

        Raises:
            CorruptError, UnknownVersionError: if an entry of a ledger can't be read.
        """
        coverage, holes = Coverage(), OffsetSets()
        for file in self.files:
            if file.footer.incarnation == incarnation:
                coverage.add(file.footer, file.offsets)
                holes.update(file.holes)
        for row in self.rows:
            for part in row.covered:
                if part.incarnation == incarnation:
                    coverage.add_rows(row.branch, part, parsed(part.offsets))
                    holes.update(parsed(part.holes))
        for replaced in self.replaced:
            if replaced.incarnation == incarnation:
                coverage.replace(replaced)
        covered, everything = coverage.covered(), OffsetSets()
        known_by_branch = {
            name: branch_coverage.present.union(branch_coverage.not_owed)
            for name, branch_coverage in coverage.branches().items()
        }
        for sets in known_by_branch.values():
            everything.update(sets)
        half = everything.difference(covered)
        lacking = {name: half.difference(sets) for name, sets in known_by_branch.items()}
        covered.update(holes)
        return JoinedRecords(covered, half, holes, {name: sets for name, sets in lacking.items() if sets.count()})


def folders_of(store: JobStore, ledgers: Ledgers) -> Iterator[PublishedFolder]:
    """Yield the published files of each dataset, including datasets that only targets have."""
    visited: set[str] = set()
    for folder in read_published(store.fs, store.roots.output):
        visited.add(folder.name)
        yield folder
    for name in ledgers.folders():
        if name not in visited:
            yield PublishedFolder(name, store.roots.output)


def partial_sequence(branches: Branches, state: DatasetState, clean_epoch: int, store: JobStore) -> list[PublishedFile]:
    """Return the files of the newest epoch if its sequence is incomplete; otherwise an empty list.

    The sequence is incomplete if no target has the epoch, and one of these applies: a branch lacks records of it, there
    is a gap before or in its offsets, or some of its files may be missing. Epochs up to `clean_epoch` are complete.
    """
    epoch = branches.newest_epoch
    newest = branches.of(epoch)
    if not newest or epoch <= max(branches.ledger_epoch, clean_epoch):
        return []
    sequence = state.sequence if state.sequence is not None and state.sequence.epoch == epoch else None
    if may_lack(newest, sequence, store):
        return newest
    before, after = branches.without(epoch), Continuation(state)
    _move(after, before, state)
    for incarnation in sorted({file.footer.incarnation for file in newest}):
        joined, epoch_offsets = branches.joined(incarnation), OffsetSets()
        for file in newest:
            epoch_offsets.update(file.named)
        gained = joined.covered.difference(before.joined(incarnation).covered)
        if epoch_offsets.intersection(joined.half).count() or not after.joins(EpochFiles(epoch, incarnation, gained)):
            return newest
    return []


def continued(branches: Branches, state: DatasetState) -> tuple[Continuation, list[str]]:
    """Return the read progress if a record counts as published once any branch has it, and descriptions of the records
    that other branches lack. The progress records them as skipped.
    """
    after = Continuation(state)
    return after, _move(after, branches, state)


def _move(after: Continuation, branches: Branches, state: DatasetState) -> list[str]:
    problems, epoch = list[str](), max(branches.newest_epoch, state.done_epoch)
    for incarnation in branches.incarnations():
        joined = branches.joined(incarnation)
        is_current = state.watermark is not None and state.watermark.incarnation in ("", incarnation)
        half = _newer(joined, state.watermark if is_current else None)
        reason = f"not in branch {', '.join(sorted(joined.missing))} (rebuild, epoch {epoch})"
        ranges = [(partition, *bounds) for partition in half.partitions() for bounds in half.ranges(partition)]
        skipped = [SkippedRange(*bounds, reason, incarnation=incarnation) for bounds in ranges]
        problems += [f"partition {name}: offsets {low} to {high} are {reason}" for name, low, high in ranges]
        covered, sequence = joined.covered.union(half), state.sequence
        if sequence is not None and sequence.epoch <= epoch and incarnation in ("", _incarnation_of(sequence)):
            covered.update(offsets_of(sequence.skipped))
            skipped += sequence.skipped
        after.move(EpochFiles(epoch, incarnation, covered, skipped=tuple(skipped)))
    return problems


def _incarnation_of(sequence: SealedSequence) -> str:
    return sequence.high.incarnation if sequence.high else ""


def _newer(joined: JoinedRecords, watermark: Watermark | None) -> OffsetSets:
    """Return the records that only some branches have, at or after the watermark and the first record that all branches
    have. Earlier differences are not a problem: files may have been deleted, or a branch added later.
    """
    positions = dict(watermark.positions) if watermark else {}
    newer = OffsetSets()
    for partition in joined.half.partitions():
        first = next(joined.covered.ranges(partition), (0, 0))[0]
        at = positions.get(partition, 0)
        for low, high in joined.half.ranges(partition):
            newer.add_range(partition, max(low, first, at if isinstance(at, int) else 0), high)
    return newer
