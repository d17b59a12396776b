"""Preparation of attempts' commits in threads, while the task reads on.

Closing files over a network takes about a hundred times as long as reading a few records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from distcommit.core.support.parallel import run_sharing_limit
from distcommit.pipeline.task_attempt import Attempt

_MOST_BYTES = 64 << 20
"""Maximum payload of unprepared attempts, in bytes. A single work unit may exceed it."""


class BackgroundFinalization:
    """Preparation of up to `calls` attempts at a time, which returns them in the order in which they were read.

    Use it as a context manager. Leaving the block waits for all calls in progress.

    Args:
        calls: number of `prepare` calls that may run at once. With 1, `add` prepares the attempt itself.
    """

    def __init__(self, calls: int) -> None:
        self._calls = calls
        self._pool = ThreadPoolExecutor(calls)  # starts threads on demand
        self._begun: deque[tuple[Attempt, Future[None] | None]] = deque()

    def __enter__(self) -> BackgroundFinalization:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._pool.shutdown()

    def add(self, attempt: Attempt) -> None:
        """Start to prepare a read attempt."""
        if self._calls > 1 and attempt.prepares_in_background:
            in_progress = 1 + sum(1 for _, call in self._begun if call is not None and not call.done())
            self._begun.append((attempt, self._pool.submit(run_sharing_limit, in_progress, attempt.prepare)))
        else:
            attempt.prepare()
            self._begun.append((attempt, None))

    def ended(self, *, all_of_them: bool = False) -> Iterator[Attempt]:
        """Yield prepared attempts. Wait until another can be added or, with `all_of_them`, until all are prepared."""
        while self._begun:
            attempt, call = self._begun[0]
            if call is not None:
                if not (all_of_them or self._is_full() or call.done()):
                    return
                call.result()
            self._begun.popleft()
            yield attempt

    def _is_full(self) -> bool:
        return len(self._begun) >= self._calls or sum(attempt.bytes_read for attempt, _ in self._begun) > _MOST_BYTES
