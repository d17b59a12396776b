"""The clock that stores, steps and writers use."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Time for leases, pacing and reports. Correctness never depends on it."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds that never decrease."""
        ...

    def sleep(self, seconds: float) -> None: ...
