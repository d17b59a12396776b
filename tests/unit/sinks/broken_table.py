"""One table that can't be read: clean-up and audit of a sink's other tables go on."""

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


def require_others_go_on(target: Any, ids: Callable[[int], pa.Table], told: str, metadata: Path) -> None:
    """Breaks one of three tables, each with a lost attempt.

    Args:
        target: where they are, as the tests of its sink have it.
        ids: a record of that id.
        told: the table's name in errors.
        metadata: the folder of what it can't be read without, of which only JSON is broken.
    """
    sink = target.sink()
    for name in _NAMES:
        target.commit(sink, target.prepare(sink, name, 1, ids(1)))
        target.prepare(sink, name, 2, ids(2), attempt=f"dead-{name}")
    for path in metadata.rglob("*.json"):
        path.write_bytes(b"{")
    lost = [AbortedAttempt(2, "unit", f"dead-{name}", f"dead-{name}") for name in _NAMES]
    is_named = re.escape(f"names={told}]")
    for _ in range(2):
        with pytest.raises(TransientError, match=is_named):
            target.committer(sink).discard(lost)
    left = {name: sum("dead" in path for path in target.data(name)) for name in _NAMES}
    assert left == {"a": 0, "broken": 1, "z": 0}
    rows = list[str]()
    with pytest.raises(TransientError, match=is_named):
        rows.extend(row.dataset_urn for row in target.committer(sink).ledger())
    assert sorted(rows) == ["a", "z"]
