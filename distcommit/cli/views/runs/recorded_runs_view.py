"""Recorded runs as tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.markup import escape
from rich.text import Text

from distcommit.app.inspection.recorded_run_settings import RunSettingsResult
from distcommit.app.inspection.recorded_runs import RecordedRun, RunDatasetRow, RunRow, RunsResult, RunStatus
from distcommit.app.inspection.work_unit_rows import WorkUnitsResult, WorkUnitStatus
from distcommit.cli.views.runs.run_view_components import clock_time, deferred_records, flow_table
from distcommit.cli.views.view_components import (
    LISTED,
    ExplainedTable,
    and_more,
    bad_verdict,
    fact_table,
    good_verdict,
    listing,
    new_table,
    page,
    reasons_table,
    short,
)
from distcommit.core.watermark import format_position

if TYPE_CHECKING:
    from distcommit.app.running.cancel import CancelResult

_STYLES = {
    RunStatus.COMMITTED: "green",
    RunStatus.RUNNING: "cyan",
    RunStatus.FAILED: "red",
    RunStatus.SUCCESSFUL: "yellow",
    RunStatus.CANCELLED: "yellow",
}
_GAPS = "grow with each run; gaps are normal, because a run writes several numbered records to its log"


def runs_view(result: RunsResult) -> RenderableType:
    """Show all recorded runs, newest first."""
    table = ExplainedTable(
        "epoch", "status", ">began (UTC)", ">took", ">datasets", ">bad", ">records", explained="command and reason"
    )
    for row in result.runs:
        counts = [
            f"{n:,}" if n else "" for n in (row.datasets_published, row.datasets_unpublished, row.records_published)
        ]
        command = f"{row.command} by {row.requested_by}" if row.requested_by else row.run_id
        command += f": {short(row.reason)}" if row.reason else ""
        began = _began(row).removesuffix(" UTC").rpartition(":")[0]  # to the minute
        table.add_row(str(row.epoch or ""), _status(row), began, _took(row), *counts, reason=command)
    facts = {
        "job": escape(result.job),
        "store": escape(result.store),
        "runs": f"{len(result.runs):,} recorded",
        **({"epochs": _GAPS} if len({row.epoch for row in result.runs}) > 1 else {}),
        **({"failed": _in_a_row(result.failed_in_a_row)} if result.failed_in_a_row else {}),
        **({"bad": "failed or skipped datasets"} if any(row.datasets_unpublished for row in result.runs) else {}),
    }
    return page(table if result.runs else None, fact_table(facts))


def _in_a_row(runs: int) -> str:
    return f"the last [red]{runs:,}[/] in a row" if runs > 1 else "[red]the last run[/]"


def cancel_view(result: CancelResult) -> RenderableType:
    """Show the runs that were requested to end."""
    if not result.runs and result.ended:
        verdict = good_verdict("nothing to cancel", "no run of the job is alive")
    elif result.ended:
        verdict = good_verdict("ended", "the next run replays what was sealed")
    elif result.pending:
        verdict = bad_verdict(
            "not ended yet", "the run still waits for Spark and can't be cancelled; repeat the command"
        )
    else:
        verdict = bad_verdict("not ended yet", "the request was sent; repeat the command, or kill the run")
    facts = {f"epoch {row.epoch}": f"{row.status}: {escape(short(row.reason))}" for row in result.runs}
    return page(verdict, fact_table({"job": escape(result.job)} | facts))


def recorded_run_view(result: RecordedRun) -> RenderableType:
    """Show one run, with failed datasets first."""
    row, record, started = result.run, result.record, result.beginning
    facts = {
        "run": f"{escape(row.run_id)}, epoch {row.epoch}",
        "status": f"[{_STYLES.get(row.status, '') or 'default'}]{row.status}[/]"
        + (f": {escape(short(row.reason))}" if row.reason else ""),
        "command": f"{escape(row.command)} by {escape(row.requested_by)}",
        "began": _began(row),
    }
    if record is not None:
        facts["ended"] = f"{clock_time(record.ended_ms)}, after {_took(row)}"
        facts |= {
            f"  {escape(phase.name)}": f"{phase.seconds:,.1f} s{'' if phase.completed else ', incomplete'}: "
            + (", ".join(f"{n:,} {escape(k.replace('_', ' '))}" for k, n in phase.counts.not_zero.items()) or "nothing")
            for phase in record.phases
        }
        facts |= deferred_records(record.totals.deferred)
    if started is not None:
        facts["driver"] = (
            f"process {started.facts.pid} on {escape(started.facts.host)}, {escape(started.facts.job_file)}"
        )
        facts["versions"] = ", ".join(f"{escape(k)} {escape(v)}" for k, v in started.facts.versions.items())
        facts["config"] = escape(json.dumps(started.facts.config, ensure_ascii=False))
    was_read = any(run_dataset_row.counts.attempts for run_dataset_row in result.datasets)
    columns = (">records read", ">MB read", ">rejected", ">attempts", ">seconds") if was_read else ()
    table = ExplainedTable("dataset", "outcome", ">records", ">files", *columns, explained="why")
    for run_dataset_row in result.datasets[:LISTED]:
        cells = _dataset(run_dataset_row)
        table.add_row(*cells[: 4 + len(columns)], reason=_reason(run_dataset_row))
    more = len(result.datasets) - LISTED
    return page(
        table if result.datasets else None,
        and_more(more, "datasets (--json has them all)") if more > 0 else None,
        reasons_table(record.reasons) if record and not result.datasets else None,
        listing("notes", [f"{note.subject}: {note.kind}: {note.text}" for note in record.notes] if record else []),
        fact_table(
            facts | ({"datasets": escape(result.missing_datasets_reason)} if result.missing_datasets_reason else {})
        ),
        flow_table(record.totals.flow) if record is not None else None,
    )


def _dataset(row: RunDatasetRow) -> tuple[Text | str, ...]:
    counts = row.counts
    tries = f"{counts.attempts:,}" + (f" ({counts.attempts_failed:,} failed)" if counts.attempts_failed else "")
    numbers = (counts.records_published, counts.files_published, counts.records_read)
    return (
        Text(row.dataset),
        Text(row.outcome, style="red" if row.kind else ""),
        *(f"{number:,}" if number else "" for number in numbers),
        f"{counts.bytes_read / 1e6:,.1f}" if counts.bytes_read else "",
        f"{counts.records_rejected:,}" if counts.records_rejected else "",
        tries if counts.attempts else "",
        f"{counts.attempt_ms / 1000:,.1f}" if counts.attempts else "",
    )


def _reason(row: RunDatasetRow) -> str:
    reason = f"{row.kind}: {short(row.reason)}" if row.kind else ""
    checks = [f"{name}: {count:,} failed" for name, count in row.counts.flow.failed_checks.items()]
    return "; ".join(filter(None, (reason, *checks)))


def _status(row: RunRow) -> Text:
    return Text(row.status, style=_STYLES.get(row.status, ""))


def _began(row: RunRow) -> str:
    return clock_time(row.began_ms) if row.began_ms else ""


def _took(row: RunRow) -> str:
    return f"{(row.ended_ms - row.began_ms) / 1000:,.1f} s" if row.ended_ms else ""


def work_units_view(result: WorkUnitsResult) -> RenderableType:
    """Show the work units of a run: those that have not succeeded first."""
    table = ExplainedTable(
        "work unit", "dataset", "status", ">attempts", ">from", ">to", ">records read", explained="why, and properties"
    )
    rows = sorted(result.work_units, key=lambda row: row.status is WorkUnitStatus.SUCCEEDED)
    for row in rows[:LISTED]:
        ends = (", ".join(map(format_position, positions.values())) for positions in (row.low, row.expected_high))
        numbers = (f"{row.attempts:,}", *map(short, ends), f"{row.records_read:,}")
        properties = json.dumps(row.properties, ensure_ascii=False) if row.properties else ""
        reason = "; ".join(filter(None, (short(row.error), short(properties))))
        table.add_row(row.work_unit, row.dataset, row.status.value, *numbers, reason=reason)
    counts = ", ".join(f"{count:,} {name}" for name, count in result.counts.items()) or "none"
    more = len(rows) - LISTED
    return page(
        table if rows else None,
        and_more(more, "work units (--json has them all)") if more > 0 else None,
        fact_table({"job": escape(result.job), "run": f"epoch {result.epoch}, {result.status}", "work units": counts}),
    )


def run_settings_view(result: RunSettingsResult) -> RenderableType:
    """Show the settings of a run, or the settings in which two runs differ."""
    if result.compared_epoch and not result.settings:
        return f"runs {result.epoch} and {result.compared_epoch} have the same settings"
    columns = (f"run {result.epoch}", f"run {result.compared_epoch}") if result.compared_epoch else ("value",)
    table = new_table("setting", *columns)
    for row in result.settings:
        values = (row.value, row.compared_value)[: len(columns)]
        table.add_row(escape(row.setting), *("-" if value is None else escape(_shown_value(value)) for value in values))
    return table


def _shown_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
