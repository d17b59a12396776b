"""Runs of a job that process published files instead of the source, and the part that their results share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from distcommit.app.job_file.job_folders import JobFolders
from distcommit.core.errors import ConfigurationError, DistcommitError
from distcommit.core.records.log_records import DatasetState
from distcommit.core.support.parallel import run_ahead
from distcommit.engine.driver.run import RunResult, run
from distcommit.engine.run_events import Observer
from distcommit.engine.run_settings import RunSettings
from distcommit.stores.logs.fencing import end_run
from distcommit.stores.state.job_store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LISTED = 100
"""Maximum number of rows and of skipped datasets in a result."""

Survey = TypeVar("Survey")


class MaintenanceResult(msgspec.Struct, kw_only=True):
    """Datasets whose published files were, or would be, processed.

    Attributes:
        dry_run: whether nothing was changed.
        datasets: number of datasets with files to process.
        skipped: first hundred datasets or buckets whose files could not be processed, with the reason. Their files stay
            as they are. Once the reason is resolved, the same command processes them.
        skipped_count: number of all skipped datasets and buckets.
        epoch: epoch of the run that superseded the files; 0 without a run.
        succeeded: whether all runs of the command succeeded. Without a run: whether nothing was skipped; true for a dry
            run.
    """

    dry_run: bool
    datasets: int = 0
    skipped: list[str] = []
    skipped_count: int = 0
    epoch: int = 0
    succeeded: bool = True

    def skip(self, text: str) -> None:
        self.skipped_count += 1
        if len(self.skipped) < LISTED:
            self.skipped.append(text)

    def add_run(self, done: RunResult) -> None:
        self.epoch, self.succeeded = done.epoch, done.succeeded
        for reason in done.reasons.entries:
            self.skip(f"{reason.subject}: {reason.text}")

    def surveys(
        self, store: JobStore, survey: Callable[[DatasetState], Survey], datasets: Sequence[str] = ()
    ) -> Iterator[tuple[DatasetState, Survey]]:
        """Yield each dataset with what `survey` returns for it. Buckets and datasets that can't be read are skipped.

        Args:
            datasets: names of the datasets; empty: all.

        Raises:
            ConfigurationError: at the end, if the store does not know one of `datasets`.
        """

        def try_survey(state: DatasetState) -> Survey | DistcommitError | OSError:
            try:
                return survey(state)
            except (DistcommitError, OSError) as error:
                return error

        unknown = set(datasets)
        for bucket in range(store.buckets):
            try:
                states = store.bucket_log(bucket).refresh().datasets
            except (DistcommitError, OSError) as error:
                self.skip(f"bucket {bucket}: {error}")
                unknown = {urn for urn in unknown if store.bucket_of(urn) != bucket}
                continue
            selected = [state for urn, state in sorted(states.items()) if not datasets or urn in datasets]
            unknown.difference_update(state.dataset_urn for state in selected)
            answers = run_ahead(store.fs.parallel_calls, try_survey, selected)
            for state, answer in zip(selected, answers, strict=True):
                if isinstance(answer, DistcommitError | OSError):
                    self.skip(f"{state.dataset_urn}: {answer}")
                else:
                    yield state, answer
        if unknown:
            raise ConfigurationError(
                "the store does not know this dataset",
                id="DATASET_UNKNOWN",
                dataset=min(unknown),
                store=store.roots.store,
                todo="give its URN as `distcommit status --all` shows it",
            )


def run_maintenance(
    folders: JobFolders,
    session: SparkSession | None,
    command: str,
    user: str,
    observer: Observer | None,
    adapted: Callable[[RunSettings], RunSettings],
) -> RunResult:
    """Run the job once. `adapted` replaces the source in the settings of the run."""
    from distcommit.app.running.run_context import open_run  # noqa: PLC0415 - a dry run needs no Spark

    with open_run(folders, session, command, user, observer) as (launch, run_settings, run_observer, _):
        settings = adapted(run_settings)
        result = run(launch, settings, fixed=folders.fixed_settings(), observer=run_observer)
        end_run(settings.store, settings.epoch, clean=result.succeeded)
        return result


def require_files(folders: JobFolders, problem: str, expected: str, found: str) -> None:
    """Raise ConfigurationError with `problem` if `found` is not empty or the job delivers at least once."""
    if folders.config.commit.delivery == "at_least_once":
        found = "commit.delivery: at_least_once, which writes nothing ahead"
    if found:
        raise ConfigurationError(
            problem, id="MAINTENANCE_NOT_POSSIBLE", job=folders.config.job, expected=expected, found=found
        )
