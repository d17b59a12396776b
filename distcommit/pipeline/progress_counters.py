"""Counters of what a task has read and where it spent its time, readable while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

READ, WRITE = "read", "write"
"""Activities beside constructs: the extractor, and a branch's writer."""


def activity_in(branch: str, name: str) -> str:
    """Return the activity's name; behind a fork with the branch in front."""
    return f"{branch}.{name}" if branch else name


@dataclass(slots=True)
class ProgressCounters:
    """Counters of all attempts of one task.

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
        """Seconds by activity, of ended attempts and the current one."""
        ended, now = self._ended, self._at_work
        return {activity: ended.get(activity, 0) + now.get(activity, 0) for activity in (*ended, *now)}

    @contextmanager
    def at(self, activity: str) -> Iterator[None]:
        """Count the time of the block as time of the activity."""
        began_s = time.perf_counter()
        try:
            yield
        finally:
            self._ended[activity] = self._ended.get(activity, 0) + time.perf_counter() - began_s

    def count_batch(self, records: int, bytes_read: int, spent: Mapping[str, float]) -> None:
        """Count a batch. `spent` is what the current attempt has spent so far: seconds by activity."""
        self.records += records
        self.bytes_read += bytes_read
        self._at_work = spent
        self.on_change()

    def ended(self, spent: Mapping[str, float]) -> None:
        """End the current attempt, and add what it has spent, in seconds by activity."""
        self._at_work = spent
        self._ended, self._at_work = self.seconds_by_activity, {}
