"""The time limit of constructs on a batch or schema, which fails the attempt."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn, Protocol

from distcommit.core.errors import TimeLimitError

_REPEAT_S = 1.0
"""Interval of repeated alarms in seconds, for code that catches the first error."""


class Watch(Protocol):
    """Watch that kills the process if a construct does not return from native code, which no signal interrupts."""

    def begin(self, seconds: float, construct: str) -> None:
        """Start the clock."""

    def end(self) -> None:
        """Stop the clock."""


_watches: list[Watch] = []


@contextmanager
def watched_by(watch: Watch) -> Iterator[None]:
    """Report constructs with a limit to the watch."""
    _watches.append(watch)
    try:
        yield
    finally:
        _watches.remove(watch)


@contextmanager
def construct_time_limit(seconds: float, construct: str) -> Iterator[None]:
    """Raise an error in the block after `seconds`; 0 for no limit.

    It works by the alarm signal, only in the main thread, where Spark's workers run tasks. Blocking calls are
    interrupted; native code is left to the `Watch`.

    Raises:
        TimeLimitError: with the name of the converter or checker.
    """
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_time_limit(number: int, frame: FrameType | None) -> NoReturn:
        raise TimeLimitError(
            "a construct exceeded its time limit",
            construct=construct,
            expected=f"at most {seconds:g} s for a batch of records (limits.construct_seconds)",
            todo="correct the construct, or raise the limit; the work unit is not lost",
        )

    before = signal.signal(signal.SIGALRM, raise_time_limit)
    for watch in _watches:
        watch.begin(seconds, construct)
    signal.setitimer(signal.ITIMER_REAL, seconds, _REPEAT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for watch in _watches:
            watch.end()
        signal.signal(signal.SIGALRM, before)
