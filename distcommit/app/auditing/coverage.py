"""What became of a dataset's input records, by branch, from the footers of its files and the ledger rows of its
targets.

In each branch an input record ends in exactly one of three ways: published, rejected (in the branch, or before the fork
for all branches), or filtered on purpose. If a construct makes several records of one, files of one attempt may share
an input record; those of two attempts may never. A branch that the flow did not have when a file was written is not
owed its records. Nor is a branch owed what a replacement says was replaced in it, or what has expired.
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
    """The input records that one branch has."""

    published: OffsetSets = field(default_factory=OffsetSets)
    rejected: OffsetSets = field(default_factory=OffsetSets)
    filtered: OffsetSets = field(default_factory=OffsetSets)
    replaced: OffsetSets = field(default_factory=OffsetSets)
    expired: OffsetSets = field(default_factory=OffsetSets)
    duplicates: OffsetSets = field(default_factory=OffsetSets)
    """Those that it has more than once."""
    elsewhere: OffsetSets = field(default_factory=OffsetSets)
    _by_attempt: dict[_Attempt, OffsetSets] = field(default_factory=dict)
    _files: set[_File] = field(default_factory=set)

    @property
    def present(self) -> OffsetSets:
        """Published here, or rejected."""
        return self.published.union(self.rejected)

    @property
    def not_owed(self) -> OffsetSets:
        """Filtered, replaced, expired, or read before the branch existed."""
        return self.filtered.union(self.elsewhere).union(self.replaced).union(self.expired)

    def count_published(self, footer: Footer, offsets: OffsetSets) -> None:
        """Count a file's input records as published here."""
        before, attempt = self.published, (footer.epoch, footer.work_unit_id, footer.attempt)
        if footer.makes_several and (*attempt, footer.number) not in self._files:  # otherwise a file was copied
            attempt_offsets = self._by_attempt.setdefault(attempt, OffsetSets())
            before = before.difference(attempt_offsets)
            attempt_offsets.update(offsets)
        self._files.add((*attempt, footer.number))
        self.duplicates = self.duplicates.union(before.intersection(offsets)).union(self.rejected.intersection(offsets))
        self.published = self.published.union(offsets)

    def count_published_rows(self, offsets: OffsetSets) -> None:
        """Count input records as published here by all attempts of one flow in a ledger."""
        self.duplicates = self.duplicates.union(self.present.intersection(offsets))
        self.published = self.published.union(offsets)

    def reject(self, offsets: OffsetSets) -> None:
        """Count a file's input records as rejected."""
        self.duplicates = self.duplicates.union(self.present.intersection(offsets))
        self.rejected = self.rejected.union(offsets)


class Coverage:
    """All branches of a dataset."""

    def __init__(self) -> None:
        self._branches: dict[str, BranchCoverage] = {}
        self._of_all: dict[tuple[str, ...], OffsetSets] = {}

    def add(self, footer: Footer, offsets: OffsetSets) -> None:
        """Count a file.

        Args:
            footer: the file's.
            offsets: those that it names.

        Raises:
            CorruptError, UnknownVersionError: if the filtered records in the footer can't be read.
        """
        self._note(footer.branches, offsets, footer.filtered)
        if footer.kind == "data":
            self._branch(footer.branch).count_published(footer, offsets)
        else:
            for branch in [footer.branch] if footer.branch else footer.branches:
                self._branch(branch).reject(offsets)

    def add_rows(self, branch: str, covered: Covered, offsets: OffsetSets) -> None:
        """Count a ledger's entry of a branch.

        Args:
            branch: which.
            covered: an entry of its row.
            offsets: those of the entry that count.

        Raises:
            CorruptError, UnknownVersionError: as `add`.
        """
        self._note(covered.branches, offsets, covered.filtered)
        self._branch(branch).count_published_rows(offsets)

    def _note(self, branches: tuple[str, ...], offsets: OffsetSets, filtered: Mapping[str, str]) -> None:
        """Count the filtered records beside these, and register the branches of their flow."""
        by_branch = {branch: parsed(text) for branch, text in filtered.items()}
        noted = self._of_all.setdefault(branches, OffsetSets())
        for sets in (offsets, *by_branch.values()):
            noted.update(sets)
        for branch, sets in by_branch.items():
            self._branch(branch).filtered.update(sets)
        for branch in branches:
            self._branch(branch)

    def replace(self, replaced: ReplacedRecords) -> None:
        """Count replaced records. Raises as `add`."""
        noted = self._of_all.setdefault(replaced.branches, OffsetSets())
        for branch in replaced.branches:
            self._branch(branch)
        for branch, text in replaced.offsets.items():
            sets = parsed(text)
            noted.update(sets)
            branch_coverage = self._branch(branch)
            (branch_coverage.expired if replaced.is_expired else branch_coverage.replaced).update(sets)

    def branches(self) -> dict[str, BranchCoverage]:
        """All branches that a file or row names, by name; `main` if there is none."""
        for branch, coverage in self._branches.items():
            for of, sets in self._of_all.items():
                if branch not in of:
                    coverage.elsewhere.update(sets)
        return self._branches or {MAIN_BRANCH: BranchCoverage()}

    def covered(self) -> OffsetSets:
        """The input records whose end is known in each branch."""
        common: OffsetSets | None = None
        for branch in self.branches().values():
            sets = branch.present.union(branch.not_owed)
            common = sets if common is None else common.intersection(sets)
        return common or OffsetSets()

    def _branch(self, name: str) -> BranchCoverage:
        return self._branches.setdefault(name, BranchCoverage())


def covered_by(files: Iterable[tuple[Footer, OffsetSets]], replaced: Iterable[ReplacedRecords] = ()) -> OffsetSets:
    """Return the input records whose end these files state in each branch, or which are replaced. Raises as
    `Coverage.add`."""
    coverage = Coverage()
    for replaced_records in replaced:
        coverage.replace(replaced_records)
    for footer, offsets in files:
        coverage.add(footer, offsets)
    return coverage.covered()
