"""The result of a repair."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from distcommit.app.admin.repair import RepairResult
from distcommit.cli.views.pieces import bad_verdict, good_verdict, listing, new_table, page


def repair_view(result: RepairResult) -> RenderableType:
    """Show the verdict, each problem, those that are left with their commands, and violations of the store's rules."""
    repaired = [row for row in result.rows if row.mended]
    if result.is_well:
        verdict = good_verdict(
            "as it should be", f"{len(repaired):,} problems were repaired" if repaired else "nothing is wrong"
        )
    elif result.dry_run:
        verdict = bad_verdict("dry run", f"{len(repaired):,} of {len(result.rows):,} problems would be repaired")
    else:
        verdict = bad_verdict("something is left", "for a person to decide, or for the next run")
    table = new_table("repaired", "problem", "what")
    for row in result.rows:
        table.add_row(Text(row.mended or "no"), Text(row.id), Text(row.what))
    left = [f"{problem.line}: {problem.command}" for problem in result.left]
    return page(
        verdict,
        table if result.rows else None,
        listing("left, with the command", left),
        listing("against the store's own rules", result.problems, result.problems_count),
    )
