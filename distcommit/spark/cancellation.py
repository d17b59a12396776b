"""Ending a run that somebody wants to end: its Spark jobs are interrupted, and nothing else is launched."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import SparkSession

from distcommit.core.errors import ConfigurationError, DistcommitError, ProcessLostError, RunCancelledError
from distcommit.engine.driver.launch import JobFailedError, Launch, Result
from distcommit.engine.settings import RunSettings
from distcommit.spark.launch import over_connect
from distcommit.stores.history.run_records import CancelRequest, read_cancel

logger = logging.getLogger(__name__)

_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class CancellableLaunch:
    """Launches as long as nobody wants the run to end. What was interrupted for that ends in RunCancelledError."""

    launch: Launch
    require_wanted: Callable[[], None]

    def __call__(
        self, function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
    ) -> list[Result]:
        self.require_wanted()
        try:
            return self.launch(function, settings, tasks, kind)
        except (JobFailedError, ConfigurationError, ProcessLostError):
            self.require_wanted()
            raise


def own_session(session: SparkSession) -> SparkSession:
    """A session in which this run's jobs can be interrupted and no others; over Spark Connect the session itself, since
    a new one there has none of its settings and files."""
    return session if over_connect(session) else session.newSession()


@contextmanager
def cancellable(launch: Launch, spark: SparkSession, settings: RunSettings) -> Iterator[CancellableLaunch]:
    """While in the block, looks every second whether somebody wants the run to end, and interrupts all that runs in its
    session then, again each time: a job may just have begun.

    Args:
        launch: what launches in that session.
        spark: the run's own session.
        settings: the run.

    Yields:
        what launches as long as nobody does.
    """
    store, epoch = settings.store, settings.epoch
    ended = threading.Event()
    asked: list[CancelRequest] = []

    def require_wanted() -> None:
        if asked:
            raise RunCancelledError(
                "the run was cancelled",
                job=store.job,
                epoch=epoch,
                by=asked[0].who,
                todo="nothing: it publishes nothing more, and what it had sealed is replayed by the next run",
            )

    def watch() -> None:
        while not ended.wait(_EVERY_S):
            try:
                request = asked[0] if asked else read_cancel(store.fs, store.roots.store, epoch)
            except (DistcommitError, OSError) as error:
                logger.warning("whether the run is to end can't be read: %s", error, extra={"epoch": epoch})
                continue
            if request is None:
                continue
            if not asked:
                logger.warning("the run is to end, says %s", request.who, extra={"epoch": epoch})
                asked.append(request)
            _interrupt(spark, settings.run_id)

    thread = threading.Thread(target=watch, name="cancellation", daemon=True)
    thread.start()
    try:
        yield CancellableLaunch(launch, require_wanted)
    finally:
        ended.set()
        thread.join()


def _interrupt(spark: SparkSession, run_id: str) -> None:
    """What the run's session does, as where its source is Spark's, and what was launched for the run."""
    try:
        spark.interruptAll()
        if not over_connect(spark):
            spark.sparkContext.cancelJobsWithTag(run_id)
    except Exception:  # the session may be gone; the next look tries again
        logger.warning("what the run does in Spark could not be interrupted", exc_info=True)
