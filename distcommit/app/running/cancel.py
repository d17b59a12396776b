"""Ending a live run from any machine that reaches the store."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from distcommit.app.inspection.runs import RunRow, RunStatus, read_runs
from distcommit.core.ports import Clock
from distcommit.stores.history.run_records import CANCEL_VERSION, CancelRequest, put_cancel
from distcommit.stores.state.job_lock import release_overdue
from distcommit.stores.state.job_store import JobStore

_EVERY_S = 0.5


class CancelResult(msgspec.Struct, frozen=True):
    """`runs`: those that were told to end, as they stand now. `ended`: whether all of them have; True if there was
    none. `pending`: a run that has no epoch yet could not be told."""

    job: str
    runs: list[RunRow]
    ended: bool
    pending: bool = False


def cancel_runs(
    store: JobStore, who: str, clock: Clock, wait_s: float, told: Callable[[int], None] = lambda _: None
) -> CancelResult:
    """Tells each live run of the job to end, and waits until none of them lives.

    A run looks for it every second, interrupts its tasks, and launches nothing else: nothing more is sealed or
    published, and what was sealed stays for the next run. One that has died counts as ended once its lease has run out.
    One that should have renewed its lease by now, and has not, is told the same, and its lock is taken away at once.

    Args:
        store: the job's.
        who: who wants it.
        clock: the time.
        wait_s: how long to wait at most.
        told: called with the epoch of each run that is told.

    Raises:
        DistcommitError: if the store can't be written.
    """
    begun_s, asked = clock.monotonic_s(), dict[int, RunRow]()
    while True:
        rows = read_runs(store, clock).runs
        asked |= {row.epoch: row for row in rows if row.epoch in asked}
        living = [row for row in rows if row.status is RunStatus.RUNNING]
        pending = any(row.status is RunStatus.PENDING for row in rows)
        for row in living:
            if row.epoch not in asked:
                put_cancel(store, CancelRequest(CANCEL_VERSION, row.epoch, who, clock.now_ms()))
                told(row.epoch)
            asked[row.epoch] = row
        overdue = [row.run_id for row in rows if row.overdue]
        if any(release_overdue(store.fs, store.roots.store, run_id, clock) for run_id in overdue):
            continue
        ended = not living and not pending
        if ended or clock.monotonic_s() - begun_s >= wait_s:
            return CancelResult(store.job, [asked[epoch] for epoch in sorted(asked)], ended, pending)
        clock.sleep(_EVERY_S)
