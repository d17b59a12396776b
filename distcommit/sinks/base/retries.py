"""Number of tries at targets, and the waits between tries. Sinks must not wait anywhere else."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

_LONGEST_WAIT_S = 2.0


def tries(most: int = 12, first_wait_s: float = 0.02) -> Iterator[int]:
    """Yield the numbers of tries from 1, and wait before each but the first. Waits are random, so that conflicting
    sessions spread. Their limit doubles from `first_wait_s` up to two seconds."""
    for number in range(1, most + 1):
        if number > 1:
            time.sleep(random.uniform(0, min(first_wait_s * 2 ** (number - 2), _LONGEST_WAIT_S)))
        yield number
