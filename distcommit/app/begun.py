"""A run that has begun, from the store's opening to the session's end, and who watches it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from pyspark.sql import SparkSession

from distcommit.app.job_folders import JobFolders
from distcommit.engine.clock import SystemClock
from distcommit.engine.progress import OnProgress, progress_folder, read_progress
from distcommit.engine.run import new_run_id
from distcommit.engine.settings import RunSettings
from distcommit.ingest.flow import WorkUnitFlow
from distcommit.spark.session import open_session, partitions_of
from distcommit.stores.fencing import begin_run, require_newest
from distcommit.stores.job_lock import JobLock

logger = logging.getLogger(__name__)


@contextmanager
def begun(folders: JobFolders, session: SparkSession | None) -> Iterator[tuple[SparkSession, RunSettings]]:
    """A run of the job: store opened, lock held, session started (unless one is there), epoch fenced.

    Raises:
        ConfigurationError, LockHeldError, FencedError: before anything is done.
    """
    config, store = folders.config, folders.opened(create=True)
    run_id = new_run_id()
    with JobLock(store.fs, store.roots.store, run_id, config.lock.lease_ttl_s, SystemClock()):
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
                flow=WorkUnitFlow(config.source, config.value, config.sink, config.on_undecodable == "divert"),
                policy=config.commit.policy,
                job_level=config.commit.scope == "job",
                min_interval_s=config.commit.min_interval_ms / 1000,
                max_attempts=config.replay.max_attempts,
                task_attempts=config.task.attempts,
                at_least_once=at_least_once,
            )
            logger.info("run begins", extra={"run": run_id, "epoch": settings.epoch, "job": config.job})
            yield spark, settings
        finally:
            if session is None:
                spark.stop()


@contextmanager
def watched(settings: RunSettings, on_progress: OnProgress | None) -> Iterator[Callable[[str], None]]:
    """Keeps the progress folder for the run and tells the listener what the tasks write there."""
    fs, folder = settings.store.fs, progress_folder(settings.store.roots.store, settings.run_id)
    fs.make_folders(folder)
    ended, phases = threading.Event(), ["begin"]

    def watch() -> None:
        while not ended.wait(0.5):
            if on_progress is not None:
                try:
                    on_progress(phases[-1], read_progress(fs, folder))
                except Exception:
                    logger.exception("the progress listener failed; it is not called again")
                    return

    thread = threading.Thread(target=watch, name="progress", daemon=True)
    thread.start()
    try:
        yield phases.append
    finally:
        ended.set()
        thread.join()
        with suppress(OSError):  # for people to look at: nothing depends on them
            for entry in fs.list_folder(folder):
                fs.delete(f"{folder}/{entry.name}")
            fs.delete_folder(folder)
