"""The service: many jobs, each with its own schedule and lock.

Most jobs share one Spark session. A job with other Spark settings runs in a process of its own.
"""

from __future__ import annotations

import logging
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from distcommit.app.jobs.job import Job
from distcommit.app.scheduling.cron_and_interval import Moment
from distcommit.app.scheduling.schedule import Missed, Schedule
from distcommit.app.serving.job_file_folder import JobFile, read_job_files, require_served
from distcommit.app.serving.run_process import run_in_process
from distcommit.app.serving.served_job import (
    Ended,
    Launcher,
    Message,
    Outcome,
    Restarted,
    RunBegun,
    ScheduleCheck,
    ServedJob,
    TriggerTaken,
)
from distcommit.app.telemetry.metrics import require_client
from distcommit.app.telemetry.prometheus_endpoint import ServiceMetrics, scraped
from distcommit.app.telemetry.service_events import EventSink, ServiceEvent
from distcommit.core.errors import ConfigurationError, ProcessLostError, TransientError, error_text
from distcommit.core.interfaces.clock import Clock
from distcommit.engine.driver.run import RunResult
from distcommit.engine.run_events import CompositeObserver, Observer
from distcommit.engine.system_clock import SystemClock
from distcommit.spark.session_settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_LONGEST_WAIT_S = 3600.0
_END_WAIT_S = 60.0
_END_AGAIN_S = 0.5
_SILENT_POLLS = 12
"""Number of polls without an answer after which a job's storage is reported as unresponsive."""
_FAILED = (Outcome.FAILED, Outcome.INCOMPLETE)
_OF_SPARK_SUBMIT = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")
"""Environment variables by which a process uses the JVM of spark-submit."""


def serve(
    folder: Path,
    overrides: Sequence[str],
    report: EventSink,
    user: str,
    *,
    at_once: int = 4,
    poll_s: float = 5,
    metrics_at: tuple[str, int] | None = None,
) -> None:
    """Run the jobs of a folder by their schedules, until a signal ends the service.

    Args:
        folder: folder of the job files; it is polled.
        overrides: settings that override those of each job file.
        poll_s: seconds between polls of the folder, and of each job's store.
        metrics_at: address and port for Prometheus; None for no metrics.

    Raises:
        ConfigurationError: if a job file can't be served, or metrics can't. No job has run.
        ConfigurationError, TransientError: if Spark does not start, and all jobs have the same Spark settings.
        ProcessLostError: if the Spark session has ended, or a cancelled run hangs. The next run replays sealed commits.
        KeyboardInterrupt: after a signal, once all runs have ended, or after a minute.
    """
    from distcommit.spark.session import is_alive, stop_session  # noqa: PLC0415 - what only looks needs no Spark

    files = read_job_files(folder, overrides, {})
    require_served(files, folder)
    if metrics_at is not None:
        require_client()
    environment = {name: value for name, value in os.environ.items() if name not in _OF_SPARK_SUBMIT}
    shared, spark = _open_shared([file.job.config.spark for file in files.values() if file.job], folder.name)
    try:
        with _interrupt_main_thread_only(), scraped(metrics_at) as metrics:
            service = Service(
                lambda job_files: read_job_files(folder, overrides, job_files or files),
                _launcher(spark, shared, environment, metrics),
                report if metrics is None else metrics.counting(report),
                user,
                lives=lambda: spark is None or is_alive(spark),
                at_once=at_once,
                poll_s=poll_s,
            )
            service.go()
    finally:
        if spark is not None:
            stop_session(spark)


