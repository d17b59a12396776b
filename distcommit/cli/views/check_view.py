"""The result of `check`, and of the check that `init` and `run` make."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from distcommit.app.checks.check_result import CheckProblem, CheckResult
from distcommit.app.checks.dry_run import DryRun, PlannedDataset
from distcommit.app.checks.flow_description import FlowColumn
from distcommit.cli.views.flow_view import COLUMNS_SHOWN, flow_view
from distcommit.cli.views.view_parts import (
    LISTED,
    ExplainedTable,
    and_more,
    bad_verdict,
    good_verdict,
    listing,
    new_table,
    page,
)

_STYLES = {"passed": "green", "failed": "red", "skipped": "dim"}


def check_view(result: CheckResult) -> RenderableType:
    """Show the verdict, each check, the flow, the dry run, the warnings and the problems."""
    if result.passed:
        skipped = any(part.outcome == "skipped" and part.found == "--offline" for part in result.checks)
        explanation = "no problem was found" + (", without connecting" if skipped else "")
        if count := len(result.warnings):
            explanation += f"; {'1 warning' if count == 1 else f'{count:,} warnings'}, see below"
        verdict = good_verdict("ready", explanation)
    else:
        count = len(result.problems)
        verdict = bad_verdict("not ready", "1 problem was found" if count == 1 else f"{count} problems were found")
    checks = new_table("check", "outcome", "found")
    for part in result.checks:
        checks.add_row(part.name, Text(part.outcome, style=_STYLES[part.outcome]), Text(part.found))
    plan = dry_run_view(result.plan) if result.plan is not None else None
    flow = flow_view(result.flow) if result.flow is not None and result.passed else None
    warnings = listing("warnings", result.warnings)
    return page(verdict, checks, flow, plan, warnings, problems_view(result.problems))


def problems_view(problems: Sequence[CheckProblem]) -> RenderableType | None:
    """Show each problem with its position and remedy; None for an empty list."""
    if not problems:
        return None
    blocks: list[RenderableType] = []
    for problem in problems:
        line = f":{problem.line}" if problem.line else ""
        subject = problem.setting or problem.check
        named = "" if problem.text.startswith(subject) else f"  {subject}"
        blocks.append(Text.assemble((f"{problem.file}{line}", "bold"), named))
        blocks.append(Padding(Text(problem.text, overflow="fold"), (0, 0, 0, 2)))
        if problem.remedy:
            blocks.append(Padding(Text(f"To do: {problem.remedy}", overflow="fold"), (0, 0, 0, 2)))
    return Group(*blocks)


def dry_run_view(plan: DryRun) -> RenderableType:
    """Show the datasets that a run would read."""
    if plan.unknown:
        return Text(f"plan: {plan.unknown}")
    total = f", {_size(plan.size, plan.unit)}" if plan.size is not None else ""
    if not plan.datasets:
        return page("a run would read nothing: no dataset has new data", listing("notes", plan.notes))
    table = ExplainedTable("dataset", ">work units", ">to read", explained="columns")
    for planned_dataset in plan.datasets[:LISTED]:
        units = f"{planned_dataset.work_units:,}" if planned_dataset.work_units else ""
        table.add_row(
            escape(planned_dataset.dataset),
            units,
            _size(planned_dataset.size, plan.unit),
            reason=_explanation(planned_dataset),
        )
    more = len(plan.datasets) - LISTED
    remaining = and_more(more, "datasets; --json lists all") if more > 0 else None
    datasets = "1 dataset" if plan.datasets_count == 1 else f"{plan.datasets_count:,} datasets"
    title = Text(f"a run would read {datasets}{total}", style="bold")
    return page(title, table, remaining, listing("notes", plan.notes))


def _explanation(dataset: PlannedDataset) -> str:
    if dataset.problem:
        return dataset.problem
    return "not known before reading" if dataset.columns is None else _columns(dataset.columns)


def _columns(columns: Sequence[FlowColumn]) -> str:
    shown = [f"{column.name} {column.type}" for column in columns[:COLUMNS_SHOWN]]
    more = len(columns) - COLUMNS_SHOWN
    return ", ".join([*shown, *([f"and {more} more"] if more > 0 else [])])


def _size(size: int | None, unit: str) -> str:
    if size is None:
        return "not known"
    if unit != "bytes":
        return f"{size:,} {unit}"
    for name, factor in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if size >= factor:
            return f"{size / factor:,.1f} {name}"
    return f"{size:,} bytes"
