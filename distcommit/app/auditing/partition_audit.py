"""The audit of one source partition in a branch: expected and published offsets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from distcommit.app.auditing.offsets.branch_coverage import BranchCoverage
from distcommit.app.auditing.offsets.shared_positions import is_other_incarnation
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Position, Watermark
from distcommit.core.work_units import MAIN_BRANCH
from distcommit.sinks.files.footer import Footer
from distcommit.sinks.files.offset_sets import OffsetSets, offsets_of


class AuditRow(msgspec.Struct, frozen=True):
    """The audit of a source partition in a branch. Offsets from `first` to `watermark` (exclusive) are expected, except
    the skipped, filtered, replaced and expired ones, and holes.
    """

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
    replaced: int = 0
    expired: int = 0
    incarnation: str = ""
    """Id of the source, if it was recreated later."""


@dataclass(slots=True)
class AuditedRecords:
    """The input records of a dataset and incarnation by finding. A record that several branches lack or rejected counts
    once.
    """

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
    """The rejected and filtered records of a branch of a dataset without offsets, counted from its files. The expected
    number of records is unknown.
    """

    dataset: str
    branch: str
    rejected: int = 0
    filtered_by: dict[str, int] = {}
    """Number of filtered records by construct. Records that were filtered or rejected before the fork count in each
    branch.
    """

    @property
    def filtered(self) -> int:
        """Filtered records of all constructs."""
        return sum(self.filtered_by.values())


def counted_rows(dataset: str, footers: Iterable[Footer]) -> list[CountedRow]:
    """Return the rejected and filtered records of a dataset by branch, from the footers of its files."""
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
    """Return one row for each source partition of a dataset in a branch.

    Args:
        state: the dataset's state.
        branch: name of the branch.
        coverage: the input records in the branch.
        holes: positions without a source record, as files and ledgers name them.
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
    """Classify the expected offsets that the branch has not published."""
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
    """Return the offsets that the store records as skipped, as holes, and as filtered with their work unit."""
    ranges = [skip for skip in state.skipped if not is_other_incarnation(skip.incarnation, incarnation)]
    given_up = offsets_of(skip for skip in ranges if not skip.is_hole)
    hole_offsets = holes.union(offsets_of(skip for skip in ranges if skip.is_hole and not skip.is_filtered))
    hole_offsets = hole_offsets.difference(given_up)
    return (
        given_up,
        hole_offsets,
        offsets_of(skip for skip in ranges if skip.is_filtered).difference(given_up).difference(hole_offsets),
    )
