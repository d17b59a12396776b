"""Reprocess: read the rejected records of one or all datasets again with the current flow."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from distcommit.app.admin.maintenance_run import run_maintenance
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.core.errors import ConfigurationError, ConflictError
from distcommit.core.records.log_records import DatasetStatus
from distcommit.engine.driver.run import RunResult
from distcommit.engine.reading.record_read_failures import stop_reason
from distcommit.engine.run_events import Observer
from distcommit.engine.run_settings import RunSettings
from distcommit.pipeline.maintenance.reprocess_source import ReprocessSource
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.stores.state.job_store import JobStore


def reprocess_dataset(
    folders: JobFolders, session: SparkSession | None, urn: str, user: str, observer: Observer | None
) -> RunResult:
    """Run once to read only the dataset's live error files.

    Each record goes to the branch that rejected it; a record that was rejected before the fork goes to all branches.
    The record is then published or rejected again, in one sequence with the tombstone of its old file. Watermarks do
    not move. The run's time limit and freshness targets do not apply, because error files are read completely.

    Raises:
        ConfigurationError: if the store does not know the dataset, the dataset has no live error files, their branch no
            longer exists, or the job delivers at least once or replaces partitions or tables; nothing was changed.
        ConflictError: if the dataset is stopped, or has a sequence that is not done; nothing was changed.
        DistcommitError: if the run can't begin or fails.
    """
    _require_exactly_once(folders)
    _require_complete_plans(folders)
    _require_errors(folders.opened(), folders.config.task_flow(), urn)
    return _run(folders, session, urn, user, observer)


def reprocess_all(folders: JobFolders, session: SparkSession | None, user: str, observer: Observer | None) -> RunResult:
    """Run once to read the live error files of all datasets, each dataset in a sequence of its own. The run's reasons
    name datasets that can't be read; other datasets continue. Without live error files the run succeeds.

    Raises:
        ConfigurationError: if there is no store, or the job delivers at least once, or replaces partitions or tables;
            nothing was changed.
        DistcommitError: if the run can't begin or fails.
    """
    _require_exactly_once(folders)
    _require_complete_plans(folders)
    folders.opened()
    return _run(folders, session, "", user, observer)


def _run(
    folders: JobFolders, session: SparkSession | None, urn: str, user: str, observer: Observer | None
) -> RunResult:
    """Run once to read the live error files of a dataset; of all datasets if `urn` is empty."""

    def reprocessing(settings: RunSettings) -> RunSettings:
        source = ReprocessSource(settings.store.fs, settings.store.roots.output, settings.flow, urn)
        return replace(settings, flow=settings.flow.with_source(source))

    return run_maintenance(folders, session, f"reprocess {urn or '--all'}", user, observer, reprocessing)


def _require_exactly_once(folders: JobFolders) -> None:
    if folders.config.commit.delivery == "at_least_once":
        raise ConfigurationError(
            "a job that delivers at least once can't reprocess",
            id="MAINTENANCE_NOT_POSSIBLE",
            job=folders.config.job,
            expected="commit.delivery: exactly_once",
            found="at_least_once: nothing is written ahead, so that files would count as superseded while those that"
            " take their place are not all there",
            todo="set commit.delivery to exactly_once for this command, or for good",
        )


def _require_complete_plans(folders: JobFolders) -> None:
    if folders.config.task_flow().publish == "replace_partitions":
        raise ConfigurationError(
            "a job that replaces partitions can't reprocess",
            id="MAINTENANCE_NOT_POSSIBLE",
            job=folders.config.job,
            expected="sink.publish: append or replace",
            found=(
                "replace_partitions: a rejected record is in no partition, so it is unknown whether its "
                "partition was replaced since"
            ),
            todo="correct the job or its source, and read the records of whole partitions again",
        )
    if any(sink.replaces_at_target for sink in folders.config.sink_sections().values()):
        raise ConfigurationError(
            "a job with a table whose mode is replace can't reprocess",
            id="MAINTENANCE_NOT_POSSIBLE",
            job=folders.config.job,
            expected="sink.mode: append, upsert or mirror",
            found="replace: reprocessed records would replace all rows of their dataset",
            todo="set mode to append for this command, so that its rows are added to the existing ones",
        )


def _require_errors(store: JobStore, flow: TaskFlow, urn: str) -> None:
    state = store.bucket_log(store.bucket_of(urn)).refresh().datasets.get(urn)
    if state is None:
        raise ConfigurationError(
            "the store does not know this dataset",
            id="DATASET_UNKNOWN",
            dataset=urn,
            store=store.roots.store,
            todo="give its URN as `distcommit status --all` shows it",
        )
    if state.status is not DatasetStatus.IDLE:
        raise ConflictError(
            "a dataset can be reprocessed only between its sequences",
            id="REPROCESS_WITH_OPEN_SEQUENCE",
            dataset=urn,
            expected="the dataset to be idle",
            found=f"{state.status.value}: {state.reason}",
            todo=(
                "commit the pending dataset by `distcommit recover`, or release it if it is quarantined; then reprocess"
            ),
        )
    if state.is_stopped:
        raise ConflictError(
            "no run plans this dataset",
            id="REPROCESS_OF_STOPPED_DATASET",
            dataset=urn,
            found=stop_reason(state),
            todo="release the dataset with retry; then reprocess",
        )
    ReprocessSource(store.fs, store.roots.output, flow, urn).plan_dataset(state)
