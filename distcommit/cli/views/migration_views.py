"""Results of commands that import, compare, convert, rebuild or rebucket a job, as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.markup import escape
from rich.text import Text

from distcommit.app.admin.rebuild_result import RebuildResult, RebuildRow
from distcommit.app.migration.compare_outputs import CompareResult
from distcommit.app.migration.import_watermarks import ImportResult
from distcommit.app.migration.rebucket import RebucketResult
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
)
from distcommit.core.support.counts import count_of
from distcommit.core.watermark import Position, format_position

if TYPE_CHECKING:
    from distcommit.app.migration.gobblin.convert_gobblin_job import ConvertResult


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
    verdict = good_verdict(
        "dry run" if result.dry_run else "imported", f"{count_of(result.datasets_set, 'watermark')} {would}"
    )
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
        verdict = good_verdict("same", f"all of {count_of(result.partitions, 'partition')}: {summary}")
    else:
        verdict = bad_verdict("different", f"{result.differing:,} of {count_of(result.partitions, 'partition')}")
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


def _positions(positions: Mapping[str, Position]) -> Text:
    first = [f"{partition}:{format_position(position)}" for partition, position in list(positions.items())[:4]]
    return Text(" ".join([*first, *(["..."] if len(positions) > len(first) else [])]) or "none")
