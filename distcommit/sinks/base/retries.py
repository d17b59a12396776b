"""Trying again at targets: how often, and how long to wait in between. Nowhere else do sinks wait for another try."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

_LONGEST_WAIT_S = 2.0


def tries(most: int = 12, first_wait_s: float = 0.02) -> Iterator[int]:
    """The numbers of tries, from 1 on, each but the first after a while: of random length, so that those who were in
    each other's way come back apart, and up to twice as long each time, but never longer than two seconds.

    Args:
        most: how many there are.
        first_wait_s: the longest wait before the second, in seconds.
    """
    for number in range(1, most + 1):
        if number > 1:
            time.sleep(random.uniform(0, min(first_wait_s * 2 ** (number - 2), _LONGEST_WAIT_S)))
        yield number
