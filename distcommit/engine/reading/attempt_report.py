"""An attempt's report to the tally."""

from __future__ import annotations

from distcommit.core.errors import reason_text
from distcommit.core.records.run_counts import FlowCounts, RunCounts, SinkCounter
from distcommit.core.work_units import COLUMN_NOTE, INPUT_PROBLEM, TaskOutcome, TaskState
from distcommit.engine.driver.task_reports import Tally
from distcommit.engine.run_events import WorkUnitDone


def report_attempt(state: TaskState, counters: tuple[SinkCounter, ...], tally: Tally) -> None:
    """Report an attempt's end, with failures that do not fail it."""
    counts = _counts(state, counters)
    tally.add(counts)
    for result in state.branches:
        if result.error and state.outcome is not TaskOutcome.FAILED:
            tally.note(state.dataset_urn, "branch", f"{result.branch}: {result.error_construct}: {result.error}")
        for check in result.checks:
            if check.checker in (INPUT_PROBLEM, COLUMN_NOTE):
                tally.note(state.dataset_urn, check.checker, check.detail)
            elif not (check.passed or check.mandatory):
                tally.note(state.dataset_urn, "check", f"{result.branch}: {check.checker}: {check.detail}")
    done = WorkUnitDone(
        dataset=state.dataset_urn,
        work_unit=state.work_unit_id,
        started_ms=state.started_ms,
        finished_ms=state.finished_ms,
        counts=counts,
        error=reason_text(state.error, 1000),
    )
    tally.observe(done)


def _counts(state: TaskState, counters: tuple[SinkCounter, ...]) -> RunCounts:
    return RunCounts(
        attempts=1,
        attempts_failed=0 if state.outcome is TaskOutcome.SUCCEEDED else 1,
        attempt_ms=state.finished_ms - state.started_ms,
        records_read=state.records_read,
        records_written=sum(result.records_written for result in state.branches),
        records_rejected=sum(result.records_rejected for result in state.branches),
        bytes_read=state.bytes_read,
        flow=FlowCounts.of(state, counters),
    )
