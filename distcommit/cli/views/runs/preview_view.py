"""The first records of a job's datasets, as a preview prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markup import escape
from rich.text import Text

from distcommit.cli.views.runs.run_result_view import run_view
from distcommit.cli.views.view_components import fact_table, good_verdict, new_table, page
from distcommit.core.support.counts import count_of
from distcommit.core.work_units import MAIN_BRANCH
from distcommit.engine.driver.run import RunResult

if TYPE_CHECKING:
    from distcommit.app.jobs.preview import PreviewResult, ShownTable

_GAP = 3
"""Width between two columns of a table."""


def run_or_preview_view(result: RunResult | PreviewResult) -> RenderableType:
    return run_view(result) if isinstance(result, RunResult) else preview_view(result)


def preview_view(result: PreviewResult) -> RenderableType:
    """Show the first records of each dataset and branch."""
    records = sum(table.records for table in result.tables)
    omitted = f", and {count_of(result.tables_omitted, 'table')} not shown" if result.tables_omitted else ""
    verdict = good_verdict(
        "preview",
        f"{count_of(records, 'record')}{omitted}; nothing was committed, no watermark has moved, and all files were"
        " deleted",
    )
    failed = None if result.run.succeeded else run_view(result.run)
    return page(*map(_preview_table, result.tables), failed, verdict)


def _preview_table(preview: ShownTable) -> RenderableType:
    branch = "" if preview.branch in ("", MAIN_BRANCH) else f", branch {preview.branch}"
    kind = "" if preview.kind == "data" else f", {preview.kind}"
    shown = f"{len(preview.rows):,} of {count_of(preview.records, 'record')}"
    title = Text(f"{preview.dataset}{branch}{kind}: {shown}", style="bold")
    return Group(title, _Records(preview))


class _Records:
    """Records as a table. If the terminal is too narrow for it, each record is a list of names and values."""

    def __init__(self, preview: ShownTable) -> None:
        self._columns, self._rows = preview.columns, preview.rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = [max(map(cell_len, column)) + _GAP for column in zip(self._columns, *self._rows, strict=True)]
        if sum(widths) - _GAP <= options.max_width:
            table = new_table(*map(escape, self._columns))
            for row in self._rows:
                table.add_row(*map(Text, row))
            yield table
            return
        for row in self._rows:
            yield fact_table({escape(name): escape(value) for name, value in zip(self._columns, row, strict=True)})
            yield Text()
