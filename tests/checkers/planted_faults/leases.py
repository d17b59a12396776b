"""Faults to be planted: leases of a foreign host, and runs that are to end."""

from __future__ import annotations

from tests.checkers.planted_faults.parts import FaultClass, fault

_LOCK = ("tests/unit/stores/state/test_job_lock.py",)
_CANCEL = ("tests/unit/spark/test_cancellation.py",)

LEASES = (
    fault(
        FaultClass.LEASE,
        "clock-ahead-holds-for-ever",
        "a lease that was renewed in the future holds until then",
        (
            "stores.state.job_lock",
            "is_alive",
            "abs(clock.now_ms() - holder.renewed_ms)",
            "clock.now_ms() - holder.renewed_ms",
        ),
        tests=_LOCK,
    ),
    fault(
        FaultClass.LEASE,
        "clock-ahead-holds-nothing",
        "a lease of a host whose clock is ahead counts as run out",
        (
            "stores.state.job_lock",
            "is_alive",
            "abs(clock.now_ms() - holder.renewed_ms) < holder.lease_ttl_s * 1000",
            "0 <= clock.now_ms() - holder.renewed_ms < holder.lease_ttl_s * 1000",
        ),
        tests=_LOCK,
    ),
    fault(
        FaultClass.LEASE,
        "processes-of-other-hosts-are-looked-for-here",
        "the process of another host counts as dead, as this one has none of its number",
        (
            "stores.state.job_lock",
            "is_alive",
            "holder.host == socket.gethostname() and _process_start(holder.pid) != holder.process_start",
            "_process_start(holder.pid) != holder.process_start",
        ),
        tests=_LOCK,
    ),
    fault(
        FaultClass.LEASE,
        "renewed-after-it-was-taken-over",
        "a holder renews the lock that another one has taken over",
        (
            "stores.state.job_lock",
            "JobLock._renew",
            "holder is None or holder.owner_id != self._record.owner_id",
            "False",
        ),
        tests=_LOCK,
    ),
    fault(
        FaultClass.LEASE,
        "cancelled-run-launches",
        "a run that is to end launches what comes next",
        (
            "spark.cancellation",
            "CancellableLaunch.__call__",
            "self.check_cancellation()\ntry:\n    return self.launch(function, settings, tasks, kind)\n"
            "except (JobFailedError, ConfigurationError, ProcessLostError):\n    self.check_cancellation()\n    raise",
            "try:\n    return self.launch(function, settings, tasks, kind)\n"
            "except (JobFailedError, ConfigurationError, ProcessLostError):\n    self.check_cancellation()\n    raise",
        ),
        tests=_CANCEL,
    ),
    fault(
        FaultClass.LEASE,
        "interrupted-run-has-failed",
        "what was interrupted, as the run is to end, is reported as a failure",
        (
            "spark.cancellation",
            "CancellableLaunch.__call__",
            "self.check_cancellation()\nraise",
            "raise",
        ),
        tests=_CANCEL,
    ),
    fault(
        FaultClass.LEASE,
        "cancelled-by-the-request-of-another-run",
        "a run ends by the request to end an older one",
        (
            "spark.cancellation",
            "cancellable",
            "read_cancel(store.fs, store.roots.store, epoch)",
            "next(filter(None, (read_cancel(store.fs, store.roots.store, e) for e in range(1, epoch + 2))), None)",
        ),
        tests=_CANCEL,
    ),
)
