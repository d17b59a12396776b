"""The results of `dataset expire` and `dataset compact` as tables."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from distcommit.app.admin.compact import CompactResult
from distcommit.app.admin.expire import ExpireResult
from distcommit.cli.views.view_components import (
    LISTED,
    and_more,
    bad_verdict,
    fact_table,
    good_verdict,
    listing,
    new_table,
    page,
)
from distcommit.core.support.counts import count_of
from distcommit.stores.snapshots.expiry_requests import shown_ms


def expiry_view(result: ExpireResult) -> RenderableType:
    """Show the verdict, the first datasets, and those left out."""
    table = new_table("dataset", ">files", ">records", ">rejected", ">bytes")
    for row in result.rows[:LISTED]:
        rejected = f"{row.rejected:,}" if row.rejected else ""
        table.add_row(Text(row.dataset), f"{row.files:,}", f"{row.records:,}", rejected, f"{row.size_bytes:,}")
    counted = f"{count_of(result.files, 'file')} of {count_of(result.datasets, 'dataset')}"
    counted += f", {count_of(result.records, 'record')}"
    if result.rejected:
        counted += f" ({result.rejected:,} of them rejected, which can't be reprocessed afterwards)"
    if result.dry_run:
        verdict = good_verdict("dry run", f"{counted} would be deleted")
    elif not result.succeeded:
        verdict = bad_verdict("incomplete", "repeat the command to finish it")
    else:
        when = "" if result.deleted or not result.files else "; they are deleted once no kept snapshot lists them"
        nothing = "no file of other datasets is too old" if result.skipped_count else "no file is too old"
        verdict = good_verdict("expired", f"{counted}{when}" if result.files else nothing)
    facts = {"older than": shown_ms(result.cutoff_ms), "bytes": f"{result.size_bytes:,}"}
    if result.undated:
        facts["unknown age"] = (
            f"{count_of(result.undated, 'file')} not deleted: without a time folder and a modification time"
        )
    more = result.datasets - LISTED
    return page(
        verdict,
        table if result.rows else None,
        and_more(more, "datasets (--json has a hundred)") if more > 0 else None,
        fact_table(facts),
        listing("datasets left out", result.skipped, result.skipped_count),
    )


def compaction_view(result: CompactResult) -> RenderableType:
    """Show the verdict, the first datasets, and those left out."""
    table = new_table("dataset", ">files", ">after", ">bytes", ">after", ">to merge")
    for row in result.rows[:LISTED]:
        size = f"{row.bytes_after:,}" if row.bytes_after else ""
        files = (f"{row.files_before:,}", f"{row.files_after:,}", f"{row.bytes_before:,}", size)
        table.add_row(Text(row.dataset), *files, f"{row.merged_files:,}")
    counted = f"{count_of(result.files_before, 'file')} of {count_of(result.datasets, 'dataset')}"
    if result.dry_run:
        verdict = good_verdict("dry run", f"{counted} would become {result.files_after:,}")
    elif not result.succeeded:
        verdict = bad_verdict("incomplete", "the old files of datasets left out stay; correct the reason and repeat")
    elif result.datasets:
        verdict = good_verdict("compacted", f"{counted} became {result.files_after:,}; later runs delete the old files")
    else:
        verdict = good_verdict("nothing to compact", "no folder has enough small files of one kind")
    more = result.datasets - LISTED
    return page(
        verdict,
        table if result.rows else None,
        and_more(more, "datasets (--json has a hundred)") if more > 0 else None,
        listing("datasets left out", result.skipped, result.skipped_count),
    )
