"""What repair has mended, and what is left."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from distcommit.app.admin.repair import RepairResult
from distcommit.cli.views.pieces import bad_verdict, good_verdict, listing, new_table, page


def repair_view(result: RepairResult) -> RenderableType:
    """The verdict; each thing that was wrong; what is left, with commands; and what the store's rules say."""
    mended = [row for row in result.rows if row.mended]
    if result.is_well:
        verdict = good_verdict(
            "as it should be", f"{len(mended):,} things were mended" if mended else "nothing is wrong"
        )
    elif result.dry_run:
        verdict = bad_verdict("dry run", f"{len(mended):,} of {len(result.rows):,} troubles would be mended")
    else:
        verdict = bad_verdict("something is left", "for a person to decide, or for the next run")
    table = new_table("mended", "what")
    for row in result.rows:
        table.add_row(Text(row.mended or "no"), Text(row.what))
    left = [f"{each.what}: {each.command}" for each in result.left]
    return page(
        verdict,
        table if result.rows else None,
        listing("left, with the command", left),
        listing("against the store's own rules", result.problems, result.problems_count),
    )
