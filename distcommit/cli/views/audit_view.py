"""The result of an audit as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from distcommit.app.auditing.audit import AuditResult
from distcommit.app.auditing.offsets.shared_positions import SharedRange
from distcommit.app.auditing.partition_audit import AuditRow
from distcommit.cli.views.view_components import (
    LISTED,
    ExplainedTable,
    and_more,
    bad_verdict,
    fact_table,
    good_verdict,
    listing,
    page,
    should_be_none,
)
from distcommit.core.support.counts import count_of


def audit_view(result: AuditResult) -> RenderableType:
    method = "every record was read" if result.deep else "from file metadata and ledgers; --deep reads every record"
    records = "each offset below each watermark" if result.partitions else "each committed record"
    if result.exact:
        verdict = good_verdict("exact", f"{records} is published or rejected exactly once ({method})")
    elif result.passed:
        verdict = good_verdict("complete", f"{records} is published or rejected at least once ({method})")
    else:
        verdict = bad_verdict("not complete" if result.at_least_once else "not exact", method)
    twice = not result.at_least_once
    bad = [row for row in result.partitions if row.gaps or (twice and (row.duplicates or row.past_watermark))]
    lists = [listing(title, lines, count) for title, (lines, count) in audit_listings(result).items()]
    return page(verdict, fact_table(audit_facts(result)), _bad_partitions(bad), *lists)


def audit_facts(result: AuditResult) -> dict[str, str]:
    """Return the totals by name. Totals that show a problem are red."""
    facts = {
        "published": _published(result),
        "duplicates": should_be_none(result.duplicates),
        "gaps": should_be_none(result.gaps),
        "past watermark": should_be_none(result.past_watermark),
        "rejected": f"{result.rejected:,}" + (" (published below _rejected)" if result.rejected else ""),
        "lost": should_be_none(result.skipped) + (" (skipped: see below)" if result.skipped else ""),
        "holes": f"{result.holes:,}" + (" (positions without a record in the source)" if result.holes else ""),
    }
    if result.filtered:
        facts["filtered"] = f"{result.filtered:,} (left out on purpose; --json has the branches)"
    if result.replaced:
        facts["replaced"] = f"{result.replaced:,} (replaced by newer files)"
    if result.expired:
        facts["expired"] = f"{result.expired:,} (deleted by `distcommit dataset expire`)"
    if result.earlier_incarnations:
        facts["earlier"] = (
            f"{count_of(result.earlier_incarnations, 'file')} of sources that were recreated since, not counted"
        )
    if result.sweepable_files_count:
        facts["orphaned"] = f"{count_of(result.sweepable_files_count, 'attempt')} in staging, deleted by the next run"
    if result.deep and result.files_without_sum:
        facts["not summed"] = (
            f"{count_of(result.files_without_sum, 'file')} without checksums of the records: only offsets were checked"
        )
    if result.at_least_once:
        facts["unrecorded"] = f"{count_of(result.unrecorded_files, 'file')} without a commit that lists them"
    return facts


def audit_listings(result: AuditResult) -> dict[str, tuple[Iterable[str], int]]:
    """Return, by title, the listed findings and the number of all findings, or 0 if all are listed."""
    return {
        "ranges that were given up": (result.skipped_ranges, 0),
        "not compared with anything that is stored": (result.unproven_files, result.unproven_files_count),
        "ranges that two datasets have published": (map(_shared, result.shared_positions), 0),
        "datasets not finished: run the job, then audit again": (result.pending, 0),
        "files that no sequence published": (result.unknown_files, result.unknown_files_count),
        "ledgers at targets that the store does not know so": (
            result.ledger_mismatches,
            result.ledger_mismatches_count,
        ),
        "records that are not those that were written": (result.altered, result.altered_count),
        "things in staging that no run would sweep: take them away": (
            result.orphaned_files,
            result.orphaned_files_count,
        ),
        "logs and ledgers that can't be read": (result.unreadable, 0),
    }


def _published(result: AuditResult) -> str:
    counts = {"file": result.files, "ledger row": result.ledger_rows}
    places = " and ".join(count_of(count, name) for name, count in counts.items() if count) or "0 files"
    return f"{count_of(result.records, 'record')} in {places} of {count_of(result.datasets, 'dataset')}"


def _shared(shared: SharedRange) -> str:
    first, second = shared.datasets
    return f"{first} and {second}: partition {shared.partition}, offsets {shared.low} to {shared.high - 1}"


def _bad_partitions(rows: Sequence[AuditRow]) -> RenderableType | None:
    if not rows:
        return None
    table = ExplainedTable("dataset", "partition", ">from", ">to", ">published", ">duplicates", ">gaps", ">past")
    for row in rows[:LISTED]:
        counts = (row.published, row.duplicates, row.gaps, row.past_watermark)
        table.add_row(
            Text(row.dataset),
            Text(row.partition),
            Text(str(row.first)),
            Text(str(row.watermark)),
            *(f"{n:,}" for n in counts),
        )
    more = len(rows) - LISTED
    return Group(table, and_more(more, "partitions (--json has them all)")) if more > 0 else table
