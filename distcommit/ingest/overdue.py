"""An end to constructs that never end: one that works on a batch for too long has failed the attempt."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from distcommit.model.errors import OverdueError

_AGAIN_S = 1.0
"""What swallows the error is given it again after so long."""


@contextmanager
def at_most(seconds: float, construct: str) -> Iterator[None]:
    """Ends what goes on within, once it has taken longer than this; 0 for no limit.

    By the process's alarm signal, so in its main thread alone, where Spark's executors run their tasks. What waits is
    woken. C code that neither returns nor looks for signals is not interrupted.

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
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
