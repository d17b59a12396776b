"""Display of results in notebooks as HTML tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import msgspec

from distcommit.core.errors import printable

_MOST_ROWS = 200
_CELL = "text-align:left;vertical-align:top"


class NotebookTable:
    """Mixin that displays a Struct as a table without its empty fields. Names and messages are escaped."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return f'<div class="tex2jax_ignore">{_cell_html(msgspec.to_builtins(self))}</div>'


def _cell_html(value: Any) -> str:
    if isinstance(value, Mapping):
        return _table([(name, _cell_html(item)) for name, item in value.items() if _has_content(item)])
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _rows(value)
    if isinstance(value, float):
        return f"{value:,.2f}"
    return escape(printable(value, lines=True))


def _table(rows: Sequence[tuple[Any, str]]) -> str:
    lines = (
        f'<tr><th scope="row" style="{_CELL}">{escape(printable(name))}</th><td style="{_CELL}">{cell}</td></tr>'
        for name, cell in rows
    )
    return f"<table><tbody>{''.join(lines)}</tbody></table>"


def _rows(values: Sequence[Any]) -> str:
    """Return the first rows as a table with a column for each field that is set in any row."""
    shown = values[:_MOST_ROWS]
    more = f"<p>and {len(values) - len(shown):,} more</p>" if len(values) > len(shown) else ""
    if not all(isinstance(row, Mapping) for row in shown):
        return "<br>".join(map(_cell_html, shown)) + more
    names = dict.fromkeys(
        name for row in shown for name, item in row.items() if item is not False and _has_content(item)
    )
    head = "".join(f'<th scope="col" style="{_CELL}">{escape(printable(name))}</th>' for name in names)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="{_CELL}">{_cell_html(row[name])}</td>' if _has_content(row.get(name)) else "<td></td>"
            for name in names
        )
        + "</tr>"
        for row in shown
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _has_content(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_content, value.values()))
    return isinstance(value, bool) or value not in (None, "", 0, [], ())
