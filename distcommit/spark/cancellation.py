"""Cancellation of a run and its Spark jobs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import SparkSession

from distcommit.core.errors import ConfigurationError, DistcommitError, ProcessLostError, RunCancelledError
from distcommit.engine.driver.launch_interface import JobFailedError, Launch, Result
from distcommit.engine.run_settings import RunSettings
from distcommit.spark.task_launch import over_connect
from distcommit.stores.history.run_records import CancelRequest, read_cancel

logger = logging.getLogger(__name__)

_POLL_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class CancellableLaunch:
    """Launcher that raises RunCancelledError once the run is cancelled.

    Attributes:
        launch: the underlying launcher.
        check_cancellation: raises RunCancelledError once the run is cancelled.
    """

    launch: Launch
    check_cancellation: Callable[[], None]

    def __call__(
        self, function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
    ) -> list[Result]:
        self.check_cancellation()
        try:
            return self.launch(function, settings, tasks, kind)
        except (JobFailedError, ConfigurationError, ProcessLostError):
            self.check_cancellation()
            raise


def own_session(session: SparkSession) -> SparkSession:
    """Return a session of one run, so that a cancellation interrupts no other jobs.

    Over Spark Connect this is the same session, because a new one would lack its settings and files.
    """
    return session if over_connect(session) else session.newSession()


@contextmanager
def cancellable(launch: Launch, spark: SparkSession, settings: RunSettings) -> Iterator[CancellableLaunch]:
    """Watch for a cancel request during a block.

    A thread reads the store every second. After a request it interrupts the session every second, because a job may
    just have started.

    Args:
        launch: launches jobs in the run's session.

    Yields:
        the cancellable launcher.
    """
    store, epoch = settings.store, settings.epoch
    ended = threading.Event()
    requests: list[CancelRequest] = []

    def require_wanted() -> None:
        if requests:
            raise RunCancelledError(
                "the run was cancelled",
                job=store.job,
                epoch=epoch,
                by=requests[0].requested_by,
                todo="none; the run publishes nothing more, and the next run replays its sealed commits",
            )

    def watch() -> None:
        while not ended.wait(_POLL_INTERVAL_S):
            try:
                request = requests[0] if requests else read_cancel(store.fs, store.roots.store, epoch)
            except (DistcommitError, OSError) as error:
                logger.warning("the cancel request cannot be read: %s", error, extra={"epoch": epoch})
                continue
            if request is None:
                continue
            if not requests:
                logger.warning("the run was cancelled by %s", request.requested_by, extra={"epoch": epoch})
                requests.append(request)
            _interrupt(spark, settings.run_id)

    thread = threading.Thread(target=watch, name="cancellation", daemon=True)
    thread.start()
    try:
        yield CancellableLaunch(launch, require_wanted)
    finally:
        ended.set()
        thread.join()


def _interrupt(spark: SparkSession, run_id: str) -> None:
    try:
        spark.interruptAll()
        if not over_connect(spark):
            spark.sparkContext.cancelJobsWithTag(run_id)
    except Exception:  # the session may be gone; repeated in a second
        logger.warning("the run's Spark jobs could not be interrupted", exc_info=True)
