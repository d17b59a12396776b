"""Counters of a running task."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

READ, WRITE = "read", "write"
"""Activities of extractor and writers."""


def activity_in(branch: str, name: str) -> str:
    return f"{branch}.{name}" if branch else name


@dataclass(slots=True)
class ProgressCounters:
    """Counters of all attempts of a task.

    Attributes:
        on_change: called after each batch.
        records: records read.
        bytes_read: payload bytes read.
    """

    on_change: Callable[[], None] = lambda: None
    records: int = 0
    bytes_read: int = 0
    _ended: dict[str, float] = field(default_factory=dict)
    _at_work: Mapping[str, float] = field(default_factory=dict)

    @property
    def seconds_by_activity(self) -> dict[str, float]:
        ended, now = self._ended, self._at_work
        return {activity: ended.get(activity, 0) + now.get(activity, 0) for activity in (*ended, *now)}

    @contextmanager
    def at(self, activity: str) -> Iterator[None]:
        began_s = time.perf_counter()
        try:
            yield
        finally:
            self._ended[activity] = self._ended.get(activity, 0) + time.perf_counter() - began_s

    def count_batch(self, records: int, bytes_read: int, spent: Mapping[str, float]) -> None:
        """Count a batch; `spent`: the attempt's seconds by activity."""
        self.records += records
        self.bytes_read += bytes_read
        self._at_work = spent
        self.on_change()

    def ended(self, spent: Mapping[str, float]) -> None:
        """End the attempt, and add its seconds by activity."""
        self._at_work = spent
        self._ended, self._at_work = self.seconds_by_activity, {}
