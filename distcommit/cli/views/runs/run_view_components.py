"""Lines and tables on finished and live runs."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from distcommit.app.inspection.job_status import StatusResult
from distcommit.app.inspection.recorded_runs import RunStatus
from distcommit.app.inspection.rejected_records import RejectedRecords
from distcommit.cli.views.view_components import ExplainedTable, short
from distcommit.core.records.deferred_records import DeferredCause, DeferredCounts
from distcommit.core.records.run_counts import COMMIT_COUNTS, FlowCounts
from distcommit.core.records.run_outcome import RunOutcome
from distcommit.core.support.counts import count_of
from distcommit.core.work_units import COLUMN_NOTE, INPUT_PROBLEM
from distcommit.stores.history.run_records import RunRecord

_NAMED = 3
_STYLES = {RunOutcome.SUCCEEDED: "green", RunOutcome.FAILED: "red"}


def last_run(result: StatusResult) -> dict[str, str]:
    """Return the newest run and how it ended, as facts for a table."""
    if not result.epoch:
        return {"last run": "none yet"}
    run = f"{escape(result.run_id)}, epoch {result.epoch}"
    ended = (
        _ended(result.last_run)
        if result.last_run
        else f"[yellow]no record[/]: {escape(_missing_record_reason(result))}"
    )
    return {"last run": run, "ended": ended}


def _missing_record_reason(result: StatusResult) -> str:
    newest = next((row for row in result.runs if row.epoch == result.epoch), None)
    if newest is not None and newest.is_dead:
        return "it died"
    return "it is under way" if newest is not None and newest.status == RunStatus.RUNNING else result.no_record


def flow_table(flow: FlowCounts) -> RenderableType | None:
    """Show the counts of each construct and checker in a run, and the commits of each sink; None without any."""
    has_constructs = flow.constructs or flow.checks or flow.failures
    tables = [*([_construct_table(flow)] if has_constructs else []), *_sink_tables(flow)]
    return Group(*tables) if tables else None


def _sink_tables(flow: FlowCounts) -> list[RenderableType]:
    sinks = [counts for counts in flow.sinks if counts.commit_attempts]
    if not sinks:
        return []
    counted = (">commits", ">successes", ">retries", ">failures", ">in doubt", ">ms at target")
    table = ExplainedTable("branch", "sink", *counted, explained="counters")
    for counts in sinks:
        numbers = [f"{getattr(counts, name):,}" for name in COMMIT_COUNTS]
        own = [counter for counter in flow.counters if (counter.branch, counter.sink) == (counts.branch, counts.sink)]
        text = ", ".join(f"{counter.name}: {counter.count:,}" for counter in own)
        table.add_row(Text(counts.branch), Text(counts.sink), *numbers, reason=text)
    return [table]


def _construct_table(flow: FlowCounts) -> RenderableType:
    counted = (">records", ">rejected", ">filtered", ">noted", ">seconds", ">records/s")
    table = ExplainedTable("branch", "construct", *counted, explained="result")
    empty = [""] * len(counted)
    for construct_counts in flow.constructs:
        counts = [
            f"{number:,}" if number else ""
            for number in (construct_counts.rejected, construct_counts.filtered, construct_counts.noted)
        ]
        speed = f"{construct_counts.records_in / construct_counts.seconds:,.0f}" if construct_counts.seconds else ""
        names = (Text(construct_counts.branch), Text(construct_counts.construct))
        if construct_counts.construct == INPUT_PROBLEM:
            table.add_row(
                *names, *empty, reason=f"{count_of(construct_counts.noted, 'unreadable file')}, not published"
            )
            continue
        table.add_row(*names, f"{construct_counts.records_in:,}", *counts, f"{construct_counts.seconds:.1f}", speed)
    for check in (check for check in flow.checks if check.checker not in (INPUT_PROBLEM, COLUMN_NOTE)):
        total = check.passed + check.failed
        result = f"{check.failed:,} of {count_of(total, 'work unit')} failed" if check.failed else "passed"
        style = "" if not check.failed else "red" if check.mandatory else "yellow"
        table.add_row(check.branch, Text(check.checker, style=style), *empty, reason=result)
    for failure in flow.failures:
        result = f"failed in {count_of(failure.work_units, 'work unit')}, whose records were rejected"
        table.add_row(failure.branch, Text(failure.construct, style="yellow"), *empty, reason=result)
    return table


def deferred_records(counts: DeferredCounts) -> dict[str, str]:
    """Return the records that the source left for later runs, with a line for each cause; empty if there are none."""
    lines = [
        f"{_minimum(cause)}{cause.records:,} of {count_of(cause.datasets, 'dataset')} ({_largest(cause)}):"
        f" {escape(cause.cause)}"
        for cause in counts.causes
    ]
    return {"left for later": "\n".join(lines)} if lines else {}


def _minimum(cause: DeferredCause) -> str:
    return "at least " if cause.is_minimum else ""


def _largest(cause: DeferredCause) -> str:
    named = [f"{escape(dataset)}: {records:,}" for dataset, records in list(cause.largest.items())[:_NAMED]]
    return ", ".join(named) + (", ..." if cause.datasets > len(named) else "")


def rejected_view(rejected: RejectedRecords, command: str) -> RenderableType:
    """Show the number of records that a run has rejected, their datasets, and the folder of their error files.
    `command` processes the records again.
    """
    named = [f"{dataset} ({count:,})" for dataset, count in rejected.largest.items()]
    of = f" of {', '.join(named)}{', ...' if rejected.datasets > len(named) else ''}" if named else ""
    records = count_of(rejected.records, "record")
    where = f"not published, but in error files below {rejected.folder} until they are reprocessed"
    reason = f"most frequent reason ({rejected.reason_records:,} of {rejected.reason_of}): {short(rejected.reason)}"
    return Group(
        Text(f"rejected by the run of epoch {rejected.epoch}: {records}{of}, {where}", style="yellow"),
        *([Text(reason, style="yellow")] if rejected.reason else []),
        *rejection_remedies(rejected.records, rejected.unreadable, command),
    )


def rejection_remedies(records: int, unreadable: int, command: str) -> list[Text]:
    """Return the remedies for rejected records, of which `unreadable` are rows that the source could not parse.
    `command` processes the others again.
    """
    lines = []
    if unreadable:
        row = "the row" if unreadable == 1 else "each row"
        lines.append(Text(f"the source could not parse {count_of(unreadable, 'row')}: correct {row} in a new file"))
    if records > unreadable:
        lines.append(Text(f"after a correction, process them again: {command}"))
    return lines


def positions_lost(positions: int) -> dict[str, str]:
    """Return the number of lost positions as a fact for a table; empty if it is 0."""
    if not positions:
        return {}
    return {"lost": f"[bold red]{positions:,}[/] positions that the source had deleted, or that were skipped with them"}


def _ended(record: RunRecord) -> str:
    counts = {
        "datasets published": record.totals.datasets_published,
        f"records{' (with rejected ones)' if record.totals.records_rejected else ''}": record.totals.records_published,
        "records rejected": record.totals.records_rejected,
        "sequences replayed": record.totals.sequences_replayed,
        "held back": record.totals.datasets_held,
        "quarantined": record.totals.datasets_quarantined,
        "commits at sinks": record.totals.commit_successes,
        "commits to be retried": record.totals.commit_retries,
        "commits that failed for good": record.totals.commit_failures,
        "commits in doubt": record.totals.commit_in_doubt,
        "ms at sinks, summed over tasks": record.totals.target_ms,
    }
    counted = ", ".join(f"{number:,} {name}" for name, number in counts.items() if number) or "nothing published"
    outcome = f"[{_STYLES.get(record.outcome, 'yellow')}]{record.outcome}[/]"
    took = f"after {(record.ended_ms - record.began_ms) / 1000:,.1f} s"
    command = f"{escape(record.command)} by {escape(record.requested_by)}"
    text = f"{outcome} at {clock_time(record.ended_ms)} {took}, {command}: {counted}"
    return f"{text}; {escape(' '.join(record.error.split()))}" if record.error else text


def clock_time(at_ms: int) -> str:
    """Return a time in milliseconds since 1970 as text in UTC."""
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):  # out of the range of datetime
        return f"{at_ms} ms"
