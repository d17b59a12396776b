"""What became of a Gobblin job's properties, as tables for people."""

from __future__ import annotations

from rich.console import RenderableType
from rich.markup import escape
from rich.text import Text

from distcommit.app.gobblin.convert import ConvertResult
from distcommit.cli.views.pieces import fact_table, good_verdict, listing, new_table, page


def convert_view(result: ConvertResult) -> RenderableType:
    """Each property and what it became, then those that became nothing, and why."""
    table = new_table("where", "property", "setting")
    for row in result.translated:
        table.add_row(Text(row.said_at), Text(row.name), Text(row.setting + (f" ({row.note})" if row.note else "")))
    others = new_table("where", "not translated", "why, or where it belongs")
    for left in result.left:
        others.add_row(Text(left.said_at), Text(left.name), Text(left.why))
    return page(
        good_verdict("converted", f"{len(result.translated):,} properties; {len(result.left):,} were not translated"),
        table,
        others if result.left else None,
        listing("said by nobody", result.assumed),
        fact_table({"job file": escape(result.path)}),
    )
