"""How long a task waits before it tries again, and what it does meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable

from distcommit.engine.settings import RunSettings

LONGEST_WAIT_S = 60.0
_LOOK_S = 0.5
"""A task that waits looks about itself this often, or once in a commit interval, if that is longer."""


def back_off_s(first_s: float, attempt: int, chance: float) -> float:
    """Seconds before attempt number `attempt` (1 is the second): twice as long each time, up to a minute (or to
    `first_s`, if that is longer). `chance` (0 to 1) takes up to a half off, so that tasks do not all come back at once.
    """
    longest_s = max(first_s, LONGEST_WAIT_S)
    return min(longest_s, first_s * 2.0 ** min(attempt - 1, 60)) * (1 - chance / 2)


def waited(settings: RunSettings, attempt: int, look: Callable[[], None]) -> bool:
    """Waits before attempt number `attempt`; False, at once, when the run's time is up.

    Args:
        settings: the run.
        attempt: 1 is the second.
        look: what is to go on meanwhile; what it raises ends the waiting.
    """
    clock = settings.clock
    until_s = clock.monotonic_s() + back_off_s(settings.retry_wait_s, attempt, random.random())
    while not (settings.deadline_ms and clock.now_ms() >= settings.deadline_ms):
        left_s = until_s - clock.monotonic_s()
        if left_s <= 0:
            return True
        look()
        clock.sleep(min(left_s, max(settings.min_interval_s, _LOOK_S)))
    return False
