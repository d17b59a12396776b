"""The results of `store verify` and `store repair`."""

from __future__ import annotations

from rich.console import RenderableType
from rich.markup import escape
from rich.text import Text

from distcommit.app.admin.repair_problems import RepairResult
from distcommit.app.inspection.verify_store import VerifyResult
from distcommit.cli.views.view_components import bad_verdict, fact_table, good_verdict, listing, new_table, page
from distcommit.core.support.counts import count_of


def verify_view(result: VerifyResult) -> RenderableType:
    if result.problems_count:
        verdict = bad_verdict("damaged", "restore what is listed from a backup, or use `distcommit store rebuild`")
    else:
        verdict = good_verdict("valid", "each log is valid, and the records of runs agree with the logs")
    facts = {
        "job": escape(result.job),
        "store": escape(result.store),
        "logs": f"{result.logs:,}, with {count_of(result.records, 'record')}; ignored: {result.ignored:,}",
        "datasets": f"{result.datasets:,}",
        "runs": f"{result.runs:,}",
    }
    problems = [f"{problem.location}: {problem.finding}" for problem in result.problems]
    return page(verdict, fact_table(facts), listing("problems", problems, result.problems_count))


def repair_view(result: RepairResult) -> RenderableType:
    repaired = [row for row in result.rows if row.outcome]
    if result.is_well:
        verdict = good_verdict(
            "healthy", f"{count_of(len(repaired), 'problem')} repaired" if repaired else "no problem found"
        )
    elif result.dry_run:
        verdict = bad_verdict(
            "dry run", f"{len(repaired):,} of {count_of(len(result.rows), 'problem')} would be repaired"
        )
    else:
        verdict = bad_verdict("problems left", "an operator or the next run must resolve them")
    table = new_table("repair", "problem", "finding")
    for row in result.rows:
        table.add_row(Text(row.outcome or "no"), Text(row.id), Text(row.finding))
    remaining = [f"{problem.line}: {problem.command}" for problem in result.remaining]
    return page(
        verdict,
        table if result.rows else None,
        listing("problems left, with the command", remaining),
        listing("violations of the store's rules", result.problems, result.problems_count),
    )
