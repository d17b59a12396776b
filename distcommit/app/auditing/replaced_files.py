"""Files with reprocessed records in a rebuild: they do not show how far a dataset was read, but their records are not
gaps.

Such an epoch is complete if something newer is published, or if a run says that it left nothing open. Otherwise only a
deletion proves that it was done, since runs delete superseded files only after DONE, and the tombstone last: a file
that a tombstone names is gone, or, without a tombstone, the reprocessed records are in no error file of their epochs.
Without such proof nothing was deleted: its files are set aside with the tombstone, and the error files are live again.

Of a publisher that replaces, the newest epoch is complete if its replacement exists with all files that it names:
superseded files are deleted later. Otherwise it is set aside, and what it was to replace is live again. What
replacements of complete epochs have replaced was published, in files that may be gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from distcommit.app.auditing.coverage import covered_by
from distcommit.app.auditing.published_files import PublishedFile, PublishedFolder
from distcommit.sinks.files.offsets import OffsetSets, parsed
from distcommit.stores.folders.tombstones import ReplacedRecords


@dataclass(slots=True)
class ReplacedFiles:
    """The reprocessed and replaced records of a dataset, by its files.

    Attributes: appended: the files with records that were read from the source. whole: by epoch, the files of
    replacements that are done. aside: paths of files, tombstones included, of one that may not be. newest_epoch: of all
    that is published; 0 if nothing was replaced. taken: input records that publishers which replace have replaced.
    taken_epoch: of the replacement that names them; 0 if there is none.
    """

    appended: list[PublishedFile] = field(default_factory=list)
    complete: dict[int, list[PublishedFile]] = field(default_factory=dict)
    aside: list[str] = field(default_factory=list)
    newest_epoch: int = 0
    records: list[ReplacedRecords] = field(default_factory=list)
    taken_epoch: int = 0

    def reprocessed_offsets(self) -> Mapping[str, OffsetSets]:
        """Return by incarnation the reprocessed input records whose end is known in each branch, with the holes that
        superseded files named, and the replaced ones."""
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
        """Return those that were reprocessed in epochs after that one."""
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

    def records_by_incarnation(self) -> dict[str, OffsetSets]:
        """Return the replaced input records, in the order of their incarnations."""
        by_incarnation: dict[str, OffsetSets] = {}
        for replaced in self.records:
            sets = by_incarnation.setdefault(replaced.incarnation, OffsetSets())
            for text in replaced.offsets.values():
                sets.update(parsed(text))
        return by_incarnation


def replaced_in(folder: PublishedFolder, done_epoch: int, clean_epoch: int) -> ReplacedFiles:
    """Classify a dataset's files.

    Args:
        folder: what is published.
        done_epoch: the newest epoch that is known to be done.
        clean_epoch: the newest one that a run says to have left nothing open.
    """
    replaced = ReplacedFiles([file for file in folder.files if not file.footer.replaces])
    reprocessed = [file for file in folder.files if file.footer.replaces]
    stones = folder.tombstones.values()
    epochs = sorted({*(file.footer.epoch for file in reprocessed), *(s.epoch for s in stones if not s.is_replacement)})
    takes = {file.footer.epoch for file in replaced.appended if file.footer.publish}
    takes |= {stone.epoch for stone in stones if stone.is_replacement}
    if not (epochs or takes):
        return replaced
    newest = replaced.newest_epoch = max(*epochs, *takes, *(file.footer.epoch for file in replaced.appended), 0)
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
        if (
            epoch < newest
            or epoch <= max(done_epoch, clean_epoch)
            or _is_reprocessing_complete(folder, epoch, epoch_files)
        ):
            replaced.complete[epoch] = epoch_files
        else:
            replaced.aside += [file.path for file in epoch_files]
            replaced.aside += [path for path, stone in folder.tombstones.items() if stone.epoch == epoch]
    return replaced


def _is_replacement_complete(folder: PublishedFolder, epoch: int) -> bool:
    """Return whether everything is published of a sequence of a publisher that replaces."""
    existing_paths = {folder.below_output(path) for path in (*(file.path for file in folder.files), *folder.tombstones)}
    stones = [stone for stone in folder.tombstones.values() if stone.epoch == epoch and stone.is_replacement]
    return bool(stones) and all(existing_paths.issuperset(stone.published) for stone in stones)


def _is_reprocessing_complete(folder: PublishedFolder, epoch: int, epoch_files: Iterable[PublishedFile]) -> bool:
    """Return whether a file that it superseded is deleted."""
    existing_paths = {folder.below_output(file.path) for file in folder.files}
    stones = [stone for stone in folder.tombstones.values() if stone.epoch == epoch]
    if any(superseded.path not in existing_paths for stone in stones for superseded in stone.files):
        return True
    named = {(stone.work_unit_id, stone.attempt) for stone in stones}
    by_attempt: dict[tuple[str, str], list[PublishedFile]] = {}
    for file in epoch_files:
        by_attempt.setdefault((file.footer.work_unit_id, file.footer.attempt), []).append(file)
    return any(not _are_records_present(folder, files) for attempt, files in by_attempt.items() if attempt not in named)


def _are_records_present(folder: PublishedFolder, files: list[PublishedFile]) -> bool:
    """Return whether the records that these files of one attempt were made of are still in their error files."""
    came_from = {epoch for file in files for epoch in file.footer.replaces}
    not_retired_before = folder.live_files(files[0].footer.epoch - 1)
    for branch in {file.footer.branch for file in files}:
        errors = [
            file
            for file in not_retired_before
            if file.footer.kind == "rejected"
            and file.footer.epoch in came_from
            and (file.footer.branch in (branch, "") or not branch)
        ]
        before, reprocessed = OffsetSets(), OffsetSets()
        for file in errors:
            before.update(file.offsets)
        for file in files:
            if file.footer.branch == branch:
                reprocessed.update(file.offsets)
        if not errors or reprocessed.difference(before).count():
            return False
    return True


def _reprocessed(files: Iterable[PublishedFile]) -> OffsetSets:
    offsets = OffsetSets()
    for file in files:
        offsets.update(file.named)
    return offsets
