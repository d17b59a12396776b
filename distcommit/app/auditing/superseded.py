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
from distcommit.app.auditing.published import PublishedFile, PublishedFolder
from distcommit.sinks.files.offsets import OffsetSets, parsed
from distcommit.stores.folders.tombstones import ReplacedRecords


@dataclass(slots=True)
class Replaced:
    """The reprocessed and replaced records of a dataset, by its files.

    Attributes: appended: the files with records that were read from the source. whole: by epoch, the files of
    replacements that are done. aside: paths of files, tombstones included, of one that may not be. newest_epoch: of all
    that is published; 0 if nothing was replaced. taken: input records that publishers which replace have replaced.
    taken_epoch: of the replacement that names them; 0 if there is none.
    """

    appended: list[PublishedFile] = field(default_factory=list)
    whole: dict[int, list[PublishedFile]] = field(default_factory=dict)
    aside: list[str] = field(default_factory=list)
    newest_epoch: int = 0
    taken: list[ReplacedRecords] = field(default_factory=list)
    taken_epoch: int = 0

    def mended(self) -> Mapping[str, OffsetSets]:
        """Return by incarnation the reprocessed input records whose end is known in each branch, with the holes that
        superseded files named, and the replaced ones."""
        found = self.fed_again(0)
        for incarnation, taken in self.taken_by_incarnation().items():  # these and the older files', in any order
            older = [file for file in self.appended if file.footer.epoch <= self.taken_epoch]
            files = ((file.footer, file.offsets) for file in older if file.footer.incarnation == incarnation)
            known = taken.union(covered_by(files))
            for file in older:
                known.update(file.holes)
            found[incarnation] = found.get(incarnation, OffsetSets()).union(known)
        return found

    def fed_again(self, done_epoch: int) -> dict[str, OffsetSets]:
        """Return those that were reprocessed in epochs after that one."""
        kept = [file for files in self.whole.values() for file in files]
        found: dict[str, OffsetSets] = {}
        for incarnation in {file.footer.incarnation for file in kept}:
            everything = [file for file in (*self.appended, *kept) if file.footer.incarnation == incarnation]
            mine = [file for file in kept if file.footer.incarnation == incarnation and file.footer.epoch > done_epoch]
            known = covered_by((file.footer, file.offsets) for file in everything)
            found[incarnation] = known.intersection(_fed(mine))
            for file in mine:
                found[incarnation].update(file.holes)
        return found

    def taken_by_incarnation(self) -> dict[str, OffsetSets]:
        """Return the replaced input records, in the order of their incarnations."""
        found: dict[str, OffsetSets] = {}
        for each in self.taken:
            sets = found.setdefault(each.incarnation, OffsetSets())
            for text in each.offsets.values():
                sets.update(parsed(text))
        return found


def replaced_in(folder: PublishedFolder, done_epoch: int, clean_epoch: int) -> Replaced:
    """Classify a dataset's files.

    Args:
        folder: what is published.
        done_epoch: the newest epoch that is known to be done.
        clean_epoch: the newest one that a run says to have left nothing open.
    """
    replaced = Replaced([file for file in folder.files if not file.footer.replaces])
    again = [file for file in folder.files if file.footer.replaces]
    stones = folder.tombstones.values()
    epochs = sorted({*(file.footer.epoch for file in again), *(s.epoch for s in stones if not s.is_replacement)})
    takes = {file.footer.epoch for file in replaced.appended if file.footer.publish}
    takes |= {stone.epoch for stone in stones if stone.is_replacement}
    if not (epochs or takes):
        return replaced
    newest = replaced.newest_epoch = max(*epochs, *takes, *(file.footer.epoch for file in replaced.appended), 0)
    whole = newest
    if newest in takes and newest > max(done_epoch, clean_epoch) and not _has_taken(folder, newest):
        replaced.aside += [file.path for file in replaced.appended if file.footer.epoch == newest]
        replaced.aside += [path for path, stone in folder.tombstones.items() if stone.epoch == newest]
        replaced.appended = [file for file in replaced.appended if file.footer.epoch != newest]
        whole = newest - 1
    replaced.taken = folder.replaced(whole)
    replaced.taken_epoch = max(
        (stone.epoch for stone in stones if stone.is_replacement and stone.epoch <= whole), default=0
    )
    for epoch in epochs:
        mine = [file for file in again if file.footer.epoch == epoch]
        if epoch < newest or epoch <= max(done_epoch, clean_epoch) or _was_done(folder, epoch, mine):
            replaced.whole[epoch] = mine
        else:
            replaced.aside += [file.path for file in mine]
            replaced.aside += [path for path, stone in folder.tombstones.items() if stone.epoch == epoch]
    return replaced


def _has_taken(folder: PublishedFolder, epoch: int) -> bool:
    """Return whether everything is published of a sequence of a publisher that replaces."""
    there = {folder.below_output(path) for path in (*(file.path for file in folder.files), *folder.tombstones)}
    stones = [stone for stone in folder.tombstones.values() if stone.epoch == epoch and stone.is_replacement]
    return bool(stones) and all(there.issuperset(stone.published) for stone in stones)


def _was_done(folder: PublishedFolder, epoch: int, mine: Iterable[PublishedFile]) -> bool:
    """Return whether a file that it superseded is deleted."""
    there = {folder.below_output(file.path) for file in folder.files}
    stones = [stone for stone in folder.tombstones.values() if stone.epoch == epoch]
    if any(retired.path not in there for stone in stones for retired in stone.files):
        return True
    named = {(stone.work_unit_id, stone.attempt) for stone in stones}
    by_attempt: dict[tuple[str, str], list[PublishedFile]] = {}
    for file in mine:
        by_attempt.setdefault((file.footer.work_unit_id, file.footer.attempt), []).append(file)
    return any(not _still_there(folder, files) for attempt, files in by_attempt.items() if attempt not in named)


def _still_there(folder: PublishedFolder, files: list[PublishedFile]) -> bool:
    """Return whether the records that these files of one attempt were made of are still in their error files."""
    came_from = {epoch for file in files for epoch in file.footer.replaces}
    not_retired_before = folder.live(files[0].footer.epoch - 1)
    for branch in {file.footer.branch for file in files}:
        errors = [
            file
            for file in not_retired_before
            if file.footer.kind == "rejected"
            and file.footer.epoch in came_from
            and (file.footer.branch in (branch, "") or not branch)
        ]
        before, fed = OffsetSets(), OffsetSets()
        for file in errors:
            before.update(file.offsets)
        for file in files:
            if file.footer.branch == branch:
                fed.update(file.offsets)
        if not errors or fed.difference(before).count():
            return False
    return True


def _fed(files: Iterable[PublishedFile]) -> OffsetSets:
    found = OffsetSets()
    for file in files:
        found.update(file.named)
    return found
