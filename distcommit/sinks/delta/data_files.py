"""Data files in commit infos and in a table's log."""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from deltalake.transaction import AddAction, RemoveAction


def partition_text(value: Any) -> str | None:
    """Return a partition value as the log stores it. Raises ValueError for an empty text, which is read as null."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case datetime.date():
            return value.isoformat()
        case "":
            raise ValueError("an empty text")
    return str(value)


def added(info: Mapping[str, Any]) -> AddAction:
    """Return the action that adds a file. It has no bounds of columns, because with bounds deltalake would skip the
    file in queries of columns that were added later."""
    return AddAction(
        path=name_in_table(info["path"]),
        size=info["bytes"],
        partition_values=info["partition"],
        modification_time=info["made_ms"],
        data_change=True,
        stats=msgspec.json.encode({"numRecords": info["rows"]}).decode(),
    )


def removal(info: Mapping[str, Any]) -> RemoveAction:
    return RemoveAction(
        path=name_in_table(info["path"]),
        data_change=True,
        deletion_timestamp=int(time.time() * 1000),
        size=info["bytes"],
        partition_values=info["partition"],
    )


def name_in_table(path: str) -> str:
    return path.partition("/")[2]
