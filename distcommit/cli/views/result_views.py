"""Results of commands as tables, readable in 80 to 100 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from distcommit.app.admin.rebuild_result import RebuildResult, RebuildRow
from distcommit.app.inspection.read_log import LogResult
from distcommit.app.inspection.rejected_records import unreadable_rows
from distcommit.app.migration.compare_outputs import CompareResult
from distcommit.app.migration.import_watermarks import ImportResult
from distcommit.app.migration.rebucket import RebucketResult
from distcommit.cli.views.run_view_parts import deferred_records, flow_table, positions_lost, rejection_remedies
from distcommit.cli.views.view_parts import (
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
    seconds_spent,
    should_be_none,
)
from distcommit.core.records.run_counts import RunCounts
from distcommit.core.records.run_reasons import Reasons
from distcommit.core.watermark import Position, format_position
from distcommit.engine.driver.run import RecoverResult, RunResult

if TYPE_CHECKING:
    from distcommit.app.demo.demo_run import DemoResult
    from distcommit.app.migration.gobblin.convert_gobblin_job import ConvertResult

_REPROCESSED = (
    "The published records are visible now, and their old error files no longer count. Watermarks did not move: the"
    " next run continues at the source where the last run ended."
)
_WITHOUT_WORK = {"buckets", "files_swept", "storage_requests", "target_ms"}  # of runs without new data, too
_SHOWN = 300
"""Maximum characters of one log record in the table; --json has all."""


def run_view(result: RunResult) -> RenderableType:
    """Show the result of a run, and the reasons of failed datasets."""
    totals = result.totals
    if result.error:
        verdict = bad_verdict("failed", escape(result.error))
    elif not result.succeeded:
        verdict = bad_verdict(
            "incomplete",
            f"{totals.datasets_published:,} datasets committed; {_not_completed(totals)}",
        )
    elif totals.positions_lost:
        verdict = bad_verdict("committed, with losses", "the source had deleted records before they were read")
    elif totals.datasets_published:
        left = ", except those that are left for later" if totals.deferred else ""
        if rejected := totals.records_rejected:
            left += f"; {rejected:,} of {totals.records_out:,} records rejected"
        verdict = (bad_verdict if totals.is_mostly_rejected else good_verdict)("committed", f"all new records{left}")
    elif totals.deferred:
        verdict = good_verdict("nothing to read yet", "the source leaves all new records for later")
    else:
        verdict = good_verdict("nothing new", "no dataset of the source has records above its watermark")
    if not result.decided:
        held_note = f"{totals.datasets_held:,} datasets were held back and are read again"
        verdict = bad_verdict("not published", f"the run publishes all datasets or none, and some failed; {held_note}")
    return page(verdict, *_facts_and_details(result))


def _facts_and_details(result: RunResult) -> tuple[RenderableType | None, ...]:
    totals = result.totals
    work = {
        "datasets": _datasets(totals),
        "records": _records(totals),
        "files": f"{totals.files_published:,}",
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
    verdict = good_verdict("reprocessed", f"{totals.records_read:,} records of error files were read again")
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
        "orphaned": f"{totals.files_swept:,} staged files deleted",
    }
    return page(verdict, fact_table(facts), reasons_table(result.reasons))


def rebucket_view(result: RebucketResult) -> RenderableType:
    if result.epoch:
        resumed = "; this finished an interrupted command" if result.is_resumed else ""
        verdict = good_verdict("rebucketed", f"the job can run again{resumed}")
    else:
        verdict = good_verdict("nothing to do", "the store already has these settings")
    facts = {
        "job": escape(result.job),
        "buckets": f"{result.buckets_before} before, {result.buckets} now (generation {result.generation})",
        **({"datasets": f"{result.datasets:,} moved"} if result.epoch else {}),
        **{escape(name): escape(value) for name, value in result.settings.items()},
        **({"old logs": f"stay in {escape(result.old_logs)}; they are no longer read"} if result.epoch else {}),
        **({"job file": escape(result.job_file)} if result.job_file else {}),
    }
    return page(verdict, fact_table(facts))


def log_view(result: LogResult) -> RenderableType:
    """Show each record of a log, with the reason if it is ignored."""
    table = new_table(">number", ">epoch", "writer", "record", "what it says")
    for line in result.lines:
        summary = Text(line.summary)
        summary.truncate(_SHOWN, overflow="ellipsis")
        if line.unreadable:
            summary = Text(line.unreadable, style="red")
        elif line.ignored:
            summary.append(f"\nignored: {line.ignored}", style="yellow")
        table.add_row(str(line.number), str(line.epoch or ""), line.writer[:8], line.record, summary)
    facts = {"log": escape(result.log), **({"dataset": escape(result.dataset)} if result.dataset else {})}
    return page(table, fact_table(facts))


def import_view(result: ImportResult) -> RenderableType:
    """Show each dataset whose watermark was set or kept, and the unused positions."""
    listed = [row for row in result.rows if row.action != "same"]
    table = new_table("dataset", ">watermark", ">next offset there", "action")
    for row in listed[:LISTED]:
        table.add_row(
            Text(row.dataset), _positions(row.positions_before), _positions(row.positions_after), Text(row.action)
        )
    counts = Counter(row.action for row in result.rows)
    would = "would be set" if result.dry_run else "set"
    verdict = good_verdict("dry run" if result.dry_run else "imported", f"{result.datasets_set:,} watermarks {would}")
    facts = {
        "from": escape(result.origin),
        "unchanged": f"{counts['same']:,}",
        "kept": f"{counts['kept']:,}" + (" (they differ; --overwrite sets them)" if counts["kept"] else ""),
    }
    return page(
        verdict,
        table if listed else None,
        and_more(len(listed) - LISTED, "datasets (--json has them all)") if len(listed) > LISTED else None,
        fact_table(facts),
        listing("positions left out", result.skipped),
    )


def compare_view(result: CompareResult) -> RenderableType:
    """Show the verdict, and the partitions whose positions or records differ."""
    summary = (
        "the same offsets are published, up to the lower position" if result.is_by_files else "the positions are equal"
    )
    if result.is_equal:
        verdict = good_verdict("same", f"all of {result.partitions:,} partitions: {summary}")
    else:
        verdict = bad_verdict("different", f"{result.differing:,} of {result.partitions:,} partitions")
    differing = [
        r for r in result.rows if r.positions_only_here or r.positions_only_there or r.position != r.other_position
    ]
    table = ExplainedTable("dataset", "partition", ">ours", ">theirs", ">ahead", ">both", ">only ours", ">only theirs")
    for row in sorted(differing, key=lambda r: not (r.positions_only_here or r.positions_only_there))[:LISTED]:
        positions = (
            Text("-" if position is None else str(position)) for position in (row.position, row.other_position)
        )
        counts = (
            f"{n:,}" for n in (row.ahead, row.positions_in_both, row.positions_only_here, row.positions_only_there)
        )
        table.add_row(Text(row.dataset), Text(row.partition), *positions, *counts)
    facts = {"with": escape(result.other)}
    if result.is_by_files:
        facts["published by both"] = f"{sum(row.positions_in_both for row in result.rows):,} offsets"
    return page(
        verdict,
        table if differing else None,
        and_more(len(differing) - LISTED, "partitions (--json has them all)") if len(differing) > LISTED else None,
        fact_table(facts),
        listing("not compared", result.unreadable),
    )


def rebuild_view(result: RebuildResult) -> RenderableType:
    """Show the changes of a rebuild, or the problems that prevent it."""
    is_dry_run = not (result.written or result.problems)
    if result.problems:
        verdict = bad_verdict(
            "not rebuilt", "no watermark was changed; repair or remove what is listed, or use --accept-gaps"
        )
    elif result.written:
        verdict = good_verdict("rebuilt", "the job can run again; verify it with `distcommit audit`")
    else:
        summary = (
            f": epoch {result.epoch} would be taken, and all datasets would stay unchanged" if not result.rows else ""
        )
        verdict = good_verdict("dry run", f"nothing was written{summary}")
    table = ExplainedTable("dataset", ">before", ">after", ">files", ">set aside", ">gaps")
    for row in result.rows[:LISTED]:
        counts = (f"{n:,}" for n in (row.files, row.files_set_aside, row.records_in_gaps))
        table.add_row(Text(row.dataset), _positions(row.positions_before), _positions(row.positions_after), *counts)
    return page(
        verdict,
        table if result.rows else None,
        and_more(len(result.rows) - LISTED, "datasets (--json has them all)") if len(result.rows) > LISTED else None,
        listing("damaged files, to be rewritten" if is_dry_run else "damaged files, rewritten", result.repaired),
        listing("datasets whose source was recreated", [_recreated(row) for row in result.rows if row.earlier]),
        listing("problems", result.problems, result.problems_count),
        listing("files set aside, whose records are read again", result.set_aside, result.set_aside_count),
    )


def _recreated(row: RebuildRow) -> str:
    return f"{row.dataset}: its positions are of {row.incarnation}, no longer of {', '.join(row.earlier)}"


def demo_view(result: DemoResult) -> RenderableType:
    """Show the produced and the published records of the demo."""
    verdict = (
        good_verdict("exactly once", "every produced record is published once, after a kill in mid-commit")
        if result.exact
        else bad_verdict("not exact", "; ".join(map(escape, result.problems)))
    )
    table = new_table("", ">produced", ">published")
    table.add_row("records", f"{result.records_produced:,}", f"{result.records_published:,}")
    table.add_row("checksum", escape(result.checksum_produced), escape(result.checksum_published))
    facts = {
        "duplicates": should_be_none(result.duplicates),
        "missing": should_be_none(result.missing),
        "at the kill": f"{result.sequences_pending_at_kill} datasets sealed and not closed; of their files"
        f" {result.files_published_at_kill:,} published, {result.files_staged_at_kill:,} still staged",
        "replayed": f"{result.sequences_replayed} sequences",
        "published": f"{result.files:,} files of {result.datasets} datasets",
        "seconds": seconds_spent(result.seconds),
    }
    return page(verdict, table, fact_table(facts))


def convert_view(result: ConvertResult) -> RenderableType:
    """Show each converted property with its setting, then the others with the reason."""
    table = new_table("where", "property", "setting")
    for row in result.translated:
        table.add_row(Text(row.location), Text(row.name), Text(row.setting + (f" ({row.note})" if row.note else "")))
    untranslated = new_table("where", "not converted", "reason")
    for entry in result.untranslated:
        untranslated.add_row(Text(entry.location), Text(entry.name), Text(entry.reason))
    return page(
        good_verdict(
            "converted", f"{len(result.translated):,} properties; {len(result.untranslated):,} were not converted"
        ),
        table,
        untranslated if result.untranslated else None,
        listing("assumed settings", result.assumptions),
        listing("Python classes to write", result.classes_to_write),
        fact_table({"job file": escape(result.path)}),
    )


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
    if not rejected:
        return f"{published:,} published"
    is_exact = totals.attempts == totals.work_units and not (totals.failures or totals.sequences_replayed)
    if is_exact and not totals.datasets_held and published >= rejected:
        return f"{published - rejected:,} published, {rejected:,} rejected to error files"
    return f"{published:,} published, error files included; {rejected:,} rejected in all attempts"


def _replayed(totals: RunCounts) -> str:
    text = f"{totals.sequences_replayed:,} sequences of earlier runs"
    if totals.sequences_dropped:
        text += f", {totals.sequences_dropped:,} dropped (their run did not publish)"
    if totals.datasets_quarantined:
        text += f", [red]{totals.datasets_quarantined:,} datasets quarantined[/]"
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


def _positions(positions: Mapping[str, Position]) -> Text:
    """Return up to four `partition:position` pairs as text, with "..." if there are more; "none" without any."""
    first = [f"{partition}:{format_position(position)}" for partition, position in list(positions.items())[:4]]
    return Text(" ".join([*first, *(["..."] if len(positions) > len(first) else [])]) or "none")
