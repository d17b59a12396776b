"""Warnings about tables whose changed rows are never read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from sqlalchemy import types

from distcommit.core.interfaces.source_table import TableType
from distcommit.sources.sql.arrow_columns import kind_of
from distcommit.sources.sql.table_reflection import Reflected
from distcommit.sources.sql.table_selection import Tables
from distcommit.sources.watermark_column import Kind

_OF_CHANGES = re.compile(r"updat|modif|chang", re.IGNORECASE)
_OF_TIMES = re.compile(r"(at|on|time|date|ts)$", re.IGNORECASE)


def missed_update_warnings(
    reflected: Mapping[str, Reflected], select: Tables, table_type: str, dialect: str
) -> Iterator[str]:
    """Yield warnings about tables read by an integer key although rows may change.

    Rows may change if `table_type` is `snapshot_append`, or if a column has a name like `updated_at`.
    """
    for name, table in sorted(reflected.items()):
        rules = select.rules_of(name)
        declared = {column["name"]: column["type"] for column in table.columns}
        watermark = declared.get(rules.watermark)
        if watermark is None or kind_of(watermark, dialect) is not Kind.INTEGER:
            continue
        if rules.watermark not in table.unique and rules.keys != (rules.watermark,):
            continue
        changed = next((column for column, type_ in declared.items() if _is_time_of_change(column, type_, dialect)), "")
        start = f"table {name}: a row that changes is not read again, because the watermark column"
        start += f" {rules.watermark} is an integer key"
        setting = f"source.overrides.{name}.watermark"
        if table_type == TableType.SNAPSHOT_APPEND:
            column = changed or "a column that each change sets to the present time"
            yield f"{start}, but source.table_type is snapshot_append. Before the first run, set {setting} to {column}"
        elif changed:
            yield (
                f"{start}; column {changed} looks like a time of change. If rows change, set {setting} to {changed} and"
                " source.table_type to snapshot_append before the first run"
            )


def _is_time_of_change(column: str, declared: types.TypeEngine[object], dialect: str) -> bool:
    if not _OF_CHANGES.search(column):
        return False
    is_text = kind_of(declared, dialect) is Kind.TEXT and _OF_TIMES.search(column) is not None
    return isinstance(declared, types.DateTime) or is_text
