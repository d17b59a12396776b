"""The status of a job, readable in 80 to 100 columns."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from distcommit.app.inspection.job_status import DatasetStatusRow, NextRun, StatusResult, status_of
from distcommit.app.inspection.problems.problem_kind import Severity
from distcommit.cli.views.runs.run_view_components import deferred_records, flow_table, last_run, positions_lost
from distcommit.cli.views.view_components import (
    DATASET_STYLES,
    ExplainedTable,
    and_more,
    fact_table,
    page,
    short,
)
from distcommit.core.support.counts import count_of
from distcommit.core.watermark import format_watermark
from distcommit.stores.snapshots.expiry_requests import shown_ms

_LOGS = 10
_SEVERITIES = {Severity.CRITICAL: "bold red", Severity.ERROR: "red", Severity.WARNING: "yellow"}
_NEXT_RUN = {
    NextRun.NOTHING: "leaves {} alone",
    NextRun.REPLAYS: "replays {}",
    NextRun.DROPS: "drops {}, which their run did not publish, and reads them again",
    NextRun.UNDECIDED: "drops {} and reads them again, unless their own run is alive and decides to publish",
    NextRun.UNKNOWN: "replays {} if their run decided to publish, else drops them and reads them again",
}


def status_view(result: StatusResult) -> RenderableType:
    """Show the listed datasets, the job, and problems with the commands that resolve them."""
    blocks: list[RenderableType | None] = []
    if result.datasets:
        table = ExplainedTable("dataset", "status", ">watermark", ">epoch", explained="next")
        for row in result.datasets:
            status = Text(word := status_of(row), style=DATASET_STYLES.get(word, ""))
            epoch = str(row.pending_epoch or row.done_epoch or "")
            table.add_row(row.dataset, status, Text(format_watermark(row.positions)), epoch, reason=_next(row))
        blocks.append(table)
    if result.datasets_omitted:
        blocks.append(
            and_more(result.datasets_omitted, "datasets that are not idle or not readable (--all lists them)")
        )
    failure_note = f" ({result.datasets_unreadable:,} of them could not be read)" if result.datasets_unreadable else ""
    names = [
        f"{result.counts.get(n, 0):,} {n}{failure_note if n == 'idle' else ''}"
        for n in DATASET_STYLES
        if result.counts.get(n) or n == "idle"
    ]
    facts = {
        "job": escape(result.job),
        "store": escape(result.store),
        **last_run(result),
        "runs": ", ".join(f"{row.status} (epoch {row.epoch or 'none yet'})" for row in result.runs) or "none recorded",
        "datasets": f"{sum(result.counts.values()):,} in {count_of(result.buckets, 'bucket')}:"
        f" {', '.join(names)}{_none(result)}",
        **_unreadable(result),
        **_moving(result),
        **positions_lost(result.positions_lost),
        **(deferred_records(result.last_run.totals.deferred) if result.last_run is not None else {}),
        **_expiry(result),
    }
    blocks.append(fact_table(facts))
    if result.last_run is not None:
        blocks.append(flow_table(result.last_run.totals.flow))
    return page(*blocks, _problems(result))


def _problems(result: StatusResult) -> RenderableType:
    if not result.problems:
        return Text("no problems", style="green")
    blocks: list[RenderableType] = [Text(f"problems: {len(result.problems)}", style="bold")]
    for problem in result.problems:
        blocks.append(
            Text(f"- {problem.id} ({problem.severity}): {problem.title}", style=_SEVERITIES[problem.severity])
        )
        table = Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for name, text in {"found": problem.finding, "impact": problem.impact, "action": problem.action}.items():
            if text:
                table.add_row(f"  {name}:", Text(" ".join(text.split())))
        blocks.append(table)
        blocks.append(Text(f"    {problem.command}", style="cyan", no_wrap=True, overflow="ignore"))
    return Group(*blocks)


def _none(result: StatusResult) -> str:
    is_empty = result.last_run is not None and not result.unreadable and not result.counts
    return "; [yellow]the last run found none: check the section source of the job file[/]" if is_empty else ""


def _expiry(result: StatusResult) -> dict[str, str]:
    if (last := result.expiry_request) is None:
        return {}
    return {
        "expired": f"files older than {shown_ms(last.cutoff_ms)} are deleted, as {escape(last.requested_by)} requested"
    }


def _unreadable(result: StatusResult) -> dict[str, str]:
    names = list(result.unreadable)
    more = f" and {len(names) - _LOGS:,} more" if len(names) > _LOGS else ""
    return {"unreadable": f"[red]{escape(', '.join(names[:_LOGS]))}{more}[/]"} if names else {}


def _moving(result: StatusResult) -> dict[str, str]:
    if not result.moving_to:
        return {}
    todo = f"`distcommit store rebucket JOB.yaml --buckets {result.moving_to}` finishes it; no run begins before that"
    return {"interrupted": f"a move to {result.moving_to} buckets: {todo}"}


def _next(row: DatasetStatusRow) -> str:
    reason = short(row.reason)
    match row.status:
        case "idle":
            ids = [f"{name} of schemas {', '.join(map(str, ids))}" for name, ids in row.schemas.items()]
            return "; ".join(filter(None, (_read_failure(row, reason), *ids)))
        case "stopped":
            return f"to be released (retry): {_read_failure(row, reason)}"
        case "pending":
            text = f"the next run {_NEXT_RUN[row.next_run].format(count_of(row.pending_records, 'record'))}"
            if row.outage:
                return f"{text}; an outage, which does not count as a failed run: {reason}"
            if row.failed_runs:
                return f"{text}; {count_of(row.failed_runs, 'run')} failed: {reason}"
            return f"{text}; the last one failed: {reason}" if reason else text
        case "revoking":
            return f"to be released (abandon), which was interrupted: {reason}"
        case _:
            return f"to be released (retry, accept or abandon): {reason}"


def _read_failure(row: DatasetStatusRow, reason: str) -> str:
    if row.outage:
        return f"the last run could not read it; an outage, which does not count as a failed run: {reason}"
    times = "the last run" if row.failed_runs < 2 else f"{row.failed_runs} runs in a row"
    return f"{times} could not read it: {reason}" if reason else ""
