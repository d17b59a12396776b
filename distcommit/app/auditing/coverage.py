"""What became of a dataset's input records, branch by branch, as the footers of its published files say it and the
ledger rows of its targets.

In each branch an input record ends in exactly one of three ways: published there, rejected (in the branch, or before
the fork, for all of them), or filtered on purpose. Where a construct makes several records of one, the files of one
attempt may share an input record; those of two may never. Branches that a flow did not have when a file was written are
not owed what is in it. Nor is any branch owed what a replacement says was replaced in it,
or went by retention.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from distcommit.core.interfaces.ledger import Covered
from distcommit.core.work import MAIN_BRANCH
from distcommit.sinks.files.footer import Footer
from distcommit.sinks.files.offsets import OffsetSets, parsed
from distcommit.stores.folders.tombstones import ReplacedRecords

_Attempt = tuple[int, str, str]
_File = tuple[int, str, str, int]


@dataclass(slots=True)
class BranchCoverage:
    """What one branch has of the input records. `twice`: those that it has more than once."""

    published: OffsetSets = field(default_factory=OffsetSets)
    rejected: OffsetSets = field(default_factory=OffsetSets)
    filtered: OffsetSets = field(default_factory=OffsetSets)
    replaced: OffsetSets = field(default_factory=OffsetSets)
    retained: OffsetSets = field(default_factory=OffsetSets)
    twice: OffsetSets = field(default_factory=OffsetSets)
    elsewhere: OffsetSets = field(default_factory=OffsetSets)
    _mine: dict[_Attempt, OffsetSets] = field(default_factory=dict)
    _files: set[_File] = field(default_factory=set)

    @property
    def there(self) -> OffsetSets:
        """Published here, or rejected."""
        return self.published.union(self.rejected)

    @property
    def not_owed(self) -> OffsetSets:
        """Filtered, replaced, taken by retention, or read before there was this branch."""
        return self.filtered.union(self.elsewhere).union(self.replaced).union(self.retained)

    def count_published(self, footer: Footer, offsets: OffsetSets) -> None:
        """Counts a file's input records as published here."""
        before, attempt = self.published, (footer.epoch, footer.work_unit_id, footer.attempt)
        if footer.makes_several and (*attempt, footer.number) not in self._files:  # else somebody has copied a file
            mine = self._mine.setdefault(attempt, OffsetSets())
            before = before.difference(mine)
            mine.update(offsets)
        self._files.add((*attempt, footer.number))
        self.twice = self.twice.union(before.intersection(offsets)).union(self.rejected.intersection(offsets))
        self.published = self.published.union(offsets)

    def count_published_rows(self, offsets: OffsetSets) -> None:
        """Counts input records as published here by all attempts of one flow that a ledger knows."""
        self.twice = self.twice.union(self.there.intersection(offsets))
        self.published = self.published.union(offsets)

    def reject(self, offsets: OffsetSets) -> None:
        """Counts a file's input records as rejected."""
        self.twice = self.twice.union(self.there.intersection(offsets))
        self.rejected = self.rejected.union(offsets)


class Coverage:
    """All branches of a dataset."""

    def __init__(self) -> None:
        self._branches: dict[str, BranchCoverage] = {}
        self._of_all: dict[tuple[str, ...], OffsetSets] = {}

    def add(self, footer: Footer, offsets: OffsetSets) -> None:
        """Counts a file.

        Args:
            footer: the file's.
            offsets: those that it names.

        Raises:
            CorruptError, UnknownVersionError: if what the footer says of filtered records can't be read.
        """
        self._note(footer.branches, offsets, footer.filtered)
        if footer.kind == "data":
            self._branch(footer.branch).count_published(footer, offsets)
        else:
            for branch in [footer.branch] if footer.branch else footer.branches:
                self._branch(branch).reject(offsets)

    def add_rows(self, branch: str, covered: Covered, offsets: OffsetSets) -> None:
        """Counts what a ledger says of a branch.

        Args:
            branch: which.
            covered: an entry of its row.
            offsets: those that it names and that count.

        Raises:
            CorruptError, UnknownVersionError: as `add`.
        """
        self._note(covered.branches, offsets, covered.filtered)
        self._branch(branch).count_published_rows(offsets)

    def _note(self, branches: tuple[str, ...], offsets: OffsetSets, filtered: Mapping[str, str]) -> None:
        """Counts what was filtered beside these, and says that it was a flow with these branches."""
        by_branch = {branch: parsed(text) for branch, text in filtered.items()}
        known = self._of_all.setdefault(branches, OffsetSets())
        for sets in (offsets, *by_branch.values()):
            known.update(sets)
        for branch, sets in by_branch.items():
            self._branch(branch).filtered.update(sets)
        for branch in branches:
            self._branch(branch)

    def replace(self, replaced: ReplacedRecords) -> None:
        """Counts what has been replaced. Raises as `add`."""
        known = self._of_all.setdefault(replaced.branches, OffsetSets())
        for branch in replaced.branches:
            self._branch(branch)
        for branch, text in replaced.offsets.items():
            sets = parsed(text)
            known.update(sets)
            found = self._branch(branch)
            (found.retained if replaced.retained else found.replaced).update(sets)

    def branches(self) -> dict[str, BranchCoverage]:
        """All branches that any file or row names, by name; `main` where there is none."""
        for branch, found in self._branches.items():
            for of, sets in self._of_all.items():
                if branch not in of:
                    found.elsewhere.update(sets)
        return self._branches or {MAIN_BRANCH: BranchCoverage()}

    def covered(self) -> OffsetSets:
        """The input records of which it is known in each branch what became of them."""
        found: OffsetSets | None = None
        for branch in self.branches().values():
            sets = branch.there.union(branch.not_owed)
            found = sets if found is None else found.intersection(sets)
        return found or OffsetSets()

    def _branch(self, name: str) -> BranchCoverage:
        return self._branches.setdefault(name, BranchCoverage())


def covered_by(files: Iterable[tuple[Footer, OffsetSets]], replaced: Iterable[ReplacedRecords] = ()) -> OffsetSets:
    """The input records of which these files say, in each branch, what became of them, or which are replaced. Raises as
    `Coverage.add`."""
    coverage = Coverage()
    for each in replaced:
        coverage.replace(each)
    for footer, offsets in files:
        coverage.add(footer, offsets)
    return coverage.covered()
