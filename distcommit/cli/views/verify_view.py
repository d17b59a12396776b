"""What came of holding a store against its rules, and what would be swept of it."""

from __future__ import annotations

from rich.console import RenderableType
from rich.markup import escape

from distcommit.app.inspection.sweeps import SweepResult
from distcommit.app.inspection.verify_store import VerifyResult
from distcommit.cli.views.pieces import bad_verdict, fact_table, good_verdict, listing, page


def verify_view(result: VerifyResult) -> RenderableType:
    """The verdict, what was looked at, and each problem."""
    if result.problems_count:
        verdict = bad_verdict(
            "not as it should be", "restore what is named from a backup, or `distcommit store rebuild`"
        )
    else:
        verdict = good_verdict("as it should be", "each log keeps the rules, and what runs say is what the logs say")
    facts = {
        "job": escape(result.job),
        "store": escape(result.store),
        "logs": f"{result.logs:,}, with {result.records:,} records, of which {result.ignored:,} do not count",
        "datasets": f"{result.datasets:,}",
        "runs": f"{result.runs:,}",
    }
    problems = [f"{problem.where}: {problem.what}" for problem in result.problems]
    return page(verdict, fact_table(facts), listing("problems", problems, result.problems_count))


def sweep_view(result: SweepResult) -> RenderableType:
    """What would be deleted, by kind, and the first files."""
    facts = {
        "job": escape(result.job),
        **{escape(what): f"{count:,}" for what, count in result.counts.items()},
        **({"attempts at targets": f"{result.at_targets:,}"} if result.at_targets else {}),
    }
    return page(
        good_verdict("dry run", "nothing was deleted; a run does it, and `recover` alone, too"),
        fact_table(facts),
        listing("files", result.files, result.files_count),
        listing("not looked at, and not swept", [f"{name}: {error}" for name, error in result.unreadable.items()]),
    )
