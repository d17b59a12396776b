"""Durations of the parts of a large run, reported at their end and collected."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

Say = Callable[[str], None]


@contextlib.contextmanager
def timing(seconds: dict[str, float], say: Say, name: str) -> Iterator[None]:
    """Measure the time of a block under that name."""
    from_s = time.monotonic()
    yield
    seconds[name] = round(time.monotonic() - from_s, 1)
    say(f"{name}: {seconds[name]:.1f} s")
