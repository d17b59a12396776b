"""What a rebuild makes of files whose records were fed again: they are no part of how far a dataset was read, but what
they hold is no gap.

Of a dataset, such an epoch is whole if anything newer is published, or if a run that left nothing open says so. Else
only a deletion tells that it was done, since runs delete what is retired, and then the tombstone, after that alone: a
file that a tombstone names is gone, or, where there is no tombstone, the records that were fed are in no error file of
the epochs that they came from. If that does not tell it either, nothing was deleted: then its files are set aside with
the tombstone, and the error files are live again.

Of a publisher that replaces, the newest epoch is whole if its replacement is there with all files that it says were
published with it: what it retires is deleted later than that. Else it is set aside, and what it was to replace is
live again. What replacements of whole epochs have taken the place of was published, in files that may be gone.
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
    """What a dataset's files say of what was fed again.

    Attributes:
        appended: the files that hold what was read from the source.
        whole: by epoch the files of replacements that are done.
        aside: paths of files, tombstones among them, of one that may not be.
        newest_epoch: of all that is published; 0 if nothing of it takes the place of anything.
        taken: input records in whose place publishers that replace have put others.
        taken_epoch: of the replacement that says so; 0 if there is none.
    """

    appended: list[PublishedFile] = field(default_factory=list)
    whole: dict[int, list[PublishedFile]] = field(default_factory=dict)
    aside: list[str] = field(default_factory=list)
    newest_epoch: int = 0
    taken: list[ReplacedRecords] = field(default_factory=list)
    taken_epoch: int = 0

    def mended(self) -> Mapping[str, OffsetSets]:
        """By incarnation, the input records that were fed again of which it is known in each branch what became, with
        the holes that are said on of what was retired; and those that are replaced."""
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
        """Of these, those that were fed again in epochs after that one."""
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
        """The input records that are replaced, in the order of the incarnations that they count in."""
        found: dict[str, OffsetSets] = {}
        for each in self.taken:
            sets = found.setdefault(each.incarnation, OffsetSets())
            for text in each.offsets.values():
                sets.update(parsed(text))
        return found


def replaced_in(folder: PublishedFolder, done_epoch: int, clean_epoch: int) -> Replaced:
    """Looks at a dataset's files.

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
    """Whether all is published that a sequence has of a publisher that replaces."""
    there = {folder.below_output(path) for path in (*(file.path for file in folder.files), *folder.tombstones)}
    stones = [stone for stone in folder.tombstones.values() if stone.epoch == epoch and stone.is_replacement]
    return bool(stones) and all(there.issuperset(stone.published) for stone in stones)


def _was_done(folder: PublishedFolder, epoch: int, mine: Iterable[PublishedFile]) -> bool:
    """Whether something that it has retired is deleted."""
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
    """Whether what these files of one attempt were fed is in the error files that it came from."""
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
