"""Classifies files with reprocessed, compacted or replaced records for a rebuild: they do not show how far a dataset
was read, but their records are not gaps. Compacted files are treated as reprocessed ones, whose records came from data
files.

An epoch of reprocessed records is complete if a newer epoch is published, or if its run recorded a clean end. It is
also complete if a superseded file is deleted, because runs delete these files after DONE, and the tombstone last. A
deletion shows in two ways: a file that the tombstone names is missing, or there is no tombstone and no error file (for
compacted records: no data file) has the records. If nothing was deleted, the files and the tombstone are set aside, and
the superseded files are live again.

A compaction's tombstone counts only if its merged file is published, or was itself superseded. Otherwise the tombstone
is set aside, whatever else its epoch shows: the compacted files have the only copy of their records. A merged file
without its tombstone is set aside while an older live file has any of its records. If another compacted file was
deleted by accident, its records are a gap.

With a publisher that replaces, the newest epoch is complete if its tombstone and all files that it names exist.
Otherwise it is set aside, and the files that it was to replace are live again. The records of replaced files were
published, even if the files are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as with_values

from distcommit.app.auditing.files.read_published_files import PublishedFile, PublishedFolder
from distcommit.app.auditing.offsets.branch_coverage import covered_by
from distcommit.sinks.files.offset_sets import OffsetSets, parsed
from distcommit.stores.folders.tombstones import ReplacedRecords


@dataclass(slots=True)
class ReplacedFiles:
    """A dataset's files by the origin of their records, and its replaced records.

    Attributes:
        appended: files with records that were read from the source.
        complete: reprocessed files by epoch, of epochs that are complete.
        aside: paths of the files and tombstones of an epoch that may be incomplete.
        undone: merged files without a tombstone that are set aside. Another file with some of their records may be
            missing.
        newest_epoch: newest published epoch; 0 if nothing was reprocessed or replaced.
        records: input records whose output was replaced.
        taken_epoch: epoch of the newest complete replacement; 0 without one.
    """

    appended: list[PublishedFile] = field(default_factory=list)
    complete: dict[int, list[PublishedFile]] = field(default_factory=dict)
    aside: list[str] = field(default_factory=list)
    undone: list[PublishedFile] = field(default_factory=list)
    newest_epoch: int = 0
    records: list[ReplacedRecords] = field(default_factory=list)
    taken_epoch: int = 0

    def reprocessed_offsets(self) -> Mapping[str, OffsetSets]:
        """Return by incarnation: offsets that were reprocessed and have a known outcome in each branch, replaced
        offsets, and offsets that files up to the newest complete replacement cover or name as holes.
        """
        lost = self.lost_offsets(0)
        for incarnation, records in self.records_by_incarnation().items():  # these and the older files', in any order
            older = [file for file in self.appended if file.footer.epoch <= self.taken_epoch]
            files = ((file.footer, file.offsets) for file in older if file.footer.incarnation == incarnation)
            covered = records.union(covered_by(files))
            for file in older:
                covered.update(file.holes)
            lost[incarnation] = lost.get(incarnation, OffsetSets()).union(covered)
        return lost

    def lost_offsets(self, done_epoch: int) -> dict[str, OffsetSets]:
        """Return, by incarnation, the offsets that were reprocessed in epochs after `done_epoch` and have a known
        outcome in each branch, and the holes that the reprocessed files name.
        """
        all_files = [file for files in self.complete.values() for file in files]
        lost_offsets: dict[str, OffsetSets] = {}
        for incarnation in {file.footer.incarnation for file in all_files}:
            everything = [file for file in (*self.appended, *all_files) if file.footer.incarnation == incarnation]
            incarnation_files = [
                file for file in all_files if file.footer.incarnation == incarnation and file.footer.epoch > done_epoch
            ]
            published_offsets = covered_by((file.footer, file.offsets) for file in everything)
            lost_offsets[incarnation] = published_offsets.intersection(_reprocessed(incarnation_files))
            for file in incarnation_files:
                lost_offsets[incarnation].update(file.holes)
        return lost_offsets

    def with_undone(self, offsets: Mapping[str, OffsetSets]) -> dict[str, OffsetSets]:
        """Return `offsets`, by incarnation, joined with the offsets of undone merged files."""
        joined = dict(offsets)
        for file in self.undone:
            name = file.footer.incarnation
            joined[name] = joined.get(name, OffsetSets()).union(file.offsets)
        return joined

    def records_by_incarnation(self) -> dict[str, OffsetSets]:
        """Return the replaced input records by incarnation, the oldest first."""
        by_incarnation: dict[str, OffsetSets] = {}
        for replaced in self.records:
            sets = by_incarnation.setdefault(replaced.incarnation, OffsetSets())
            for text in replaced.offsets.values():
                sets.update(parsed(text))
        return by_incarnation


def replaced_in(folder: PublishedFolder, done_epoch: int, clean_epoch: int) -> ReplacedFiles:
    """Classify a dataset's files.

    Args:
        done_epoch: newest epoch that is known to be done.
        clean_epoch: newest epoch whose run recorded that it left no open sequence.
    """
    replaced = ReplacedFiles([file for file in folder.files if not file.footer.replaces])
    reprocessed = [file for file in folder.files if file.footer.replaces]
    newest_stone = max((stone.epoch for stone in folder.tombstones.values()), default=0)
    replaced.aside += _unpublished_compactions(folder)
    kept = {path: stone for path, stone in folder.tombstones.items() if path not in replaced.aside}
    folder = with_values(folder, tombstones=kept)
    stones = folder.tombstones.values()
    epochs = sorted({*(file.footer.epoch for file in reprocessed), *(s.epoch for s in stones if not s.is_replacement)})
    takes = {file.footer.epoch for file in replaced.appended if file.footer.publish}
    takes |= {stone.epoch for stone in stones if stone.is_replacement}
    if not (epochs or takes or newest_stone):
        return replaced
    appended_epochs = (file.footer.epoch for file in replaced.appended)
    newest = replaced.newest_epoch = max(*epochs, *takes, *appended_epochs, newest_stone)
    newest_complete = newest
    if newest in takes and newest > max(done_epoch, clean_epoch) and not _is_replacement_complete(folder, newest):
        replaced.aside += [file.path for file in replaced.appended if file.footer.epoch == newest]
        replaced.aside += [path for path, stone in folder.tombstones.items() if stone.epoch == newest]
        replaced.appended = [file for file in replaced.appended if file.footer.epoch != newest]
        newest_complete = newest - 1
    replaced.records = folder.replaced(newest_complete)
    replaced.taken_epoch = max(
        (stone.epoch for stone in stones if stone.is_replacement and stone.epoch <= newest_complete), default=0
    )
    for epoch in epochs:
        epoch_files = [file for file in reprocessed if file.footer.epoch == epoch]
        if epoch < newest or epoch <= max(done_epoch, clean_epoch):
            replaced.complete[epoch] = epoch_files
        elif _is_reprocessing_complete(folder, epoch, epoch_files):
            undone = _undone_compactions(folder, epoch_files)
            replaced.aside += [file.path for file in undone]
            replaced.undone += undone
            if len(undone) < len(epoch_files) or not undone:
                replaced.complete[epoch] = [file for file in epoch_files if file not in undone]
        else:
            replaced.aside += [file.path for file in epoch_files]
            replaced.aside += [path for path, stone in folder.tombstones.items() if stone.epoch == epoch]
    return replaced


def _unpublished_compactions(folder: PublishedFolder) -> list[str]:
    """Return the tombstones of compactions whose merged file is neither published nor superseded by a newer tombstone
    that counts.
    """
    existing_paths = {folder.below_output(file.path) for file in folder.files}
    unpublished: list[str] = []
    for path, stone in sorted(folder.tombstones.items(), key=lambda item: item[1].epoch, reverse=True):
        if stone.publish == "compact" and not existing_paths.issuperset(stone.published):
            unpublished.append(path)
        else:
            existing_paths.update(file.path for file in stone.files)
    return unpublished


def _is_replacement_complete(folder: PublishedFolder, epoch: int) -> bool:
    existing_paths = {folder.below_output(path) for path in (*(file.path for file in folder.files), *folder.tombstones)}
    stones = [stone for stone in folder.tombstones.values() if stone.epoch == epoch and stone.is_replacement]
    return bool(stones) and all(existing_paths.issuperset(stone.published) for stone in stones)


def _is_reprocessing_complete(folder: PublishedFolder, epoch: int, epoch_files: Iterable[PublishedFile]) -> bool:
    existing_paths = {folder.below_output(file.path) for file in folder.files}
    stones = [stone for stone in folder.tombstones.values() if stone.epoch == epoch]
    if any(superseded.path not in existing_paths for stone in stones for superseded in stone.files):
        return True
    named = {(stone.work_unit_id, stone.attempt) for stone in stones}
    by_attempt: dict[tuple[str, str], list[PublishedFile]] = {}
    for file in epoch_files:
        by_attempt.setdefault((file.footer.work_unit_id, file.footer.attempt), []).append(file)
    return any(not _are_records_present(folder, files) for attempt, files in by_attempt.items() if attempt not in named)


def _undone_compactions(folder: PublishedFolder, epoch_files: Iterable[PublishedFile]) -> list[PublishedFile]:
    """Return the merged files that have no tombstone and share a record with an older live file. A run deletes all
    compacted files before the tombstone, so these compactions are not done, even if another compacted file is missing.
    """
    named = {(stone.epoch, stone.work_unit_id, stone.attempt) for stone in folder.tombstones.values()}
    undone: list[PublishedFile] = []
    for file in epoch_files:
        merged = file.footer
        if merged.publish != "compact" or (merged.epoch, merged.work_unit_id, merged.attempt) in named:
            continue
        origins = [
            older
            for older in folder.live_files(merged.epoch - 1)
            if older.footer.kind == "data"
            and older.footer.epoch in merged.replaces
            and (older.footer.branch, older.footer.incarnation) == (merged.branch, merged.incarnation)
        ]
        if any(older.offsets.intersection(file.offsets).count() for older in origins):
            undone.append(file)
    return undone


def _are_records_present(folder: PublishedFolder, files: list[PublishedFile]) -> bool:
    """Return whether the input records of these files, all of one attempt, are still in the files that they came from:
    in error files, or in data files if they were compacted.
    """
    came_from = {epoch for file in files for epoch in file.footer.replaces}
    live_before = folder.live_files(files[0].footer.epoch - 1)
    kind = "data" if files[0].footer.publish == "compact" else "rejected"
    for branch in {file.footer.branch for file in files}:
        origins = [
            file
            for file in live_before
            if file.footer.kind == kind
            and file.footer.epoch in came_from
            and (file.footer.branch in (branch, "") or not branch)
        ]
        before, reprocessed = OffsetSets(), OffsetSets()
        for file in origins:
            before.update(file.offsets)
        for file in files:
            if file.footer.branch == branch:
                reprocessed.update(file.offsets)
        if not origins or reprocessed.difference(before).count():
            return False
    return True


def _reprocessed(files: Iterable[PublishedFile]) -> OffsetSets:
    offsets = OffsetSets()
    for file in files:
        offsets.update(file.named)
    return offsets
