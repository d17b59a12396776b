"""The context of a run: the open store, the job lock, the epoch and the Spark session."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import NamedTuple

from pyspark.sql import SparkSession

from distcommit.app.checks.job_check import check_before_run
from distcommit.app.checks.published_type_check import changed_type_notes
from distcommit.app.job_file.job_config import JobConfig
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.app.running.recorded_environment import facts_of
from distcommit.app.running.run_alerts import alerting
from distcommit.app.telemetry.configured_observers import observers
from distcommit.engine.driver.launch_interface import Launch
from distcommit.engine.driver.run import new_run_id
from distcommit.engine.driver.run_recorder import recorded_run
from distcommit.engine.driver.task_progress import watched
from distcommit.engine.run_events import CompositeObserver, Observer
from distcommit.engine.run_settings import RunSettings
from distcommit.engine.system_clock import SystemClock
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.spark.cancellation import cancellable, own_session
from distcommit.spark.session import active_session, open_session, stop_session
from distcommit.spark.task_count import WAVES, partitions_of
from distcommit.spark.task_launch import SparkLaunch
from distcommit.stores.history.retention import Retention
from distcommit.stores.logs.fencing import begin_run, require_newest
from distcommit.stores.logs.generation_checks import require_current_generation
from distcommit.stores.state.job_lock import JobLock
from distcommit.stores.state.job_store import JobStore

logger = logging.getLogger(__name__)


class RunContext(NamedTuple):
    """The parts of a run that has its lock and its epoch.

    Attributes:
        launch: starts the run's Spark tasks.
        settings: the run's settings, with its epoch.
        observer: receives the run's events.
        spark: Spark session.
    """

    launch: Launch
    settings: RunSettings
    observer: Observer
    spark: SparkSession


@contextmanager
def open_run(
    folders: JobFolders, session: SparkSession | None, command: str, user: str, observer: Observer | None = None
) -> Iterator[RunContext]:
    """Open or create the store, acquire the job lock, start Spark if there is no session, and fence the job log with a
    new epoch. When the block ends, alerts are sent.

    Args:
        session: a Spark session to use; None to use the process's active session or to start one.

    Raises:
        ConfigurationError, ConflictError, LockHeldError, FencedError: before the run has any effect.
        RunCancelledError: when a Spark job is launched after the run was cancelled.
    """
    config, run_id = folders.config, new_run_id()
    flow = config.task_flow()
    flow.check()
    store = folders.opened(create=True)
    shared = not config.lock.enabled
    with (
        observers(config, store) as configured,
        alerting(folders, store, run_id, SystemClock()),
        JobLock(store.fs, store.roots.store, run_id, config.lock.lease_ttl_s, SystemClock(), shared=shared),
    ):
        require_current_generation(store, store.job_log().refresh())
        require_newest(store)  # before Spark takes its seconds to start
        notes = changed_type_notes(folders, store, command)
        supplied = session or (None if config.spark.remote else active_session())
        spark = supplied or open_session(config.spark, f"distcommit {config.job}")
        try:
            own = own_session(spark)
            waves = 1 if config.task.resume_across_runs else WAVES
            partitions = partitions_of(spark, config.spark, store.buckets, waves)
            settings = replace(_settings(config, store, run_id, flow, partitions), notes=notes)
            logger.info("run begins", extra={"run": run_id, "epoch": settings.epoch, "job": config.job})
            with (
                recorded_run(
                    settings, command, user, _all(observer, configured), facts_of(folders, folders.tree)
                ) as run_observer,
                watched(settings, run_observer, look=observer is not None) as watching,
                cancellable(SparkLaunch(own), own, settings) as launch,
            ):
                yield RunContext(launch, settings, watching, own)
        finally:
            if supplied is None:
                stop_session(spark)


def _all(observer: Observer | None, configured: Sequence[Observer]) -> Observer | None:
    return CompositeObserver(*([observer] if observer is not None else ()), *configured) if configured else observer


@contextmanager
def open_checked_run(
    folders: JobFolders, session: SparkSession | None, command: str, user: str, observer: Observer | None = None
) -> Iterator[RunContext]:
    """Check the job, then begin a run with `open_reading_run`. The errors of `check_before_run` are raised before
    any effect.
    """
    check_before_run(folders, needs_java=session is None)
    with open_reading_run(folders, session, command, user, observer) as run:
        yield run


@contextmanager
def open_reading_run(
    folders: JobFolders, session: SparkSession | None, command: str, user: str, observer: Observer | None = None
) -> Iterator[RunContext]:
    """Begin a run with `open_run`, and stage the source's data first if the source reads through Spark.

    Such a source names the staging function in `staged_by`. Within the block, the run's source reads the staged files.
    """
    with open_run(folders, session, command, user, observer) as run:
        source = folders.config.source
        if not source.staged_by:
            yield run
            return
        module, _, function = source.staged_by.partition(":")
        staged = getattr(import_module(module), function)
        with staged(run.spark, source, run.settings.store) as frames:
            yield run._replace(settings=replace(run.settings, flow=run.settings.flow.with_source(frames)))


def _settings(config: JobConfig, store: JobStore, run_id: str, flow: TaskFlow, partitions: int) -> RunSettings:
    """Fence the job log with a new epoch, and return the run's settings. Raises the errors of `begin_run`."""
    at_least_once = config.commit.delivery == "at_least_once"
    return RunSettings(
        store=store,
        run_id=run_id,
        epoch=begin_run(store, run_id, unsealed=at_least_once),
        partitions=partitions,
        flow=replace(flow, store_id=store.store_id),
        policy=config.commit.policy,
        policies=config.commit.dataset_policies,
        job_level=config.commit.scope == "job",
        min_interval_s=config.commit.min_interval_ms / 1000,
        max_attempts=config.replay.max_attempts,
        task_attempts=config.task.attempts,
        retry_wait_s=config.task.retry_wait_s,
        retry_across_runs=config.task.retry_across_runs,
        stop_after_failed_runs=config.task.stop_after_failed_runs,
        resume_across_runs=config.task.resume_across_runs,
        at_least_once=at_least_once,
        kept_snapshots=config.kept_snapshots,
        freshness=config.targets,
        retention=Retention(config.retention.runs, config.retention.tables),
    )
