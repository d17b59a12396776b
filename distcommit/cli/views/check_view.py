"""The result of `check`, and of the check that `init` and `run` make."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from distcommit.app.checks.check_result import CheckProblem, CheckResult
from distcommit.cli.views.flow_view import flow_view
from distcommit.cli.views.runs.dry_run_views import dry_run_view
from distcommit.cli.views.view_components import (
    Paragraph,
    bad_verdict,
    good_verdict,
    listing,
    new_table,
    page,
)
from distcommit.core.support.counts import count_of

_STYLES = {"passed": "green", "failed": "red", "skipped": "dim"}


def check_view(result: CheckResult) -> RenderableType:
    if result.passed:
        skipped = any(part.outcome == "skipped" and part.found == "--offline" for part in result.checks)
        explanation = "no problem was found" + (", without connecting" if skipped else "")
        if count := len(result.warnings):
            explanation += f"; {count_of(count, 'warning')}, see below"
        verdict = good_verdict("ready", explanation)
    else:
        count = len(result.problems)
        verdict = bad_verdict("not ready", f"{count_of(count, 'problem')} found")
    checks = new_table("check", "outcome", "found")
    for part in result.checks:
        checks.add_row(part.name, Text(part.outcome, style=_STYLES[part.outcome]), Text(part.found))
    plan = dry_run_view(result.plan) if result.plan is not None else None
    flow = flow_view(result.flow) if result.flow is not None and result.passed else None
    warnings = listing("warnings", result.warnings)
    return page(verdict, checks, flow, plan, warnings, problems_view(result.problems))


def problems_view(problems: Sequence[CheckProblem]) -> RenderableType | None:
    """Show each problem with its position, id and remedy; None for an empty list."""
    if not problems:
        return None
    blocks: list[RenderableType] = []
    for problem in problems:
        subject = problem.setting or problem.check
        named = "" if problem.text.startswith(subject) else f"  {subject}"
        id_ = "" if problem.text.startswith(problem.id) else f"  {problem.id}"
        blocks.append(Text.assemble((problem.position, "bold"), named, id_))
        blocks.append(Paragraph(problem.text))
        if problem.remedy:
            blocks.append(Paragraph(f"To do: {problem.remedy}"))
    return Group(*blocks)
