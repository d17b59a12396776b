"""Counters that a sink defines, and that its writers and committers increase."""

from __future__ import annotations

from operator import index

from distcommit.core.errors import plain_text
from distcommit.core.records.run_counts import MOST_COUNTERS, OTHER, SinkCounter

_LONGEST_NAME = 64
_LARGEST = 1 << 48
"""Limit of a counter, so that sums of counters fit into 64 bits."""


class SinkMetrics:
    """The counters, by name, of one writer or of one call of a committer.

    A run adds them up by branch and sink. It keeps the first 20 names of a sink; further names are counted together as
    `other`. Not thread-safe.

    Args:
        branch: the branch.
        sink: name of the sink.
    """

    def __init__(self, branch: str = "", sink: str = "") -> None:
        self._branch, self._sink = branch, sink
        self._counts: dict[str, int] = {}
        self._parts: list[SinkMetrics] = []

    def count(self, name: str, amount: int = 1) -> None:
        """Increase a counter. A name is cut to 64 characters, and a negative amount is ignored.

        Raises:
            TypeError: if the amount is not an integer.
        """
        name = plain_text(name, _LONGEST_NAME)[:_LONGEST_NAME]
        if name not in self._counts and len(self._counts) >= MOST_COUNTERS:
            name = OTHER
        self._counts[name] = min(self._counts.get(name, 0) + max(0, index(amount)), _LARGEST)

    def part(self, branch: str, sink: str) -> SinkMetrics:
        """Create and return the counters of one branch of the attempt. The result of `counters` includes them."""
        self._parts.append(SinkMetrics(branch, sink))
        return self._parts[-1]

    def counters(self) -> tuple[SinkCounter, ...]:
        """Return the values of these counters and of their parts."""
        own = (SinkCounter(self._branch, self._sink, name, count) for name, count in self._counts.items())
        return (*own, *(counter for part in self._parts for counter in part.counters()))
