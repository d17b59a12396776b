"""The records of a commit log as a table."""

from __future__ import annotations

from rich.console import RenderableType
from rich.markup import escape
from rich.text import Text

from distcommit.app.inspection.read_commit_log import LogResult
from distcommit.cli.views.view_components import fact_table, new_table, page

_SHOWN = 300
"""Maximum characters of one log record in the table. The output of --json is not cut."""


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
