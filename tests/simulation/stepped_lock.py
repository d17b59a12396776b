"""The job lock without its thread: for tests that decide when it is renewed."""

from __future__ import annotations

import threading

from distcommit.stores.state.job_lock import JobLock


class SteppedLock(JobLock):
    """Renews its lease when it is told to, not from a thread."""

    def _renew(self) -> None:
        """The thread ends at once."""

    def renew(self) -> None:
        """What the thread does each time that it wakes up."""
        self._stop = _Once()
        super()._renew()

    def is_mine(self) -> bool:
        """Whether the newest record is this holder's."""
        holder = self._newest()[1]
        return holder is not None and holder.owner_id == self._record.owner_id


class _Once(threading.Event):
    """Lets the renewing loop go round once."""

    def __init__(self) -> None:
        super().__init__()
        self._rounds = 0

    def wait(self, timeout: float | None = None) -> bool:
        self._rounds += 1
        return self._rounds > 1
