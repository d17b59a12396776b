"""Reads of the values of many names in background threads, so that a hanging read does not delay the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Value = TypeVar("Value")

_PARALLEL, _MOST_THREADS, _HUNG_S = 8, 64, 5.0
"""Maximum of parallel reads; maximum of threads, with hanging reads; seconds after which a read counts as hanging."""
_FORGET_S = 600.0
"""Age in seconds after which a value is deleted, unless the caller asks for it."""


@dataclass(frozen=True, slots=True)
class Reading(Generic[Value]):
    """The newest value of a name.

    Attributes:
        value: result of the last read that ended; None if none has ended.
        waited_s: how long an unfinished read is taking, in seconds; 0 if there is none.
    """

    value: Value | None
    waited_s: float


class BackgroundReads(Generic[Value]):
    """A reader of values by name. For each name at most one read is in progress.

    Args:
        read: returns the value of a name, and raises nothing.
    """

    def __init__(self, read: Callable[[str], Value]) -> None:
        self._read = read
        self._changed = threading.Condition()
        self._started: dict[str, float] = {}
        self._ended: dict[str, tuple[float, Value]] = {}

    def newest(self, names: Sequence[str], *, wait_s: float, max_age_s: float = 0) -> dict[str, Reading[Value]]:
        """Read the value of each name, wait for the reads, and return the newest values.

        Args:
            wait_s: longest wait in seconds. Reads that take longer continue for a later call.
            max_age_s: age in seconds up to which a value is not read again.
        """
        began = time.monotonic()
        with self._changed:
            self._ended = {
                name: entry for name, entry in self._ended.items() if name in names or entry[0] > began - _FORGET_S
            }
            oldest_first = sorted(names, key=lambda name: self._ended[name][0] if name in self._ended else 0.0)
            while waiting := [name for name in oldest_first if not self._is_newer(name, began - max_age_s)]:
                self._start([name for name in waiting if name not in self._started])
                remaining_s = began + wait_s - time.monotonic()
                if remaining_s <= 0:
                    break
                self._changed.wait(min(remaining_s, 0.5))
            now = time.monotonic()
            return {
                name: Reading(self._ended[name][1] if name in self._ended else None, now - self._started.get(name, now))
                for name in names
            }

    def _is_newer(self, name: str, than: float) -> bool:
        return name in self._ended and self._ended[name][0] >= than

    def _start(self, names: Sequence[str]) -> None:
        now = time.monotonic()
        active = sum(1 for started in self._started.values() if now < started + _HUNG_S)
        for name in names[: max(0, min(_PARALLEL - active, _MOST_THREADS - len(self._started)))]:
            self._started[name] = now
            threading.Thread(target=self._run, args=(name,), name=f"read of {name}", daemon=True).start()

    def _run(self, name: str) -> None:
        value = self._read(name)
        with self._changed:
            del self._started[name]
            self._ended[name] = time.monotonic(), value
            self._changed.notify_all()
