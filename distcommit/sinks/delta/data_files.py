"""Data files as commit infos, and as the actions that add them and take them away."""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from deltalake.transaction import AddAction, RemoveAction


def partition_text(value: Any) -> str | None:
    """A partition's value as the log has it. An empty text there is null."""
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
    """The action that adds a file to its table.

    It says how many rows there are, and no bounds of columns: deltalake takes a bound that is missing, as of a column
    that came later or that has no bound, for one that no row keeps, and passes over the file.
    """
    return AddAction(
        path=name_in_table(info["path"]),
        size=info["bytes"],
        partition_values=info["partition"],
        modification_time=info["made_ms"],
        data_change=True,
        stats=msgspec.json.encode({"numRecords": info["rows"]}).decode(),
    )


def removed(info: Mapping[str, Any]) -> RemoveAction:
    """The action that takes it away."""
    return RemoveAction(
        path=name_in_table(info["path"]),
        data_change=True,
        deletion_timestamp=int(time.time() * 1000),
        size=info["bytes"],
        partition_values=info["partition"],
    )


def name_in_table(path: str) -> str:
    """The file's name in its table's folder; `path` begins with the table's."""
    return path.partition("/")[2]
