"""Having many calls in flight at once, where each of them waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_sharing: ContextVar[int] = ContextVar("sharing", default=1)
"""How many calls, this thread's among them, are in flight already."""


def in_flight(calls: int, act: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """The results of `act` for all items, in their order, with up to `calls` of them running at a time.

    With 1, one after the other in this thread. The first error is raised; with more than one call in flight others may
    have run, and those not begun yet are not. What is begun within another such call shares its number.
    """
    sharing = _sharing.get()
    calls = max(1, calls // sharing)
    if calls == 1 or len(items) <= 1:
        return [act(item) for item in items]
    workers = min(calls, len(items))
    with ThreadPoolExecutor(workers, initializer=_sharing.set, initargs=(sharing * workers,)) as pool:
        return list(pool.map(act, items))


def beside(calls: int, act: Callable[[], Result]) -> Result:
    """The result of `act`, one of so many calls that are in flight: what it begins shares their number."""
    token = _sharing.set(calls)
    try:
        return act()
    finally:
        _sharing.reset(token)


def ahead(calls: int, act: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result, None, None]:
    """The results of `act` in the order of the items, as they are asked for, with up to `calls` items begun and not
    handed over. With 1, each in this thread. It does not share its number with what is begun within."""
    if calls <= 1:
        yield from map(act, items)
        return
    with ThreadPoolExecutor(calls) as pool:
        begun: deque[Future[Result]] = deque()
        try:
            for item in items:
                begun.append(pool.submit(act, item))
                if len(begun) == calls:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for each in begun:
                each.cancel()
