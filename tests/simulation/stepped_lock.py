"""The job lock without its thread, for tests that decide when it is renewed."""

from __future__ import annotations

import threading

from distcommit.stores.state.job_lock import JobLock


class SteppedLock(JobLock):
    """Lock that renews its lease on request, not from a thread."""

    def _renew(self) -> None:
        """Return at once, so that the thread ends."""

    def renew(self) -> None:
        """Renew as the thread does each time that it wakes up."""
        self._stop = _Once()
        super()._renew()

    def is_mine(self) -> bool:
        """Return whether the newest record is this holder's."""
        holder = self._newest()[1]
        return holder is not None and holder.owner_id == self._record.owner_id


class _Once(threading.Event):
    """Stop signal that lets the renewing loop run once."""

    def __init__(self) -> None:
        super().__init__()
        self._rounds = 0

    def wait(self, timeout: float | None = None) -> bool:
        self._rounds += 1
        return self._rounds > 1
