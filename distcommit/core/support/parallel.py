"""Concurrent calls in threads, for calls that wait for storage or a network."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_calls_in_flight: ContextVar[int] = ContextVar("sharing", default=1)
"""Number of calls that are in flight already, including this thread's."""


def run_parallel(calls: int, act: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return the results of `act` for all items, in order, with at most `calls` running concurrently.

    With one call, everything runs in this thread, one item after the other. Nested calls share the limit. The first
    error is raised. With several calls, other items may have run by then; items that were not started never run.
    """
    sharing = _calls_in_flight.get()
    calls = max(1, calls // sharing)
    if calls == 1 or len(items) <= 1:
        return [act(item) for item in items]
    workers = min(calls, len(items))
    with ThreadPoolExecutor(workers, initializer=_calls_in_flight.set, initargs=(sharing * workers,)) as pool:
        return list(pool.map(act, items))


def run_sharing_limit(calls: int, act: Callable[[], Result]) -> Result:
    """Return the result of `act`, run as one of `calls` concurrent calls, so that nested calls share the limit."""
    token = _calls_in_flight.set(calls)
    try:
        return act()
    finally:
        _calls_in_flight.reset(token)


def run_ahead(calls: int, act: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result, None, None]:
    """Yield the results of `act` in order, with at most `calls` items started and not yet yielded.

    With one call, each item runs in this thread. Nested calls do not share this limit.
    """
    if calls <= 1:
        yield from map(act, items)
        return
    with ThreadPoolExecutor(calls) as pool:
        started: deque[Future[Result]] = deque()
        try:
            for item in items:
                started.append(pool.submit(act, item))
                if len(started) == calls:
                    yield started.popleft().result()
            while started:
                yield started.popleft().result()
        finally:
            for future in started:
                future.cancel()
