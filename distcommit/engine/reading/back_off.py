"""The wait of a task before it retries."""

from __future__ import annotations

import random
from collections.abc import Callable

from distcommit.engine.run_settings import RunSettings

LONGEST_WAIT_S = 60.0
_LOOK_S = 0.5
"""Seconds between calls of `look`, unless the commit interval is longer."""


def back_off_s(first_s: float, attempt: int, chance: float) -> float:
    """Return the seconds to wait before attempt number `attempt` (1 is the second attempt).

    The wait doubles each time, up to a minute, or up to `first_s` if that is longer. `chance` (0 to 1) shortens it by
    up to a half, so that tasks do not retry at the same moment.
    """
    longest_s = max(first_s, LONGEST_WAIT_S)
    return min(longest_s, first_s * 2.0 ** min(attempt - 1, 60)) * (1 - chance / 2)


def wait_before_retry(settings: RunSettings, attempt: int, look: Callable[[], None]) -> bool:
    """Wait before attempt number `attempt`. Return False, at once, if the run's deadline has passed.

    Args:
        attempt: 1 is the second attempt.
        look: called meanwhile; its exceptions end the wait.
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
