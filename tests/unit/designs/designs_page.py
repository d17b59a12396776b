"""Generator of the reference pages `task-flow*.md` from the tables of the designs: the `*.toml` files of this folder.

Run `python -m tests.unit.designs.designs_page`. The page of faults is written by hand.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Literal

import msgspec

import distcommit

PAGES = Path(distcommit.__file__).parents[1] / "conf" / "docs" / "reference"
TABLES = sorted(Path(__file__).parent.glob("*.toml"))
SUMMARY, LIMITS = "task-flow", "task-flow-omissions"
"""The pages with the number of rows by status, and with all rows that work partly."""
STATUSES = ("works", "different", "partly", "no")


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a design and its counterpart.

    Attributes:
        term: the design's term.
        status: how far the counterpart has the behaviour of the design.
        where: class, function, setting or command; for an absent part, its replacement.
        test: the test that shows the behaviour, as `PATH::NAME` or `PATH`.
        why: the reason of a status other than `works`.
    """

    term: str
    status: Literal["works", "different", "partly", "no"]
    where: str = ""
    test: str = ""
    why: str = ""


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows under one heading; `design` is the title of the first column."""

    title: str
    design: str
    rows: list[Row]


class Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A page: its head in Markdown, and its tables."""

    head: str
    tables: list[Table]

    @property
    def rows(self) -> list[Row]:
        return [row for table in self.tables for row in table.rows]


def load_pages() -> dict[str, Page]:
    """Return the pages by name."""
    return {path.stem: msgspec.toml.decode(path.read_bytes(), type=Page) for path in TABLES}


def markdown_pages() -> dict[Path, str]:
    """Return the text of each page by its path."""
    pages = load_pages()
    more = {SUMMARY: _summary(pages), LIMITS: _limits(pages)}
    return {
        PAGES / f"{name}.md": page.head + "".join(map(_markdown, page.tables)) + more.get(name, "")
        for name, page in pages.items()
    }


def _markdown(table: Table) -> str:
    has_tests = any(row.test for row in table.rows)
    rows = [[table.design, "status", "here", "test"], ["---"] * 4]
    for row in table.rows:
        status = f"{row.status}: {row.why}" if row.why else row.status
        rows.append([row.term, status, row.where, f"`{row.test}`" if row.test else ""])
    return f"\n## {table.title}\n\n" + "".join(map(_line, rows if has_tests else [cells[:3] for cells in rows]))


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _summary(pages: dict[str, Page]) -> str:
    lines = [["page", *STATUSES], ["---"] * 5]
    for name, page in pages.items():
        numbers: Counter[str] = Counter(row.status for row in page.rows)
        lines.append([f"[{name}]({name}.md)", *(str(numbers[status]) for status in STATUSES)])
    return "\n## Rows by status\n\n" + "".join(map(_line, lines))


def _limits(pages: dict[str, Page]) -> str:
    partial = ((name, row) for name, page in pages.items() for row in page.rows if row.status == "partly")
    lines = (f"- {row.term}: {row.why} ([table]({name}.md))\n" for name, row in partial)
    return "\n## Parts with a limit\n\n" + "".join(lines)


if __name__ == "__main__":
    for path, text in markdown_pages().items():
        path.write_text(text, encoding="utf-8")
