"""A check that one unreadable table does not stop clean-up and audit of a sink's other tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from distcommit.core.errors import TransientError
from distcommit.core.interfaces.committer import AbortedAttempt

_NAMES = ("a", "broken", "z")


def require_other_tables_work(target: Any, ids: Callable[[int], pa.Table], table_name: str, metadata: Path) -> None:
    """Break one of three tables, each with an aborted attempt, and check the other two.

    Args:
        target: The tables, as provided by the tests of their sink.
        ids: Returns a record with the given id.
        table_name: The broken table's name in errors.
        metadata: The folder without which the table can't be read; only its JSON files are damaged.
    """
    sink = target.sink()
    for name in _NAMES:
        target.commit(sink, target.prepare(sink, name, 1, ids(1)))
        target.prepare(sink, name, 2, ids(2), attempt=f"dead-{name}")
    for path in metadata.rglob("*.json"):
        path.write_bytes(b"{")
    lost = [AbortedAttempt(2, "unit", f"dead-{name}", f"dead-{name}") for name in _NAMES]
    is_named = re.escape(f"names={table_name}]")
    for _ in range(2):
        with pytest.raises(TransientError, match=is_named):
            target.committer(sink).abort(lost)
    dead_files = {name: sum("dead" in path for path in target.data(name)) for name in _NAMES}
    assert dead_files == {"a": 0, "broken": 1, "z": 0}
    rows = list[str]()
    with pytest.raises(TransientError, match=is_named):
        rows.extend(row.dataset_urn for row in target.committer(sink).ledger())
    assert sorted(rows) == ["a", "z"]
