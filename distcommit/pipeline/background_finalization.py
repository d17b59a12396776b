"""Attempts whose writers end while the next work units are read: closing a file takes a network a hundred times as long
as reading a few records."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from distcommit.core.support.parallel import beside
from distcommit.pipeline.attempt import Attempt

_MOST_BYTES = 64 << 20
"""Payload that may wait in memory for its writers to end, beside what is read: of one work unit it may be more."""


class Preparing:
    """Has attempts prepared, up to `calls` at a time, and gives them back in the order in which they were read.

    To be entered, and left only once all calls that are under way have ended.

    Args:
        calls: how many calls are worth having in flight; with 1 each is prepared as it is added.
    """

    def __init__(self, calls: int) -> None:
        self._calls = calls
        self._pool = ThreadPoolExecutor(calls)  # whose threads begin as they are needed
        self._begun: deque[tuple[Attempt, Future[None] | None]] = deque()

    def __enter__(self) -> Preparing:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._pool.shutdown()

    def add(self, attempt: Attempt) -> None:
        """Takes one that has read."""
        if self._calls > 1 and attempt.prepares_apart:
            under_way = 1 + sum(1 for _, each in self._begun if each is not None and not each.done())
            self._begun.append((attempt, self._pool.submit(beside, under_way, attempt.prepare)))
        else:
            attempt.prepare()
            self._begun.append((attempt, None))

    def ended(self, *, all_of_them: bool = False) -> Iterator[Attempt]:
        """Those that are prepared. Waits until there is room for one more; or for all of them."""
        while self._begun:
            attempt, under_way = self._begun[0]
            if under_way is not None:
                if not (all_of_them or self._is_full() or under_way.done()):
                    return
                under_way.result()
            self._begun.popleft()
            yield attempt

    def _is_full(self) -> bool:
        return len(self._begun) >= self._calls or sum(attempt.bytes_read for attempt, _ in self._begun) > _MOST_BYTES
