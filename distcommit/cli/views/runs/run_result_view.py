"""The result of a run, of `dataset reprocess` and of `recover`, as tables readable in 80 to 100 columns."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from distcommit.app.inspection.rejected_records import unreadable_rows
from distcommit.cli.views.runs.run_view_components import (
    deferred_records,
    flow_table,
    positions_lost,
    rejection_remedies,
)
from distcommit.cli.views.view_components import (
    bad_verdict,
    fact_table,
    good_verdict,
    page,
    reasons_table,
    seconds_spent,
)
from distcommit.core.records.run_counts import RunCounts
from distcommit.core.records.run_reasons import Reasons
from distcommit.core.support.counts import count_of
from distcommit.core.work_units import is_error_branch
from distcommit.engine.driver.run import RecoverResult, RunResult

_REPROCESSED = (
    "The published records are visible now, and their old error files no longer count. Watermarks did not move: the"
    " next run continues at the source where the last run ended."
)
_WITHOUT_WORK = {"buckets", "files_swept", "storage_requests", "target_ms"}  # of runs without new data, too


def run_view(result: RunResult) -> RenderableType:
    """Show the result of a run, and the reasons of failed datasets."""
    totals = result.totals
    if result.error:
        verdict = bad_verdict("failed", escape(result.error))
    elif not result.succeeded:
        verdict = bad_verdict(
            "incomplete",
            f"{count_of(totals.datasets_published, 'dataset')} committed; {_not_completed(totals)}",
        )
    elif totals.positions_lost:
        verdict = bad_verdict("committed, with losses", "the source had deleted records before they were read")
    elif totals.datasets_published:
        left = ", except those that are left for later" if totals.deferred else ""
        if rejected := totals.records_rejected:
            left += f"; {rejected:,} of {count_of(totals.records_out, 'record')} rejected"
        if filtered := totals.flow.records_filtered:
            left += f"; {count_of(filtered, 'record')} filtered on purpose{_scope(totals)}"
        verdict = (bad_verdict if totals.is_mostly_rejected else good_verdict)("committed", f"all new records{left}")
    elif totals.deferred:
        verdict = good_verdict("nothing to read yet", "the source leaves all new records for later")
    else:
        verdict = good_verdict("nothing new", "no dataset of the source has records above its watermark")
    if not result.decided:
        held_note = f"held back and read again: {count_of(totals.datasets_held, 'dataset')}"
        verdict = bad_verdict("not published", f"the run publishes all datasets or none, and some failed; {held_note}")
    return page(verdict, *_facts_and_details(result))


def _facts_and_details(result: RunResult) -> tuple[RenderableType | None, ...]:
    totals = result.totals
    work = {
        "datasets": _datasets(totals),
        "records": _records(totals),
        **({"files": f"{totals.files_published:,}"} if totals.files_published else {}),
        "replayed": _replayed(totals),
    }
    facts = {
        "run": f"{escape(result.run_id)}, epoch {result.epoch}",
        **(work if totals.not_zero.keys() - _WITHOUT_WORK else {"datasets": "none had data to read"}),
        **positions_lost(totals.positions_lost),
        **deferred_records(totals.deferred),
        **_notes(result.notes),
        "seconds": seconds_spent(result.seconds),
    }
    return fact_table(facts), flow_table(totals.flow), reasons_table(result.reasons)


def reprocess_view(result: RunResult, command: str) -> RenderableType:
    """Show the result of `dataset reprocess`, and how its records continue. `command` processes the remaining rejected
    records again.
    """
    totals = result.totals
    if not result.succeeded or not result.decided:
        return page(
            run_view(result), Text(f"records of datasets that failed stay in their error files; repeat: {command}")
        )
    if not totals.records_read:
        return page(good_verdict("nothing to reprocess", "no error file has records that were not read again since"))
    verdict = good_verdict("reprocessed", f"read again from error files: {count_of(totals.records_read, 'record')}")
    return page(verdict, *_facts_and_details(result), Text(_REPROCESSED), _rejected_again(totals, command))


def _rejected_again(totals: RunCounts, command: str) -> RenderableType | None:
    if not totals.records_rejected:
        return None
    remedies = rejection_remedies(totals.records_rejected, unreadable_rows(totals.flow), command)
    return Group(Text("records rejected again are in new error files", style="yellow"), *remedies)


def recover_view(result: RecoverResult) -> RenderableType:
    totals = result.totals
    if not result.succeeded:
        verdict = bad_verdict("incomplete", "the next run retries what is still pending")
    elif totals.sequences_replayed or totals.sequences_dropped:
        verdict = good_verdict("recovered", "nothing is pending")
    else:
        verdict = good_verdict("nothing to recover", "nothing was pending")
    facts = {
        "run": f"{escape(result.run_id)}, epoch {result.epoch}",
        "replayed": _replayed(totals),
        "orphaned": f"{count_of(totals.files_swept, 'staged file')} deleted",
    }
    return page(verdict, fact_table(facts), reasons_table(result.reasons))


def _datasets(totals: RunCounts) -> str:
    counts = {
        "committed": (totals.datasets_published, "green"),
        "unchanged": (totals.datasets_unchanged, ""),
        "failed": (totals.datasets_failed, "red"),
        "skipped": (totals.datasets_skipped, "yellow"),
    }
    if totals.datasets_held:
        counts["held back"] = (totals.datasets_held, "yellow")
    return ", ".join(
        f"[{style}]{n:,} {name}[/]" if n and style else f"{n:,} {name}" for name, (n, style) in counts.items()
    )


def _not_completed(totals: RunCounts) -> str:
    """Return how many datasets an incomplete run did not complete, and which of them the next run retries."""
    numbers = {
        "failed": totals.datasets_failed,
        "skipped": totals.datasets_skipped,
        "left pending": totals.sequences_postponed,
        "quarantined": totals.datasets_quarantined,
    }
    counts = ", ".join(f"{number:,} {name}" for name, number in numbers.items() if number)
    listed = f"{counts}, listed below" if counts else "the reasons are listed below"
    return f"{listed}; the next run retries all datasets that are not stopped or quarantined"


def _records(totals: RunCounts) -> str:
    """Return the numbers of published and rejected records. Totals count the rejected records of all attempts, so the
    difference is exact only if each work unit was read once and nothing was replayed or left out.
    """
    published, rejected = totals.records_published, totals.records_rejected
    filtered = f", {count:,} filtered{_scope(totals)}" if (count := totals.flow.records_filtered) else ""
    read = f" (of {totals.records_read:,} read)" if rejected or filtered else ""
    if not rejected:
        return f"{published:,} published{filtered}{read}"
    is_exact = totals.attempts == totals.work_units and not (totals.failures or totals.sequences_replayed)
    if is_exact and not totals.datasets_held and published >= rejected:
        return f"{published - rejected:,} published, {rejected:,} rejected to error files{filtered}{read}"
    return f"{published:,} published, error files included; {rejected:,} rejected in all attempts{filtered}{read}"


def _scope(totals: RunCounts) -> str:
    """Return why the number of filtered records may exceed the number read; empty if it may not."""
    has_branches = len({counts.branch for counts in totals.flow.sinks if not is_error_branch(counts.branch)}) > 1
    return " in all branches and attempts" if has_branches or totals.attempts != totals.work_units else ""


def _replayed(totals: RunCounts) -> str:
    text = f"{count_of(totals.sequences_replayed, 'sequence')} of earlier runs"
    if totals.sequences_dropped:
        text += f", {totals.sequences_dropped:,} dropped (their run did not publish)"
    if totals.datasets_quarantined:
        text += f", [red]{count_of(totals.datasets_quarantined, 'dataset')} quarantined[/]"
    if totals.sequences_postponed:
        text += f", [yellow]{totals.sequences_postponed:,} left pending[/]"
    return text


def _notes(notes: Reasons) -> dict[str, str]:
    """Return notes on committed datasets by kind: the first names, the number of datasets if several, and the text."""
    by_kind: dict[str, list[str]] = {}
    for cause in notes.causes():
        count, first = len(cause.subjects), ", ".join(cause.subjects[:3])
        names = first if count == 1 else f"{count:,} ({first}{', ...' if count > 3 else ''})"
        by_kind.setdefault(escape(cause.kind), []).append(escape(f"{names}: {cause.text}"))
    more = f"; and {notes.omitted_count:,} more" if notes.omitted_count else ""
    return {kind: "; ".join(texts) + more for kind, texts in by_kind.items()}
