"""The dry runs of a run, of `recover` and of `dataset release`, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.markup import escape
from rich.text import Text

from distcommit.app.checks.dry_run import DryRun, PlannedDataset
from distcommit.app.checks.flow_description import FlowColumn
from distcommit.app.inspection.dry_runs.release_plan import ReleasePlan
from distcommit.app.inspection.dry_runs.replay_plan import ReplayPlan
from distcommit.app.inspection.dry_runs.sweep_plan import SweepResult
from distcommit.cli.views.flow_view import COLUMNS_SHOWN
from distcommit.cli.views.view_components import (
    DATASET_STYLES,
    LISTED,
    ExplainedTable,
    and_more,
    fact_table,
    good_verdict,
    listing,
    page,
    short,
)
from distcommit.core.support.counts import count_of


def dry_run_view(plan: DryRun) -> RenderableType:
    """Show the datasets that a run would read."""
    if plan.unknown:
        return Text(f"plan: {plan.unknown}")
    total = f", {_size(plan.size, plan.unit)}" if plan.size is not None else ""
    if not plan.datasets_count and not any(row.problem for row in plan.datasets):
        return page("a run would read nothing: no selected dataset has new data", listing("notes", plan.notes))
    table = ExplainedTable("dataset", ">work units", ">to read", explained="columns")
    for planned_dataset in sorted(plan.datasets, key=_importance)[:LISTED]:
        units = f"{planned_dataset.work_units:,}" if planned_dataset.work_units else ""
        table.add_row(
            escape(planned_dataset.dataset),
            units,
            _size(planned_dataset.size, plan.unit),
            reason=_explanation(planned_dataset),
            shared="the same cause as" if planned_dataset.problem else "the same columns as",
        )
    more = len(plan.datasets) - LISTED
    remaining = and_more(more, "datasets; --json lists all") if more > 0 else None
    title = Text(f"a run would read {count_of(plan.datasets_count, 'dataset')}{total}", style="bold")
    return page(title, table, remaining, listing("notes", plan.notes))


def replay_plan_view(result: ReplayPlan) -> RenderableType:
    """Show the effect of a replay on each open sequence, beginning with sequences that would stay open."""
    table = ExplainedTable("dataset", ">epoch", "what", ">executes", ">found done", ">records", explained="why")
    rows = sorted(result.rows, key=lambda row: (row.outcome == "closes", row.dataset))
    for row in rows[:LISTED]:
        does = Text(row.outcome, style="" if row.outcome == "closes" else "yellow")
        counts = (f"{number:,}" for number in (row.steps_to_execute, row.steps_done, row.records))
        table.add_row(row.dataset, str(row.epoch), does, *counts, reason=short(row.reason))
    counts_text = ", ".join(f"{count:,} {does}" for does, count in sorted(result.counts.items())) or "nothing to replay"
    return page(
        good_verdict("dry run", "nothing was changed"),
        table if rows else None,
        and_more(len(rows) - LISTED, "sequences (--json has them all)") if len(rows) > LISTED else None,
        listing("logs that can't be recovered", [f"{name}: {error}" for name, error in result.unreadable.items()]),
        None if result.succeeds else Text("recover would end with exit code 1", style="red"),
        fact_table({"job": escape(result.job), "sequences": escape(counts_text)}),
    )


def release_plan_view(result: ReleasePlan) -> RenderableType:
    """Show the effect of a release on each dataset, beginning with datasets that would not change."""
    table = ExplainedTable("dataset", "status", ">records", explained=f"what {result.release} does")
    rows = sorted(result.rows, key=lambda row: (row.changes_dataset, row.dataset))
    for row in rows[:LISTED]:
        status = Text(row.status, style=DATASET_STYLES.get(row.status, ""))
        table.add_row(row.dataset, status, f"{row.records:,}", reason=short(row.effect))
    acted_on = sum(row.changes_dataset for row in rows)
    return page(
        good_verdict("dry run", "nothing was changed"),
        table if rows else None,
        and_more(len(rows) - LISTED, "datasets (--json has them all)") if len(rows) > LISTED else None,
        listing("unreadable logs", [f"{name}: {error}" for name, error in result.unreadable.items()]),
        fact_table({"job": escape(result.job), "datasets": f"{acted_on:,} of {len(rows):,} would be released"}),
    )


def sweep_view(result: SweepResult) -> RenderableType:
    """Show how many orphaned files would be deleted, and the first of them."""
    facts = {
        **{escape(subject): f"{count:,}" for subject, count in result.counts.items()},
        **({"attempts at targets": f"{result.at_targets:,}"} if result.at_targets else {}),
    }
    return page(
        listing("files that would be deleted", result.files, result.files_count),
        fact_table(facts or {"orphaned": "none"}),
        listing("unreadable, left alone", [f"{name}: {error}" for name, error in result.unreadable.items()]),
    )


def _importance(dataset: PlannedDataset) -> tuple[bool, int, str]:
    """Return the sort key of a dataset: problems first, then the largest datasets."""
    return not dataset.problem, -(dataset.size or 0), dataset.dataset


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
        return count_of(size, unit.removesuffix("s"))
    for name, factor in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if size >= factor:
            return f"{size / factor:,.1f} {name}"
    return count_of(size, "byte")
