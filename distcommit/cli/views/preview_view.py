"""What a job that was tried out would have written, in tables for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from distcommit.app.preview import ShownTable, TryOutResult
from distcommit.cli.views.pieces import good_verdict, new_table, page
from distcommit.cli.views.result_views import run_view
from distcommit.core.work import MAIN_BRANCH
from distcommit.engine.driver.run import RunResult


def run_or_try_out_view(result: RunResult | TryOutResult) -> RenderableType:
    """What a run did."""
    return run_view(result) if isinstance(result, RunResult) else try_out_view(result)


def try_out_view(result: TryOutResult) -> RenderableType:
    """The first records of each dataset and branch, and that nothing of it is kept."""
    records = sum(table.records for table in result.tables)
    what = f"{records:,} records" + (f", and {result.more:,} tables that are not shown" if result.more else "")
    kept = good_verdict("tried out", f"{what}; nothing was committed, and no watermark has moved: all of it is deleted")
    failed = None if result.run.succeeded else run_view(result.run)
    return page(*map(_table, result.tables), failed, kept)


def _table(shown: ShownTable) -> RenderableType:
    branch = "" if shown.branch in ("", MAIN_BRANCH) else f", branch {shown.branch}"
    kind = "" if shown.kind == "data" else f", {shown.kind}"
    title = Text(f"{shown.dataset}{branch}{kind}: {len(shown.rows):,} of {shown.records:,} records", style="bold")
    table = new_table(*map(escape, shown.columns))
    for row in shown.rows:
        table.add_row(*map(Text, row))
    return Group(title, table)
