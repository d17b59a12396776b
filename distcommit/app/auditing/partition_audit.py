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

    Attributes:
        dataset: dataset URN.
        partition: partition of the source.
        first: first position that was ever read.
        watermark: end of the committed positions (exclusive).
        published: input records in this range that the branch published.
        rejected: input records in this range that the branch rejected.
        duplicates: input records with more than one outcome, or published or rejected twice.
        gaps: input records in this range without a recorded outcome.
        past_watermark: input records outside this range that the branch published or rejected.
        skipped: offsets in this range that were skipped because their records are lost.
        holes: offsets in this range at which the source has no record.
        branch: branch of the flow; `main` without a fork.
        filtered: input records in this range that constructs filtered, or that were read before the branch existed.
        replaced: input records in this range whose output a replacing publisher replaced.
        expired: input records in this range whose files `distcommit dataset expire` deleted.
        incarnation: incarnation of the source if it was recreated later; empty for the current incarnation.
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


@dataclass(slots=True)
class AuditedRecords:
    """The input records of a dataset and incarnation by finding, over all branches. A record that several branches lack
    or rejected counts once.

    Attributes:
        duplicates: offsets with more than one outcome in a branch, or published or rejected twice.
        gaps: offsets below the watermark without an outcome in a branch.
        past_watermark: offsets that a branch published or rejected, outside the expected range.
        rejected: offsets that a branch rejected.
        skipped: offsets that were skipped because their records are lost.
        holes: offsets at which the source has no record.
        filtered: offsets that constructs filtered, or that were read before the branch existed.
        replaced: offsets whose output a replacing publisher replaced.
        expired: offsets in files that `distcommit dataset expire` deleted.
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

    Attributes:
        dataset: dataset URN.
        branch: branch of the flow.
        rejected: number of rejected records, including those rejected before the fork.
        filtered_by: number of filtered records by construct. Records that were filtered before the fork count in each
            branch.
    """

    dataset: str
    branch: str
    rejected: int = 0
    filtered_by: dict[str, int] = {}

    @property
    def filtered(self) -> int:
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
    """Return one row for each source partition of a dataset in a branch. Partitions whose positions are not offsets are
    omitted.

    Args:
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
    """Return the skipped offsets, the holes, and the offsets of work units whose records were all filtered."""
    ranges = [skip for skip in state.skipped if not is_other_incarnation(skip.incarnation, incarnation)]
    given_up = offsets_of(skip for skip in ranges if not skip.is_hole)
    hole_offsets = holes.union(offsets_of(skip for skip in ranges if skip.is_hole and not skip.is_filtered))
    hole_offsets = hole_offsets.difference(given_up)
    return (
        given_up,
        hole_offsets,
        offsets_of(skip for skip in ranges if skip.is_filtered).difference(given_up).difference(hole_offsets),
    )
