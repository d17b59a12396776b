"""The audit of a source partition in a branch: the expected and the published records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from distcommit.app.auditing.coverage import BranchCoverage
from distcommit.app.auditing.shared_positions import is_other_incarnation
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Position, Watermark
from distcommit.core.work import MAIN_BRANCH
from distcommit.sinks.files.footer import Footer
from distcommit.sinks.files.offsets import OffsetSets, offsets_of


class AuditRow(msgspec.Struct, frozen=True):
    """One source partition in a branch. Expected are the offsets from `first` to `watermark` (exclusive), without those
    in the other counts."""

    dataset: str
    partition: str
    first: Position
    watermark: Position
    published: int
    rejected: int
    duplicates: int
    gaps: int
    past_watermark: int
    skipped: int
    holes: int = 0
    branch: str = MAIN_BRANCH
    filtered: int = 0
    """Input records that the branch was not to write."""
    replaced: int = 0
    expired: int = 0
    incarnation: str = ""
    """Of a source that was recreated since."""


@dataclass(slots=True)
class AuditedRecords:
    """Input records of one dataset and incarnation by finding. A record that several branches lack or rejected counts
    once."""

    duplicates: OffsetSets = field(default_factory=OffsetSets)
    gaps: OffsetSets = field(default_factory=OffsetSets)
    past_watermark: OffsetSets = field(default_factory=OffsetSets)
    rejected: OffsetSets = field(default_factory=OffsetSets)
    skipped: OffsetSets = field(default_factory=OffsetSets)
    holes: OffsetSets = field(default_factory=OffsetSets)
    filtered: OffsetSets = field(default_factory=OffsetSets)
    replaced: OffsetSets = field(default_factory=OffsetSets)
    expired: OffsetSets = field(default_factory=OffsetSets)


class CountedRow(msgspec.Struct, frozen=True):
    """A branch of a dataset without offsets, some records of which were rejected or filtered. Its files count the
    records; the expected number is unknown."""

    dataset: str
    branch: str
    rejected: int = 0
    filtered_by: dict[str, int] = {}
    """By construct, how many records it filtered. Those before the fork count in each branch, as do records that were
    rejected there."""

    @property
    def filtered(self) -> int:
        """Of all constructs."""
        return sum(self.filtered_by.values())


def counted_rows(dataset: str, footers: Iterable[Footer]) -> list[CountedRow]:
    """Return the counts of a dataset's files by branch."""
    rejected, filtered = Counter[str](), dict[str, Counter[str]]()
    for footer in footers:
        for branch in footer.branches:
            if footer.kind == "rejected" and footer.branch in ("", branch):
                rejected[branch] += footer.records
            for name, count in footer.filtered_by.items():
                location, _, construct = name.rpartition(".")
                if location in ("", branch):
                    filtered.setdefault(branch, Counter())[construct] += count
    return [
        CountedRow(dataset, text, rejected[text], dict(filtered.get(text, {})))
        for text in sorted({*rejected, *filtered})
    ]


def rows_of(
    state: DatasetState, branch: str, coverage: BranchCoverage, holes: OffsetSets, totals: AuditedRecords
) -> list[AuditRow]:
    """Return the rows of a branch of a dataset, partition by partition.

    Args:
        state: the dataset's.
        branch: which.
        coverage: the input records that it has.
        holes: those that files and ledgers name.
        totals: receives the input records by finding.
    """
    total, twice = coverage.present, coverage.duplicates.union(coverage.present.intersection(coverage.filtered))
    high = state.reached or Watermark({})
    given_up, holes, nothing_of = _not_written(state, high.incarnation, holes)
    expected_all, rows = OffsetSets(), list[AuditRow]()
    for partition, watermark in sorted(high.positions.items(), key=lambda item: (len(item[0]), item[0])):
        first = state.origin.get(partition, 0)
        if not isinstance(first, int) or not isinstance(watermark, int):
            continue
        expected = OffsetSets()
        expected.add_range(partition, first, watermark)
        expected_all.update(expected)
        present = total.intersection(expected)
        findings = _findings(expected, coverage, given_up, holes, nothing_of)
        for name, sets in findings.items():
            getattr(totals, name).update(sets)
        counts = {name: sets.count() for name, sets in findings.items()}
        rows.append(
            AuditRow(
                dataset=state.dataset_urn,
                partition=partition,
                first=first,
                watermark=watermark,
                published=present.count() - findings["rejected"].difference(coverage.published).count(),
                duplicates=twice.count(partition),
                past_watermark=total.count(partition) - present.count(),
                branch=branch,
                rejected=counts["rejected"],
                gaps=counts["gaps"],
                skipped=counts["skipped"],
                holes=counts["holes"],
                filtered=counts["filtered"],
                replaced=counts["replaced"],
                expired=counts["expired"],
            )
        )
    totals.duplicates.update(twice)
    totals.past_watermark.update(total.difference(expected_all))
    return rows


def _findings(
    expected: OffsetSets, coverage: BranchCoverage, given_up: OffsetSets, holes: OffsetSets, nothing_of: OffsetSets
) -> dict[str, OffsetSets]:
    """Classify the expected records of a branch that are not published in it."""
    missing = expected.difference(coverage.present)
    not_owed = missing.intersection(coverage.not_owed)
    missing = missing.difference(not_owed)
    replaced = not_owed.intersection(coverage.replaced)
    expired = not_owed.intersection(coverage.expired.difference(coverage.replaced))
    skipped, without = missing.intersection(given_up), missing.intersection(holes)
    dropped = missing.intersection(nothing_of)
    return {
        "rejected": coverage.rejected.intersection(expected),
        "gaps": missing.difference(skipped).difference(without).difference(dropped),
        "skipped": skipped,
        "holes": without,
        "filtered": not_owed.difference(replaced).difference(expired).union(dropped),
        "replaced": replaced,
        "expired": expired,
    }


def _not_written(state: DatasetState, incarnation: str, holes: OffsetSets) -> tuple[OffsetSets, OffsetSets, OffsetSets]:
    """Return the offsets that the store has as given up, without a record, and filtered with their work unit."""
    ranges = [skip for skip in state.skipped if not is_other_incarnation(skip.incarnation, incarnation)]
    given_up = offsets_of(skip for skip in ranges if not skip.is_hole)
    hole_offsets = holes.union(offsets_of(skip for skip in ranges if skip.is_hole and not skip.is_filtered))
    hole_offsets = hole_offsets.difference(given_up)
    return (
        given_up,
        hole_offsets,
        offsets_of(skip for skip in ranges if skip.is_filtered).difference(given_up).difference(hole_offsets),
    )
