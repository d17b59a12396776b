"""A time limit to constructs: one that works on a batch, or on a schema, for too long has failed the attempt."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn, Protocol

from distcommit.core.errors import OverdueError

_AGAIN_S = 1.0
"""What swallows the error is given it again after so long."""


class Watch(Protocol):
    """A watch that kills the process if a construct does not return: a signal does not interrupt native code."""

    def begin(self, seconds: float, construct: str) -> None:
        """Start the time of a construct with that limit."""

    def end(self) -> None:
        """Stop it: the construct has returned."""


_watches: list[Watch] = []


@contextmanager
def watched_by(watch: Watch) -> Iterator[None]:
    """Within the block, have each construct watched whose time is limited."""
    _watches.append(watch)
    try:
        yield
    finally:
        _watches.remove(watch)


@contextmanager
def at_most(seconds: float, construct: str) -> Iterator[None]:
    """Raise an error within the block once it has taken longer than this; 0 for no limit.

    The alarm signal of the process raises it, so in the main thread alone, where Spark's executors run their tasks.
    Calls that wait are interrupted. Native code that does not check for signals is left to the `Watch`.

    Raises:
        OverdueError: naming the construct.
    """
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> NoReturn:
        raise OverdueError(
            "a construct does not end",
            construct=construct,
            expected=f"at most {seconds:g} s for a batch of records (limits.construct_seconds)",
            todo="mend it, or raise the limit if it only takes its time; nothing of the work unit is lost",
        )

    before = signal.signal(signal.SIGALRM, ring)
    for watch in _watches:
        watch.begin(seconds, construct)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for watch in _watches:
            watch.end()
        signal.signal(signal.SIGALRM, before)
