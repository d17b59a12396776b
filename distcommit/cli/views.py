"""The pieces that all views are made of: verdicts, facts, tables and lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

DATASET_STYLES = {
    "idle": "green",
    "unread": "yellow",
    "pending": "yellow",
    "quarantined": "red",
    "revoking": "red",
    "stopped": "red",
}
"""How datasets stand, in color."""
LISTED = 20
"""Lines of a table or a list; the rest is counted."""


def page(*blocks: RenderableType | None) -> Group:
    """Blocks one below the other, with a line between them; those that are None are left out."""
    shown = [block for block in blocks if block is not None]
    spaced: list[RenderableType] = []
    for index, block in enumerate(shown):
        spaced += ["", block] if index else [block]
    return Group(*spaced)


def good_verdict(verdict: str, explanation: str) -> str:
    """A verdict in green, and what it means."""
    return f"[bold green]{verdict}[/]: {explanation}"


def bad_verdict(verdict: str, explanation: str) -> str:
    """A verdict in red, and what it means."""
    return f"[bold red]{verdict}[/]: {explanation}"


def fact_table(facts: Mapping[str, str]) -> Table:
    """Names and values; the values may have markup."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, value)
    return table


def new_table(*columns: str) -> Table:
    """An empty table; columns whose name begins with `>` hold numbers."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold", expand=False)
    for column in columns:
        number = column.startswith(">")
        table.add_column(
            column.removeprefix(">"), justify="right" if number else "left", no_wrap=number, overflow="fold"
        )
    return table


def seconds_spent(seconds: Mapping[str, float]) -> str:
    """Seconds by phase, and together."""
    parts = [f"{escape(name)} {value:.1f}" for name, value in seconds.items()]
    return " · ".join([*parts, f"together {sum(seconds.values()):.1f}"])


def listing(title: str, lines: Iterable[str], count: int = 0) -> RenderableType | None:
    """A title with a count, and the first lines; None if there are none."""
    known = list(lines)
    count = max(count, len(known))
    if not known:
        return None
    shown: list[RenderableType] = [Text(f"{count:,} {title}", style="bold")]
    shown += [Text(f"  {' '.join(line.split())}", overflow="fold") for line in known[:LISTED]]
    if count > LISTED:
        shown.append(and_more(count - LISTED, "more"))
    return Group(*shown)


def and_more(count: int, what: str) -> Text:
    """That there are so many more."""
    return Text(f"and {count:,} {what}", style="dim")


def counted_runs(count: int) -> str:
    """So many runs, in words."""
    return "1 run" if count == 1 else f"{count:,} runs"


def should_be_none(count: int) -> str:
    """A count that should be 0."""
    return f"[bold red]{count:,}[/]" if count else "0"
