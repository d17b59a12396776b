"""What retention has taken, or would take."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from distcommit.app.admin.expire import RetainResult
from distcommit.cli.views.pieces import (
    LISTED,
    and_more,
    bad_verdict,
    fact_table,
    good_verdict,
    listing,
    new_table,
    page,
)
from distcommit.stores.snapshots.expiry_cutoffs import shown_ms


def retain_view(result: RetainResult) -> RenderableType:
    """The verdict, the first datasets, and those that were left out."""
    table = new_table("dataset", ">files", ">records", ">of these rejected", ">bytes")
    for row in result.rows[:LISTED]:
        rejected = f"{row.rejected:,}" if row.rejected else ""
        table.add_row(Text(row.dataset), f"{row.files:,}", f"{row.records:,}", rejected, f"{row.size_bytes:,}")
    counted = f"{result.files:,} files of {result.datasets:,} datasets, {result.records:,} records"
    if result.rejected:
        counted += f" ({result.rejected:,} of them were turned away, and can't be reprocessed then)"
    if result.dry_run:
        verdict = good_verdict("dry run", f"{counted} would go")
    elif not result.succeeded:
        verdict = bad_verdict("not all of it", "give the same command again: it goes on")
    else:
        how = "and are deleted" if result.deleted or not result.files else "and are deleted once no kept cut shows them"
        verdict = good_verdict("retained", f"{counted} are taken {how}" if result.files else "nothing is too old")
    facts = {"older than": shown_ms(result.before_ms), "bytes": f"{result.size_bytes:,}"}
    if result.undated:
        facts["of no known age"] = f"{result.undated:,} files, which stay: in no time folder, and without a time"
    more = result.datasets - LISTED
    return page(
        verdict,
        table if result.rows else None,
        and_more(more, "datasets (--json has a hundred)") if more > 0 else None,
        fact_table(facts),
        listing("datasets left out", result.left_out, result.left_out_count),
    )
