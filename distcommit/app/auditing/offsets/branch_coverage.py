"""Derives the outcome of a dataset's input records in each branch from file footers and ledger rows.

In each branch an input record has exactly one outcome: published, rejected (in the branch, or before the fork for all
branches), or filtered. If a construct makes several records of one, the files of one attempt may share an input record;
the files of two attempts must not. A branch need not have replaced or expired records, nor records of a file that was
written before the branch existed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from distcommit.core.interfaces.ledger import Covered
from distcommit.core.work_units import MAIN_BRANCH
from distcommit.sinks.files.footer import Footer
from distcommit.sinks.files.offset_sets import OffsetSets, parsed
from distcommit.stores.folders.tombstones import ReplacedRecords

_Attempt = tuple[int, str, str]
_File = tuple[int, str, str, int]


@dataclass(slots=True)
class BranchCoverage:
    """The input records of a dataset and incarnation in a branch, by outcome.

    Attributes:
        published: offsets whose records the branch published.
        rejected: offsets that were rejected in the branch, or before the fork.
        filtered: offsets that constructs filtered.
        replaced: offsets whose output a replacing publisher replaced.
        expired: offsets in files that `distcommit dataset expire` deleted.
        duplicates: offsets that were published or rejected more than once, or published and rejected.
        elsewhere: offsets that a flow without this branch read.
    """

    published: OffsetSets = field(default_factory=OffsetSets)
    rejected: OffsetSets = field(default_factory=OffsetSets)
    filtered: OffsetSets = field(default_factory=OffsetSets)
    replaced: OffsetSets = field(default_factory=OffsetSets)
    expired: OffsetSets = field(default_factory=OffsetSets)
    duplicates: OffsetSets = field(default_factory=OffsetSets)
    elsewhere: OffsetSets = field(default_factory=OffsetSets)
    _by_attempt: dict[_Attempt, OffsetSets] = field(default_factory=dict)
    _files: set[_File] = field(default_factory=set)

    @property
    def present(self) -> OffsetSets:
        """Input records that the branch published or rejected."""
        return self.published.union(self.rejected)

    @property
    def not_owed(self) -> OffsetSets:
        """Input records that the branch need not publish: filtered, replaced, expired, or read before the branch
        existed.
        """
        return self.filtered.union(self.elsewhere).union(self.replaced).union(self.expired)

    def count_published(self, footer: Footer, offsets: OffsetSets) -> None:
        """Count a file's input records as published."""
        before, attempt = self.published, (footer.epoch, footer.work_unit_id, footer.attempt)
        if footer.makes_several and (*attempt, footer.number) not in self._files:  # otherwise a file was copied
            attempt_offsets = self._by_attempt.setdefault(attempt, OffsetSets())
            before = before.difference(attempt_offsets)
            attempt_offsets.update(offsets)
        self._files.add((*attempt, footer.number))
        self.duplicates = self.duplicates.union(before.intersection(offsets)).union(self.rejected.intersection(offsets))
        self.published = self.published.union(offsets)

    def count_published_rows(self, offsets: OffsetSets) -> None:
        """Count the input records that a ledger entry covers as published. An entry sums up all attempts of one
        flow.
        """
        self.duplicates = self.duplicates.union(self.present.intersection(offsets))
        self.published = self.published.union(offsets)

    def reject(self, offsets: OffsetSets) -> None:
        """Count a file's input records as rejected."""
        self.duplicates = self.duplicates.union(self.present.intersection(offsets))
        self.rejected = self.rejected.union(offsets)


class Coverage:
    """The coverage of all branches of a dataset and incarnation."""

    def __init__(self) -> None:
        self._branches: dict[str, BranchCoverage] = {}
        self._of_all: dict[tuple[str, ...], OffsetSets] = {}

    def add(self, footer: Footer, offsets: OffsetSets) -> None:
        """Add the input records of a file.

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
        """Add the input records of an entry of a branch's ledger row. Only `offsets` count as published. Raises
        CorruptError or UnknownVersionError if the filtered records in the entry can't be read.
        """
        self._note(covered.branches, offsets, covered.filtered)
        self._branch(branch).count_published_rows(offsets)

    def _note(self, branches: tuple[str, ...], offsets: OffsetSets, filtered: Mapping[str, str]) -> None:
        """Add filtered records, and register the branches of the flow that wrote them."""
        by_branch = {branch: parsed(text) for branch, text in filtered.items()}
        noted = self._of_all.setdefault(branches, OffsetSets())
        for sets in (offsets, *by_branch.values()):
            noted.update(sets)
        for branch, sets in by_branch.items():
            self._branch(branch).filtered.update(sets)
        for branch in branches:
            self._branch(branch)

    def replace(self, replaced: ReplacedRecords) -> None:
        """Add replaced or expired records. Raises CorruptError or UnknownVersionError if their offsets are
        unreadable.
        """
        noted = self._of_all.setdefault(replaced.branches, OffsetSets())
        for branch in replaced.branches:
            self._branch(branch)
        for branch, text in replaced.offsets.items():
            sets = parsed(text)
            noted.update(sets)
            branch_coverage = self._branch(branch)
            (branch_coverage.expired if replaced.is_expired else branch_coverage.replaced).update(sets)

    def branches(self) -> dict[str, BranchCoverage]:
        """Return all branches that a file or ledger row names; only `main` if none does."""
        for branch, coverage in self._branches.items():
            for of, sets in self._of_all.items():
                if branch not in of:
                    coverage.elsewhere.update(sets)
        return self._branches or {MAIN_BRANCH: BranchCoverage()}

    def covered(self) -> OffsetSets:
        """Return the input records that have an outcome in every branch."""
        common: OffsetSets | None = None
        for branch in self.branches().values():
            sets = branch.present.union(branch.not_owed)
            common = sets if common is None else common.intersection(sets)
        return common or OffsetSets()

    def _branch(self, name: str) -> BranchCoverage:
        return self._branches.setdefault(name, BranchCoverage())


def covered_by(files: Iterable[tuple[Footer, OffsetSets]], replaced: Iterable[ReplacedRecords] = ()) -> OffsetSets:
    """Return the input records that have an outcome in every branch, from these files and replaced records. Raises
    CorruptError or UnknownVersionError if filtered or replaced records can't be read.
    """
    coverage = Coverage()
    for replaced_records in replaced:
        coverage.replace(replaced_records)
    for footer, offsets in files:
        coverage.add(footer, offsets)
    return coverage.covered()
