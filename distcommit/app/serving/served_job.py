"""One job of a service: a thread that polls operator requests and runs the job on order.

The thread does not know the schedule. It receives orders and reports by messages.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from queue import Empty, SimpleQueue

from distcommit.app.jobs.job import Job
from distcommit.app.running.alert_delivery import Alert, send_alert
from distcommit.app.running.run_alerts import ALERTS
from distcommit.core.errors import CorruptError, LockHeldError, RunCancelledError, UnknownVersionError, error_text
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.support.counts import count_of
from distcommit.engine.driver.run import RunResult
from distcommit.engine.run_events import Event, Observer, RunBegan
from distcommit.stores.history.run_records import (
    CANCEL_VERSION,
    CancelRequest,
    put_cancel,
    read_beginning,
    recorded_epochs,
)
from distcommit.stores.operator.schedule_requests import ScheduleRequests, delete_triggers, read_requests

logger = logging.getLogger(__name__)

_MAY_BE_PAUSED = "the run did not begin, because the requests of operators can't be read"

Launcher = Callable[[Job, Observer], RunResult]
"""Function that runs a job once."""


class Outcome(StrEnum):
    """How an ordered run ended, or why it did not begin."""

    COMMITTED = "committed"
    INCOMPLETE = "incomplete"
    """Some datasets were not committed."""
    CANCELLED = "cancelled"
    FAILED = "failed"
    HELD = "held"
    """Another run of the job is alive."""
    PAUSED = "paused"
    """An operator paused the job before the run began."""


@dataclass(frozen=True, slots=True)
class ScheduleCheck:
    """Message with the operator requests in a job's store.

    Attributes:
        name: name of the job file.
        requests: open requests; none if they could not be read.
        began_ms: start of the newest run with a readable record when the store was first read, in milliseconds since
            1970; None before the first run.
        problem: why the requests could not be read; empty if they were.
    """

    name: str
    requests: ScheduleRequests
    began_ms: int | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class TriggerTaken:
    """Message that the job's thread has begun to execute an order to run, because its storage responds.

    Attributes:
        name: name of the job file.
    """

    name: str


@dataclass(frozen=True, slots=True)
class RunBegun:
    """Message that a run has its epoch.

    Attributes:
        name: name of the job file.
        epoch: epoch of the run.
    """

    name: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Restarted:
    """Message that the thread of a job died and was restarted.

    Attributes:
        name: name of the job file.
        reason: error that ended the thread.
    """

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """Message that an ordered run has ended, or did not begin.

    Attributes:
        name: name of the job file.
        outcome: how the run ended, or why it did not begin.
        epoch: epoch of the run; 0 if it did not get one.
        seconds: duration in seconds; 0 if the run did not begin.
        text: what the run published, or the error.
    """

    name: str
    outcome: Outcome
    epoch: int
    seconds: float
    text: str


Message = ScheduleCheck | TriggerTaken | RunBegun | Restarted | Ended


@dataclass(frozen=True, slots=True)
class _Run:
    is_triggered: bool


@dataclass(frozen=True, slots=True)
class _Change:
    job: Job


@dataclass(frozen=True, slots=True)
class _Leave:
    pass


class ServedJob:
    """A job with its thread. Methods put orders into a queue and return at once; the thread executes them in order.

    Args:
        name: name of the job file.
        job: the job.
        launch: runs the job.
        inbox: queue that receives the messages.
        poll_s: seconds between polls for requests.
    """

    def __init__(self, name: str, job: Job, launch: Launcher, inbox: SimpleQueue[Message], poll_s: float) -> None:
        self.name, self._job, self._launch, self._inbox, self._poll_s = name, job, launch, inbox, poll_s
        self._orders: SimpleQueue[_Run | _Change | _Leave] = SimpleQueue()
        self._store: tuple[FileSystem, str] | None = None
        self._began_ms: int | None = None
        self._failures = self._epoch = 0
        self._wanted: frozenset[str] = frozenset()
        self._thread = threading.Thread(target=self._supervise, name=f"job {name}", daemon=True)
        self._thread.start()

    def run(self, *, is_triggered: bool) -> None:
        """Order a run. A paused job runs only if `is_triggered`; no job runs whose operators' requests can't be read.
        The thread always reports the end.
        """
        self._orders.put(_Run(is_triggered))

    def change(self, job: Job) -> None:
        """Use a changed job file after the current run."""
        self._orders.put(_Change(job))

    def leave(self) -> None:
        """End the thread after the current run."""
        self._orders.put(_Leave())

    def end_run(self, user: str, at_ms: int) -> None:
        """Cancel the current run, as `distcommit cancel` does, without waiting for the storage. The caller repeats the
        call until the run ends, because a run without an epoch can't be cancelled yet, and a failed request is only
        logged.
        """
        threading.Thread(target=self._end_run, args=(user, at_ms), name=f"end {self.name}", daemon=True).start()

    def _end_run(self, user: str, at_ms: int) -> None:
        try:
            if epoch := self._epoch:
                put_cancel(self._job.open_store(create=False), CancelRequest(CANCEL_VERSION, epoch, user, at_ms))
        except Exception as error:  # noqa: BLE001 - whatever storage raises, it is tried again
            logger.warning("the run can't be cancelled: %s", error, extra={"job": self.name})

    def _supervise(self) -> None:
        """Execute orders until the job leaves. After an unexpected error, report it and restart."""
        while True:
            try:
                self._work()
            except BaseException as error:
                logger.exception("the thread of a job is started again", extra={"job": self.name})
                self._inbox.put(Restarted(self.name, error_text(error)))
                threading.Event().wait(self._poll_s)
            else:
                return

    def _work(self) -> None:
        while True:
            self._inbox.put(self._check_requests())
            try:
                order = self._orders.get(timeout=self._poll_s)
            except Empty:
                continue
            match order:
                case _Run(is_triggered):
                    self._inbox.put(self._run_supervised(is_triggered=is_triggered))
                case _Change(job):
                    self._job, self._store = job, None
                case _Leave():
                    return

    def _check_requests(self) -> ScheduleCheck:
        try:
            if self._store is None:
                fs, roots = self._job.roots()
                self._began_ms = _newest_begin_ms(fs, roots.store)
                self._store = fs, roots.store
            requested = read_requests(*self._store)
        except BaseException as error:  # noqa: BLE001 - whatever storage or the job raises, it is looked at again
            return ScheduleCheck(self.name, ScheduleRequests(), self._began_ms, error_text(error))
        return ScheduleCheck(self.name, requested, self._began_ms)

    def _run_supervised(self, *, is_triggered: bool) -> Ended:
        """Run the job once, and report its end even after an unexpected error. Otherwise its slot would stay
        occupied.
        """
        try:
            return self._run(is_triggered=is_triggered)
        except BaseException as error:
            logger.exception("a run could not be cancelled properly", extra={"job": self.name})
            epoch, self._epoch = self._epoch, 0
            return Ended(self.name, Outcome.FAILED, epoch, 0, error_text(error))

    def _run(self, *, is_triggered: bool) -> Ended:
        check = self._check_requests()
        if check.requests.paused and not (is_triggered or check.requests.triggers):
            return Ended(self.name, Outcome.PAUSED, 0, 0, f"paused by {check.requests.paused.requested_by}")
        self._inbox.put(TriggerTaken(self.name))
        self._epoch, self._wanted = 0, check.requests.triggers
        began_s = time.monotonic()
        outcome, text = (Outcome.FAILED, f"{_MAY_BE_PAUSED}: {check.problem}") if check.problem else self._outcome()
        if outcome is not Outcome.HELD:  # else they wait with it
            self._remove_trigger()
        self._failures = self._failures + 1 if outcome is Outcome.FAILED and not self._epoch else 0
        self._alert(text)
        epoch, self._epoch = self._epoch, 0
        return Ended(self.name, outcome, epoch, time.monotonic() - began_s, text)

    def _outcome(self) -> tuple[Outcome, str]:
        try:
            result = self._launch(self._job, self)
        except LockHeldError as error:
            return Outcome.HELD, str(error)
        except RunCancelledError as error:
            return Outcome.CANCELLED, str(error)
        except BaseException as error:  # also SystemExit, which would end this thread without a word
            logger.debug("the run failed", exc_info=True)
            return Outcome.FAILED, error_text(error)
        totals = result.totals
        text = f"{count_of(totals.datasets_published, 'dataset')}, {count_of(totals.records_published, 'record')}"
        if result.succeeded:
            return Outcome.COMMITTED, text
        reason = next((f"{each.subject}: {each.text}" for each in result.reasons), result.error)
        return Outcome.INCOMPLETE, f"{text}; {reason or 'not all could be committed: the next run replays it'}"

    def observe(self, event: Event) -> None:
        if isinstance(event, RunBegan):
            self._epoch = event.epoch
            self._inbox.put(RunBegun(self.name, event.epoch))
            self._remove_trigger()

    def _remove_trigger(self) -> None:
        if self._store is not None and self._wanted:
            try:
                delete_triggers(*self._store, self._wanted)
                self._wanted = frozenset()
            except Exception as error:  # noqa: BLE001 - whatever storage raises, the run goes on
                logger.warning("the trigger of the run can't be removed: %s", error, extra={"job": self.name})

    def _alert(self, reason: str) -> None:
        """Send an alert for a run without an epoch. Such a run has no record, and a service has no exit code for it."""
        config, failures, kind = self._job.config, self._failures, ALERTS["failed runs"]
        if failures and failures == config.alerts.after_failed_runs:
            alert = Alert(
                job=config.job,
                trigger="failed runs",
                text=f"{failures} times in a row no run of {config.job} could begin",
                id=kind.id,
                severity=kind.severity,
                title=kind.title,
                impact=kind.impact,
                action=kind.action,
                epoch=0,
                run_id="",
                status="FAILED",
                reason=reason,
                failed_in_a_row=failures,
                quarantined=[],
                quarantined_count=0,
                host=socket.gethostname(),
                store=config.paths.store,
                commands=[self._job.command("status")],
            )
            send_alert(config.alerts.hooks, alert)


def _newest_begin_ms(fs: FileSystem, store_root: str) -> int | None:
    """Return the start of the newest run with a readable record; None without one. Raises OSError."""
    for epoch in reversed(recorded_epochs(fs, store_root)):
        with suppress(CorruptError, UnknownVersionError):
            if (beginning := read_beginning(fs, store_root, epoch)) is not None:
                return beginning.began_ms
    return None