def _open_shared(settings: Sequence[SparkSettings], name: str) -> tuple[SparkSettings, SparkSession | None]:
    """Open the session of the Spark settings that most jobs have; of equally frequent ones, local ones come first.

    Runs of several jobs get equal shares of the session's slots. If the settings are for Spark Connect, or jobs have
    several settings and the session can't be opened, return None. Then each run has a process of its own.
    """
    from distcommit.spark.session import open_session  # noqa: PLC0415 - what only looks needs no Spark

    counts = Counter(each.deployment for each in settings)
    shared = max(settings, key=lambda each: (not each.remote, counts[each.deployment], "local" in each.master))
    if shared.remote:
        return shared, None
    fair = shared.model_copy(update={"conf": {"spark.scheduler.mode": "FAIR"} | shared.conf})
    try:
        return shared, open_session(fair, f"distcommit serve {name}")
    except (ConfigurationError, TransientError) as error:
        if len(counts) == 1:
            raise
        logger.warning("each run starts Spark in a process of its own: %s", error_text(error))
        return shared, None


def _launcher(
    spark: SparkSession | None, shared: SparkSettings, environment: Mapping[str, str], metrics: ServiceMetrics | None
) -> Launcher:
    def launch(job: Job, observer: Observer) -> RunResult:
        also = CompositeObserver(observer, *([] if metrics is None else [metrics.of_runs.observer()]))
        if spark is not None and job.config.spark.deployment == shared.deployment:
            return job.within(spark).run(also)
        return run_in_process(job, also, environment)

    return launch


