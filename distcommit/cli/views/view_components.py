"""Parts of all views: verdicts, facts, tables and lists."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from distcommit.core.errors import shortened_cause
from distcommit.core.records.run_reasons import Reasons, cause_key

DATASET_STYLES = {
    "idle": "green",
    "read-failed": "yellow",
    "pending": "yellow",
    "quarantined": "red",
    "revoking": "red",
    "stopped": "red",
}
"""Color of each dataset status."""
LISTED = 20
"""Lines shown of a table or a list; the others are counted."""
_GAP = 3
"""Characters between the columns of a table."""
_FIRST, _READS_WELL, _ROOM = 16, 30, 40
"""Widths in an explained table: the first column's minimum; the width that suffices for the first column; the minimum
of the explanations beside the columns."""
_MAX_CAUSE_CHARACTERS = 160
_LONG = 80
"""Length in characters. A longer explanation that several rows share is shown once."""


def page(*blocks: RenderableType | None) -> Group:
    """Join blocks with an empty line between them; blocks that are None are left out."""
    shown = [block for block in blocks if block is not None]
    spaced: list[RenderableType] = []
    for index, block in enumerate(shown):
        spaced += ["", block] if index else [block]
    return Group(*spaced)


def good_verdict(verdict: str, explanation: str) -> str:
    return f"[bold green]{verdict}[/]: {explanation}"


def bad_verdict(verdict: str, explanation: str) -> str:
    return f"[bold red]{verdict}[/]: {explanation}"


def fact_table(facts: Mapping[str, str]) -> Table:
    """Return a table of names and values; values may have markup."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, value)
    return table


def new_table(*columns: str) -> Table:
    """Return an empty table; columns whose name begins with `>` are aligned right."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold", expand=False)
    for column in columns:
        number = column.startswith(">")
        table.add_column(
            column.removeprefix(">"), justify="right" if number else "left", no_wrap=number, overflow="fold"
        )
    return table


class ExplainedTable:
    """A table with an explanation of each row: in a last column, or below the row if the terminal is too narrow. Last
    columns that do not fit either go below the row too.

    Args:
        columns: names as in `new_table`; long values of the first one are folded.
        explained: heading of the explanations.
    """

    def __init__(self, *columns: str, explained: str = "") -> None:
        self._columns, self._explained = columns, explained
        self._rows: list[tuple[tuple[Text, ...], str]] = []
        self._first_of: dict[str, str] = {}

    def add_row(self, *cells: Text | str, reason: str = "", shared: str = "the same cause as") -> None:
        """Add a row with its explanation. A long explanation of several rows is shown once; the others have `shared`
        and the name of the row with the explanation.
        """
        texts = tuple(Text(cell) if isinstance(cell, str) else cell for cell in cells)
        name = texts[0].plain
        first = self._first_of.setdefault(cause_key(reason, name), name) if len(reason) > _LONG else name
        self._rows.append((texts, reason if first == name else f"{shared} {first}"))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = [
            max(cell_len(text) for text in (name.removeprefix(">"), *(row[index].plain for row, _ in self._rows)))
            for index, name in enumerate(self._columns)
        ]
        least = options.max_width - sum(widths[1:]) - _GAP * (len(widths) - 1)  # for the first one
        least_beside = least - _GAP - _ROOM
        if any(reason for _, reason in self._rows) and least_beside >= min(widths[0], _READS_WELL):
            first = max(_READS_WELL, min(least_beside, least // 2))
            yield self._beside_columns([min(widths[0], first), *widths[1:]])
        else:
            yield from self._below(widths, options.max_width)

    def _beside_columns(self, widths: Sequence[int]) -> Table:
        table = self._part(widths, self._explained)
        for cells, reason in self._rows:
            table.add_row(*cells, Text(reason))
        return table

    def _below(self, widths: list[int], room: int) -> Iterator[RenderableType]:
        least = min(widths[0], _FIRST)
        while len(widths) > 1 and least + sum(widths[1:]) + _GAP * (len(widths) - 1) > room:
            widths.pop()
        shown = len(widths)
        widths[0] = min(widths[0], max(least, room - sum(widths[1:]) - _GAP * (shown - 1)))
        part, is_first = self._part(widths), True
        for cells, reason in self._rows:
            part.add_row(*cells[:shown])
            remaining_cells = zip(self._columns[shown:], cells[shown:], strict=True)
            facts = [f"{name.removeprefix('>')} {cell.plain}" for name, cell in remaining_cells if cell.plain]
            if text := "; ".join([*([" · ".join(facts)] if facts else []), *([reason] if reason else [])]):
                yield part
                yield Padding(Text(text, overflow="fold"), (0, 0, 0, 4))
                part, is_first = self._part(widths), False
                part.show_header = False
        if part.rows or is_first:
            yield part

    def _part(self, widths: Sequence[int], *more: str) -> Table:
        table = new_table(*self._columns[: len(widths)], *more)
        for column, width in zip(table.columns, widths, strict=False):
            column.width = width
        return table


def reasons_table(reasons: Reasons) -> RenderableType | None:
    """Show why parts of a run were not completed, one row for each cause; None if all were."""
    if not reasons.entries:
        return None
    causes = reasons.causes()
    table = ExplainedTable("dataset", "kind", explained="reason")
    for cause in causes[:LISTED]:
        table.add_row(cause.names, cause.kind, reason=cause.text)
    left_out = reasons.omitted_count + sum(len(cause.subjects) for cause in causes[LISTED:])
    return Group(table, and_more(left_out, "reasons (--json has up to 100)")) if left_out else table


def short(text: str) -> str:
    """Return a reason on one line, with a long cause cut."""
    return shortened_cause(text, _MAX_CAUSE_CHARACTERS)


def seconds_spent(seconds: Mapping[str, float]) -> str:
    """Return the seconds of each phase and their sum."""
    parts = [f"{escape(name)} {value:.1f}" for name, value in seconds.items()]
    return " · ".join([*parts, f"total {sum(seconds.values()):.1f}"])


class Paragraph:
    """An indented text whose words are never broken, so that a command in it can be copied."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = textwrap.wrap(
            self._text,
            options.max_width,
            initial_indent="  ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        yield Text("\n".join(lines), no_wrap=True, overflow="ignore")


def listing(title: str, lines: Iterable[str], count: int = 0) -> RenderableType | None:
    """Return a title with a count, and the first lines; None if there are no lines."""
    texts = list(lines)
    count = max(count, len(texts))
    if not texts:
        return None
    shown: list[RenderableType] = [Text(f"{title}: {count:,}", style="bold")]
    shown += [Paragraph(line) for line in texts[:LISTED]]
    if count > LISTED:
        shown.append(and_more(count - LISTED, "more"))
    return Group(*shown)


def and_more(count: int, noun: str) -> Text:
    return Text(f"and {count:,} {noun}", style="dim")


def should_be_none(count: int) -> str:
    """Return a count, in red unless it is 0."""
    return f"[bold red]{count:,}[/]" if count else "0"
