"""Datasets and their open commit sequences as tables."""

from __future__ import annotations

import time

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from distcommit.app.inspection.dataset_list import DatasetRow, DatasetsResult
from distcommit.app.inspection.job_status import status_of
from distcommit.app.inspection.open_commit_steps import SequenceSteps, StepsResult
from distcommit.cli.views.view_components import (
    DATASET_STYLES,
    LISTED,
    ExplainedTable,
    and_more,
    fact_table,
    listing,
    page,
    short,
)
from distcommit.core.support.counts import count_of
from distcommit.core.watermark import format_position

_STEPS = {"DONE": "green", "PENDING": "yellow", "LOST": "red", "UNKNOWN": "red"}


def datasets_view(result: DatasetsResult) -> RenderableType:
    """Show datasets in a table. A column without any value is left out."""
    rows = result.datasets
    has_lag = any(row.lag_records is not None or row.lag_problem for row in rows)
    read = result.last_epoch > 0
    columns = ["dataset", "status", ">watermark", ">last commit", ">records", ">files"]
    columns += [">lag, records", ">lag, s", ">target, s"] if has_lag else []
    columns += ["last run", ">records read", ">MB read", ">rejected", ">tries"] if read else []
    cells = [(*_cells(row), *(_lag(row) if has_lag else ()), *(_read(row) if read else ())) for row in rows]
    filled = [index for index in range(len(columns)) if index < 2 or any(str(row[index]) for row in cells)]
    table = ExplainedTable(*(columns[index] for index in filled), explained="why")
    for row, values in zip(rows, cells, strict=True):
        table.add_row(*(values[index] for index in filled), reason=_reason(row))
    facts = {"job": escape(result.job), "datasets": f"{len(rows):,} listed of {result.matching:,}"}
    if result.lag_unknown:
        facts["lag"] = f"[yellow]unknown[/]: {escape(result.lag_unknown)}"
    return page(
        table if rows else None,
        listing("unreadable logs", [f"{name}: {error}" for name, error in result.unreadable.items()]),
        fact_table(facts),
    )


def _cells(row: DatasetRow) -> tuple[Text | str, ...]:
    state = row.state
    numbers = [position for position in state.positions.values() if isinstance(position, int)]
    is_complete = len(numbers) == len(state.positions)
    sums = f"{sum(numbers):,}" if numbers else "none"
    position = sums if is_complete else ", ".join(map(format_position, state.positions.values()))
    return (
        Text(state.dataset),
        Text(word := status_of(state), style=DATASET_STYLES.get(word, "")),
        Text(position),
        f"{_ago((time.time() * 1000 - row.committed_ms) / 1000)} ago" if row.committed_ms else "",
        f"{state.done_records:,}" if state.done_epoch else "",
        f"{state.done_files:,}" if state.done_epoch else "",
    )


def _lag(row: DatasetRow) -> tuple[Text | str, ...]:
    return (
        f"{row.lag_records:,}" if row.lag_records is not None else "?",
        f"{row.lag_seconds:,.0f}" if row.lag_seconds is not None else "?",
        Text(f"{row.target_s:g}", style="red" if row.times_behind > 1 else "") if row.target_s else "",
    )


def _read(row: DatasetRow) -> tuple[Text | str, ...]:
    if row.last_run is None:
        return "", "", "", "", ""
    word, read = Text(row.last_run.outcome, style="red" if row.last_run.kind else ""), row.last_run.counts
    if not read.attempts:
        return word, "", "", "", ""
    tries = f"{read.attempts:,}" + (f" ({read.attempts_failed:,} failed)" if read.attempts_failed else "")
    return word, f"{read.records_read:,}", f"{read.bytes_read / 1e6:,.1f}", _nonzero(read.records_rejected), tries


def _nonzero(number: int) -> str:
    return f"{number:,}" if number else ""


def _reason(row: DatasetRow) -> str:
    state, parts = row.state, list[str]()
    if state.pending_epoch:
        parts.append(f"{count_of(state.pending_records, 'record')} of epoch {state.pending_epoch}")
    if state.failed_runs:
        parts.append(f"{count_of(state.failed_runs, 'run')} failed to {'finish' if state.pending_epoch else 'read'} it")
    if state.positions_lost:
        parts.append(f"{count_of(state.positions_lost, 'position')} lost")
    if row.last_run is not None:
        parts += [f"{name}: {count:,} failed" for name, count in row.last_run.counts.flow.failed_checks.items()]
    parts += [short(text) for text in (state.reason, row.lag_problem) if text]
    return "; ".join(parts)


def steps_view(result: StepsResult) -> RenderableType:
    """Show each sequence and its steps, open steps first."""
    blocks: list[RenderableType | None] = [_sequence(sequence) for sequence in result.sequences]
    if result.sequences_omitted:
        blocks.append(and_more(result.sequences_omitted, "datasets with an open sequence (--limit 0 shows all)"))
    if not result.sequences:
        blocks.append(Text("no unfinished commits", style="green"))
    blocks.append(listing("unreadable logs", [f"{name}: {error}" for name, error in result.unreadable.items()]))
    return page(*blocks, fact_table({"job": escape(result.job)}))


def _sequence(sequence: SequenceSteps) -> RenderableType:
    head = Text(sequence.dataset, style="bold")
    head.append(f"  {sequence.status}", style=DATASET_STYLES.get(sequence.status, ""))
    facts = f"  epoch {sequence.epoch}, {count_of(sequence.records, 'record')} in {count_of(sequence.files, 'file')}"
    facts += f", bucket {sequence.bucket}" + (", held until the run decides" if sequence.held else "")
    head.append(facts)
    lines: list[RenderableType] = [head]
    if sequence.reason:
        failed = f"{count_of(sequence.failed_runs, 'run')} failed: " if sequence.failed_runs else ""
        lines.append(Padding(Text(f"{failed}{short(sequence.reason)}", style="yellow"), (0, 0, 0, 2)))
    counts = ", ".join(f"{count:,} {state}" for state, count in sorted(sequence.counts.items())) or "none"
    lines.append(Text(f"  steps: {counts}"))
    table = ExplainedTable("step", "state", explained="why")
    open_first = sorted(sequence.steps, key=lambda step: step.state == "DONE")
    for step in open_first[:LISTED]:
        table.add_row(step.subject, Text(step.state, style=_STEPS.get(step.state, "")), reason=short(step.reason))
    if open_first:
        lines.append(table)
    if len(open_first) > LISTED:
        lines.append(and_more(len(open_first) - LISTED, "steps (--json has them all)"))
    return Group(*lines)


def _ago(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{max(0, seconds):,.0f} s"
