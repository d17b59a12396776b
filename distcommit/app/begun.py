"""A run that has begun, from the store's opening to the session's end."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from distcommit.app.job_folders import JobFolders
from distcommit.engine.clock import SystemClock
from distcommit.engine.events import Observer
from distcommit.engine.observed import observed
from distcommit.engine.progress import watched
from distcommit.engine.run import new_run_id
from distcommit.engine.settings import RunSettings
from distcommit.spark.launch import SparkLaunch
from distcommit.spark.session import open_session, partitions_of
from distcommit.stores.fencing import begin_run, require_newest
from distcommit.stores.generation import require_counting
from distcommit.stores.job_lock import JobLock

logger = logging.getLogger(__name__)


@contextmanager
def begun(
    folders: JobFolders, session: SparkSession | None, command: str, who: str, observer: Observer | None = None
) -> Iterator[tuple[SparkLaunch, RunSettings, Observer]]:
    """A run of the job: store opened, lock held, session started (unless one is there), epoch fenced.

    Args:
        folders: the job's.
        session: a Spark session to use.
        command: what the run is asked to do.
        who: who asks.
        observer: told what happens.

    Yields:
        what launches its functions, its settings, and whom it is to tell what happens.

    Raises:
        ConfigurationError, ConflictError, LockHeldError, FencedError: before anything is done.
    """
    config, run_id = folders.config, new_run_id()
    flow = config.task_flow()
    flow.check()
    store = folders.opened(create=True)
    with JobLock(store.fs, store.roots.store, run_id, config.lock.lease_ttl_s, SystemClock()):
        require_counting(store, store.job_log().refresh())
        require_newest(store)  # before Spark takes its seconds to start
        spark = session or open_session(config.spark, f"distcommit {config.job}")
        try:
            partitions = partitions_of(spark, config.spark, store.buckets)
            at_least_once = config.commit.delivery == "at_least_once"
            settings = RunSettings(
                store=store,
                run_id=run_id,
                epoch=begin_run(store, run_id, unsealed=at_least_once),
                partitions=partitions,
                flow=flow,
                policy=config.commit.policy,
                policies=config.commit.dataset_policies,
                job_level=config.commit.scope == "job",
                min_interval_s=config.commit.min_interval_ms / 1000,
                max_attempts=config.replay.max_attempts,
                task_attempts=config.task.attempts,
                retry_wait_s=config.task.retry_wait_s,
                retry_across_runs=config.task.retry_across_runs,
                stop_after_failed_runs=config.task.stop_after_failed_runs,
                at_least_once=at_least_once,
            )
            logger.info("run begins", extra={"run": run_id, "epoch": settings.epoch, "job": config.job})
            with (
                observed(settings, command, who, observer) as told,
                watched(settings, told, look=observer is not None) as watching,
            ):
                yield SparkLaunch(spark), settings, watching
        finally:
            if session is None:
                _stop(spark)


def _stop(spark: SparkSession) -> None:
    """Stops a session: one that has lost its JVM, or was interrupted as it spoke to it, can't be, and need not."""
    try:
        spark.stop()
    except Exception:
        logger.warning("the Spark session could not be stopped", exc_info=True)