@contextmanager
def _interrupt_main_thread_only() -> Iterator[None]:
    """Let Ctrl-C interrupt only the main thread: Spark's own handler would first fail the jobs of runs that are not
    cancelled yet."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Service:
    """The service: starts the runs that the schedule makes due. The schedule is a pure value; each job runs in its own
    thread.

    Args:
        read: returns the folder's job files, given the last result.
        launch: runs a job once.
        report: called with each event.
        user: name for the records of runs.
        lives: whether the launcher still works; asked after a failed run.
        at_once: maximum number of concurrent runs.
        poll_s: seconds between polls of the folder, and of each job's store.
        clock: the time.
    """

    def __init__(
        self,
        read: Callable[[Mapping[str, JobFile]], dict[str, JobFile]],
        launch: Launcher,
        report: EventSink,
        user: str,
        *,
        lives: Callable[[], bool] = lambda: True,
        at_once: int = 4,
        poll_s: float = 5,
        clock: Clock | None = None,
    ) -> None:
        self._read, self._launch, self._told, self._who = read, launch, report, user
        self._lives, self._poll_s, self._clock = lives, poll_s, clock or SystemClock()
        self._schedule, self._files = Schedule(at_once), dict[str, JobFile]()
        self._served, self._looked = dict[str, ServedJob](), dict[str, ScheduleCheck]()
        self._held, self._ordered, self._unknown = set[str](), set[str](), set[str]()
        self._heard_s, self._silent = dict[str, float](), set[str]()
        self._unreadable = ""
        self._inbox: SimpleQueue[Message] = SimpleQueue()
        self._next_poll_s = self._clock.monotonic_s()

    def go(self) -> None:
        """Serve until a signal or the loss of Spark, then cancel all runs and wait up to a minute for their ends.
        Raises KeyboardInterrupt or ProcessLostError, see `serve`.
        """
        try:
            while True:
                self._step()
        except (KeyboardInterrupt, ProcessLostError) as reason:
            self._end_all("a signal" if isinstance(reason, KeyboardInterrupt) else "the service, which gives up")
            raise

    def _moment(self) -> Moment:
        return Moment(self._clock.now_ms(), round(self._clock.monotonic_s() * 1000))

    def _report(self, job: str, event: str, text: str = "", epoch: int = 0) -> None:
        self._told(ServiceEvent(self._clock.now_ms(), job, event, text, epoch))

    def _step(self) -> None:
        if self._clock.monotonic_s() >= self._next_poll_s:
            self._look_at_folder()
            self._next_poll_s = self._clock.monotonic_s() + self._poll_s
        moment = self._moment()
        self._schedule = self._schedule.at(moment)
        for name in self._schedule.ready(moment):
            is_triggered = self._schedule.entries[name].is_triggered
            self._schedule = self._schedule.record_begin(name, moment)
            self._ordered.add(name)
            self._served[name].run(is_triggered=is_triggered)
        for name in self._schedule.overlong(moment):
            self._schedule = self._schedule.record_end_request(name, moment)
            self._report(name, "overlong", "its run takes longer than schedule.cancel_after_s, and is cancelled")
        for name, entry in self._schedule.entries.items():
            if entry.began_ms is not None and entry.end_requested_ms is not None:
                self._served[name].end_run(f"schedule.cancel_after_s, served by {self._who}", moment.wall_ms)
        self._require_none_stuck(moment)
        self._report_silent()
        wait_ms = self._schedule.wait_ms(moment)
        until_s = self._next_poll_s - self._clock.monotonic_s()
        self._hear(min(until_s, _LONGEST_WAIT_S if wait_ms is None else wait_ms / 1000))

    def _require_none_stuck(self, moment: Moment) -> None:
        stuck = self._schedule.stuck(moment)
        if stuck:
            raise ProcessLostError(
                "a cancelled run does not end",
                job=", ".join(stuck),
                todo=(
                    "nothing, if a supervisor restarts the service: the next run fences this one and replays "
                    "what it had sealed. If it recurs, check the job's storage and source"
                ),
            )

    def _report_silent(self) -> None:
        """Report each idle job whose storage is unresponsive, once. The job takes no slot meanwhile."""
        now_s, entries = self._clock.monotonic_s(), self._schedule.entries
        for name in self._served.keys() - self._silent:
            is_running = name in entries and entries[name].began_ms is not None and name not in self._ordered
            waited_s = now_s - self._heard_s.setdefault(name, now_s)
            if not is_running and waited_s > _SILENT_POLLS * self._poll_s:
                self._silent.add(name)
                if name in entries:
                    self._schedule = self._schedule.silent(name, is_unresponsive=True)
                self._report(
                    name, "silent", f"its storage has not answered for {waited_s:,.0f} s; it is not run until it does"
                )

    def _hear(self, wait_s: float) -> None:
        try:
            message = self._inbox.get(timeout=max(0.0, wait_s))
            while True:
                self._take(message)
                message = self._inbox.get_nowait()
        except Empty:
            return

    def _take(self, message: Message) -> None:
        match message:
            case ScheduleCheck():
                self._apply_check(message)
            case TriggerTaken(name):
                self._ordered.discard(name)
                self._answers(name)
                self._schedule = self._schedule.record_late_begin(name, self._moment())
            case RunBegun(name, epoch):
                self._unknown.discard(name)  # it makes up for firings that were missed
                self._report(name, "began", epoch=epoch)
            case Restarted(name, reason):
                self._report(name, "restarted", f"its thread had died: {reason}")
            case Ended():
                self._apply_end(message)

    def _answers(self, name: str) -> None:
        """Record that a job's storage responds, and report it after an outage."""
        self._heard_s[name] = self._clock.monotonic_s()
        if name in self._silent:
            self._silent.remove(name)
            if name in self._schedule.entries:
                self._schedule = self._schedule.silent(name, is_unresponsive=False)
            self._report(name, "answers", "its storage answers again")

    def _apply_check(self, check: ScheduleCheck) -> None:
        name, before = check.name, self._looked.get(check.name)
        if name not in self._served:  # it has left meanwhile
            return
        self._looked[name] = check
        if name not in self._ordered:  # otherwise it has not begun that yet
            self._answers(name)
        if check.problem and (before is None or before.problem != check.problem):
            self._report(name, "unreadable", f"its operators' requests can't be read: {check.problem}")
        plan = self._files[name].plan if name in self._files else None
        moment = self._moment()
        if before is None and plan is not None:
            self._schedule = self._schedule.with_job(name, plan, moment, check.began_ms)
            self._unknown = self._unknown - {name} | ({name} if check.problem else set())
        entry = self._schedule.entries.get(name)
        if entry is None or check.problem:
            return
        if name in self._unknown and plan is not None and entry.began_ms is None:  # now its last run is known
            self._unknown.remove(name)
            self._schedule = self._schedule.without(name).with_job(name, plan, moment, check.began_ms)
            entry = self._schedule.entries[name]
        paused = check.requests.paused
        if entry.is_paused != (paused is not None):
            self._schedule = self._schedule.paused(name, is_paused=paused is not None)
            self._report(name, *(("paused", f"by {paused.requested_by}") if paused else ("resumed", "")))
        if check.requests.triggers and entry.began_ms is None:
            if not entry.is_triggered:
                self._report(name, "triggered")
            self._schedule = self._schedule.triggered(name, moment)

    def _apply_end(self, run: Ended) -> None:
        entry, self._heard_s[run.name] = self._schedule.entries[run.name], self._clock.monotonic_s()
        self._ordered.discard(run.name)
        was_held = run.outcome in (Outcome.HELD, Outcome.PAUSED)
        self._schedule = self._schedule.ended(run.name, self._moment(), was_held=was_held)
        passed = f"; {entry.passed} firings passed meanwhile" if entry.passed else ""
        next_try = "; it is tried again" if entry.plan.missed is Missed.RUN else "; this firing is skipped"
        text = f"{run.text} ({run.seconds:.1f} s){passed}" if not was_held else f"{run.text}{next_try}"
        is_reported = run.outcome is Outcome.HELD and run.name in self._held
        if not is_reported and run.outcome is not Outcome.PAUSED:  # which the next check reports
            self._report(run.name, run.outcome.value, text, run.epoch)
        self._held = self._held - {run.name} | ({run.name} if run.outcome is Outcome.HELD else set())
        self._let_leave(run.name)
        if run.outcome in _FAILED and not self._lives():
            raise ProcessLostError(
                "the Spark session has ended",
                todo=(
                    "start the service again, as a supervisor does: sealed commits are replayed. If it recurs, "
                    "give it more memory (spark.conf: spark.driver.memory)"
                ),
            )

    def _look_at_folder(self) -> None:
        before = self._files
        try:
            self._files, self._unreadable = self._read(before), ""
        except ConfigurationError as error:
            if str(error) != self._unreadable:
                self._report("", "unreadable", f"{error}; the last known files are served")
            self._unreadable = str(error)
        for name, file in self._files.items():
            job_file = before.get(name)
            if file.job is None or file.plan is None:
                if job_file is None or job_file.problem != file.problem:
                    self._report(name, "wrong", f"it is not run until it is corrected: {file.problem}")
                self._schedule = self._schedule.without(name)
            elif name not in self._served:
                self._served[name] = ServedJob(name, file.job, self._launch, self._inbox, self._poll_s)
                self._report(name, "added" if before else "served")
            elif job_file is None or job_file.job is not file.job:
                self._served[name].change(file.job)
                self._report(name, "changed", "from its next run on")
                if name in self._looked:
                    self._schedule = self._schedule.with_job(name, file.plan, self._moment())
        for name in before.keys() - self._files.keys():
            self._schedule = self._schedule.without(name)
            self._report(name, "removed", "it is no longer run")
        for name in list(self._served):
            self._let_leave(name)

    def _let_leave(self, name: str) -> None:
        """End the thread of a job whose file was removed or can no longer be served, and forget the job. Do nothing
        while its run continues, or if the job is still served.
        """
        file = self._files.get(name)
        if name in self._served and (file is None or file.job is None) and name not in self._schedule.entries:
            self._served.pop(name).leave()
            self._looked.pop(name, None)
            self._heard_s.pop(name, None)
            self._silent.discard(name)

    def _end_all(self, cause: str) -> None:
        self._report("", "ends", f"ended by {cause}")
        deadline_s = self._clock.monotonic_s() + _END_WAIT_S
        while self._clock.monotonic_s() < deadline_s:
            entries = self._schedule.entries.items()
            under_way = [name for name, entry in entries if entry.began_ms is not None and not entry.is_unresponsive]
            if not under_way:
                return
            for name in under_way:
                self._served[name].end_run(f"{cause}, served by {self._who}", self._clock.now_ms())
            with suppress(ProcessLostError):  # the session ended with it: the reason is reported already
                self._hear(_END_AGAIN_S)
