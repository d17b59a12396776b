"""The content of all branches of a dataset, from the footers of files and the ledgers of targets.

A sequence executes its files first, and then one target after the other. A target takes a sequence whole. So an epoch
in a ledger is complete in all branches before it, and an epoch that only some branches have is of an interrupted
sequence. If only files have it, they are set aside, and the next run reads the records again. If a target has it, it
can't be taken back without what was prepared. This is reported: an operator restores the target, or accepts that the
other branches lack it. (A watermark below a target's would commit the records twice, if the target did not refuse
them.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from distcommit.app.auditing.continued import Continued, EpochFiles
from distcommit.app.auditing.coverage import Coverage
from distcommit.app.auditing.ledgers import Ledgers
from distcommit.app.auditing.published import PublishedFile, PublishedFolder, may_lack, read_published
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.records.log_records import DatasetState, SealedSequence
from distcommit.core.watermark import Watermark
from distcommit.core.work import SkippedRange
from distcommit.sinks.files.offsets import OffsetSets, offsets_of, parsed
from distcommit.stores.folders.tombstones import ReplacedRecords
from distcommit.stores.state.job_store import JobStore


@dataclass(slots=True)
class Joined:
    """The records of one incarnation in all branches: those whose end is known in each branch, with the holes, and
    those that only some branches have."""

    covered: OffsetSets
    half: OffsetSets
    holes: OffsetSets
    lacking: dict[str, OffsetSets] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Branches:
    """A dataset's files of epochs that are not known as done, its ledger rows, and its replaced records."""

    files: Sequence[PublishedFile]
    rows: Sequence[LedgerRow]
    replaced: Sequence[ReplacedRecords] = ()

    @property
    def ledger_epoch(self) -> int:
        """The newest epoch at a target."""
        return max((row.epoch for row in self.rows), default=0)

    @property
    def newest_epoch(self) -> int:
        """The newest epoch of all; 0 if there is none."""
        return max(self.ledger_epoch, *(file.footer.epoch for file in self.files), 0)

    def without(self, epoch: int) -> Branches:
        """Return the branches without the files of an epoch."""
        return Branches([file for file in self.files if file.footer.epoch != epoch], self.rows, self.replaced)

    def of(self, epoch: int) -> list[PublishedFile]:
        """Return the files of an epoch that have records which were read from the source then."""
        return [file for file in self.files if file.footer.epoch == epoch and not file.footer.replaces]

    def incarnations(self) -> list[str]:
        """The incarnations of positions, the current one last; those of the same age by their names."""
        newest = {each.incarnation: (0, 0) for each in self.replaced}
        for file in self.files:
            name = file.footer.incarnation
            newest[name] = max(newest.get(name, (0, 0)), (file.footer.epoch, 0))
        for row in self.rows:
            for index, part in enumerate(row.covered):
                is_last = index == len(row.covered) - 1
                age = (row.epoch, 0) if is_last else (0, index)
                newest[part.incarnation] = max(newest.get(part.incarnation, (0, 0)), age)
        return sorted(newest, key=lambda name: (newest[name], name))

    def joined(self, incarnation: str) -> Joined:
        """Return the records of an incarnation. Raises CorruptError, UnknownVersionError if a ledger's entry can't be
        read."""
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
        for each in self.replaced:
            if each.incarnation == incarnation:
                coverage.replace(each)
        covered, everything = coverage.covered(), OffsetSets()
        known = {name: found.there.union(found.not_owed) for name, found in coverage.branches().items()}
        for sets in known.values():
            everything.update(sets)
        half = everything.difference(covered)
        lacking = {name: half.difference(sets) for name, sets in known.items()}
        covered.update(holes)
        return Joined(covered, half, holes, {name: sets for name, sets in lacking.items() if sets.count()})


def folders_of(store: JobStore, ledgers: Ledgers) -> Iterator[PublishedFolder]:
    """Yield what is published of each dataset, also of those that are only at targets."""
    seen: set[str] = set()
    for folder in read_published(store.fs, store.roots.output):
        seen.add(folder.name)
        yield folder
    for name in ledgers.folders():
        if name not in seen:
            yield PublishedFolder(name, store.roots.output)


def half_way(branches: Branches, state: DatasetState, clean_epoch: int, store: JobStore) -> list[PublishedFile]:
    """Return the files of the newest epoch if no target has it, and it is not in all branches, or does not continue
    without a gap from the other files, or may lack files. Epochs up to `clean_epoch` are complete."""
    epoch = branches.newest_epoch
    newest = branches.of(epoch)
    if not newest or epoch <= max(branches.ledger_epoch, clean_epoch):
        return []
    known = state.sequence if state.sequence is not None and state.sequence.epoch == epoch else None
    if may_lack(newest, known, store):
        return newest
    before, after = branches.without(epoch), Continued(state)
    _move(after, before, state)
    for incarnation in sorted({file.footer.incarnation for file in newest}):
        whole, mine = branches.joined(incarnation), OffsetSets()
        for file in newest:
            mine.update(file.named)
        gained = whole.covered.difference(before.joined(incarnation).covered)
        if mine.intersection(whole.half).count() or not after.joins(EpochFiles(epoch, incarnation, gained)):
            return newest
    return []


def continued(branches: Branches, state: DatasetState) -> tuple[Continued, list[str]]:
    """Return the dataset's state when all records of any branch count, and describe what the other branches lack of
    them, which is recorded as skipped."""
    after = Continued(state)
    return after, _move(after, branches, state)


def _move(after: Continued, branches: Branches, state: DatasetState) -> list[str]:
    said, epoch = list[str](), max(branches.newest_epoch, state.done_epoch)
    for incarnation in branches.incarnations():
        found = branches.joined(incarnation)
        here = state.watermark is not None and state.watermark.incarnation in ("", incarnation)
        half = _newer(found, state.watermark if here else None)
        reason = f"not in branch {', '.join(sorted(found.lacking))} (rebuild, epoch {epoch})"
        ranges = [(partition, *each) for partition in half.partitions() for each in half.ranges(partition)]
        skipped = [SkippedRange(*each, reason, incarnation=incarnation) for each in ranges]
        said += [f"partition {name}: offsets {low} to {high} are {reason}" for name, low, high in ranges]
        covered, known = found.covered.union(half), state.sequence
        if known is not None and known.epoch <= epoch and incarnation in ("", _incarnation_of(known)):
            covered.update(offsets_of(known.skipped))
            skipped += known.skipped
        after.move(EpochFiles(epoch, incarnation, covered, skipped=tuple(skipped)))
    return said


def _incarnation_of(sequence: SealedSequence) -> str:
    return sequence.high.incarnation if sequence.high else ""


def _newer(found: Joined, watermark: Watermark | None) -> OffsetSets:
    """Return the records that only some branches have, from the watermark and from the beginnings of the other branches
    on. Older files may have been deleted, or a branch added."""
    known = dict(watermark.positions) if watermark else {}
    newer = OffsetSets()
    for partition in found.half.partitions():
        first = next(found.covered.ranges(partition), (0, 0))[0]
        at = known.get(partition, 0)
        for low, high in found.half.ranges(partition):
            newer.add_range(partition, max(low, first, at if isinstance(at, int) else 0), high)
    return newer
