"""What a task's attempts at work units have read so far, and at what they spent their time, while they are at it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

READ, WRITE = "read", "write"
"""What an attempt spends its time on beside its constructs: the extractor, and a branch's writer."""


def activity_in(branch: str, name: str) -> str:
    """An activity's name, behind a fork with its branch in front."""
    return f"{branch}.{name}" if branch else name


@dataclass(slots=True)
class Live:
    """All attempts of one task, for people to look at. `tell` is called when there may be news: after each batch."""

    tell: Callable[[], None] = lambda: None
    records: int = 0
    bytes_read: int = 0
    _ended: dict[str, float] = field(default_factory=dict)
    _at_work: Mapping[str, float] = field(default_factory=dict)

    @property
    def spent(self) -> dict[str, float]:
        """Seconds by activity."""
        ended, now = self._ended, self._at_work
        return {activity: ended.get(activity, 0) + now.get(activity, 0) for activity in (*ended, *now)}

    @contextmanager
    def at(self, activity: str) -> Iterator[None]:
        """Counts the time of the block."""
        began_s = time.perf_counter()
        try:
            yield
        finally:
            self._ended[activity] = self._ended.get(activity, 0) + time.perf_counter() - began_s

    def took(self, records: int, bytes_read: int, spent: Mapping[str, float]) -> None:
        """A batch is through. `spent`: by the attempt so far."""
        self.records += records
        self.bytes_read += bytes_read
        self._at_work = spent
        self.tell()

    def ended(self, spent: Mapping[str, float]) -> None:
        """An attempt has, having spent that."""
        self._at_work = spent
        self._ended, self._at_work = self.spent, {}
