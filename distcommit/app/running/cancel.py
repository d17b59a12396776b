"""Cancel live runs from any machine that reaches the store."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from distcommit.app.inspection.recorded_runs import RunRow, RunStatus, read_runs
from distcommit.core.interfaces.clock import Clock
from distcommit.stores.history.run_records import CANCEL_VERSION, CancelRequest, put_cancel
from distcommit.stores.state.job_lock import release_late_lock
from distcommit.stores.state.job_store import JobStore

_EVERY_S = 0.5


class CancelResult(msgspec.Struct, frozen=True):
    """The result of a cancellation.

    Attributes:
        job: name of the job.
        runs: cancelled runs with their present status.
        ended: whether no run of the job is alive.
        pending: whether a live run could not be cancelled, because it has no epoch yet.
    """

    job: str
    runs: list[RunRow]
    ended: bool
    pending: bool = False


def cancel_runs(
    store: JobStore, user: str, clock: Clock, wait_s: float, on_request: Callable[[int], None] = lambda _: None
) -> CancelResult:
    """Request each live run of the job to end, and wait until no run is alive.

    A run checks for the request every second. Then it interrupts its tasks, and seals and publishes nothing more. The
    next run replays its sealed sequences. A run that died counts as ended once its lease has expired. A run whose lease
    is late loses its lock at once. Raises DistcommitError if the store can't be written.

    Args:
        on_request: called with the epoch of each run that gets a request.
    """
    begun_s, requested = clock.monotonic_s(), dict[int, RunRow]()
    while True:
        rows = read_runs(store, clock).runs
        requested |= {row.epoch: row for row in rows if row.epoch in requested}
        living = [row for row in rows if row.status is RunStatus.RUNNING]
        pending = any(row.status is RunStatus.PENDING for row in rows)
        for row in living:
            if row.epoch not in requested:
                put_cancel(store, CancelRequest(CANCEL_VERSION, row.epoch, user, clock.now_ms()))
                on_request(row.epoch)
            requested[row.epoch] = row
        late_runs = [row.run_id for row in rows if row.is_renewal_late]
        if any(release_late_lock(store.fs, store.roots.store, run_id, clock) for run_id in late_runs):
            continue
        ended = not living and not pending
        if ended or clock.monotonic_s() - begun_s >= wait_s:
            return CancelResult(store.job, [requested[epoch] for epoch in sorted(requested)], ended, pending)
        clock.sleep(_EVERY_S)
