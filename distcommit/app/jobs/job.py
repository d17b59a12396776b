"""Run and operate a job from Python: `Job.from_file(path).run()`."""

from __future__ import annotations

import getpass
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from distcommit.app.admin.abandon_datasets import Abandoned, abandon_all, not_published
from distcommit.app.admin.compact import CompactResult, compact_job
from distcommit.app.admin.expire import ExpireResult, expire_job
from distcommit.app.admin.rebuild_job import rebuild_job
from distcommit.app.admin.rebuild_result import RebuildResult
from distcommit.app.admin.repair_problems import RepairResult, repair_job
from distcommit.app.admin.repair_store_files import set_run_records_aside
from distcommit.app.admin.service_requests import ServiceRequest, ServiceRequestResult, request_service
from distcommit.app.admin.set_watermarks import set_watermark
from distcommit.app.inspection.dry_runs.release_plan import ReleasePlan, plan_release
from distcommit.app.inspection.dry_runs.run_preconditions import closed_buckets, open_for_operator
from distcommit.app.job_file.load_job_file import is_job_file
from distcommit.app.jobs.stored_job import StoredJob
from distcommit.app.migration.foreign_positions import ForeignPositions, read_positions, require_some
from distcommit.app.migration.import_watermarks import ImportResult, import_watermarks
from distcommit.app.migration.rebucket import RebucketResult, rebucket_job
from distcommit.app.migration.take_over_watermarks import ANOTHER_SOURCE, closed, names_of, positions_of
from distcommit.app.running.cancel import CancelResult, cancel_runs
from distcommit.core.errors import ConfigurationError
from distcommit.core.records.fixed_settings import FixedSetting
from distcommit.core.watermark import Position
from distcommit.engine.driver.run import RecoverResult, RunResult, new_run_id, recover, run
from distcommit.engine.run_events import NullObserver, Observer
from distcommit.engine.system_clock import SystemClock
from distcommit.stores.logs.fencing import end_run
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.job_store import JobStore, open_store
from distcommit.stores.state.recorded_fixed_settings import record_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NULL_OBSERVER = NullObserver()
logger = logging.getLogger(__name__)


class Job(StoredJob):
    """A job that can be run and operated. Each method is a command of `distcommit`."""

    def run(self, observer: Observer | None = None) -> RunResult:
        """Replay pending sequences, then ingest new records. Each dataset is committed once all of its work units are
        read.

        Raises:
            ConfigurationError: if the job can't run as configured; nothing was changed.
            LockHeldError: if another run of the job is alive.
            FencedError: if a newer run took over. The newer run replays the sealed sequences of this one.
        """
        from distcommit.app.running.run_context import open_checked_run  # noqa: PLC0415 - what only looks needs no Spark

        session, user = self._session, username()
        with open_checked_run(self._folders, session, "run", user, observer) as (launch, settings, events, _):
            seconds, fixed_settings = self.config.limits.seconds, self._folders.fixed_settings()
            result = run(launch, settings, max_seconds=seconds, fixed=fixed_settings, observer=events)
            end_run(settings.store, settings.epoch, clean=result.succeeded)
            return result

    def on_batch(self, batch: DataFrame, batch_id: int) -> None:
        """Commit a micro-batch of a streaming query: `stream.writeStream.foreachBatch(job.on_batch)`.

        With a source of type `micro_batch`, each row is published exactly once, in the dataset that the row names.
        After a restart from its checkpoint, the query repeats its last micro-batch, and committed datasets of it are
        skipped. Therefore call this once for each micro-batch, with all of its rows: rows of a second call would be
        skipped. With any other source, a micro-batch only triggers a run.

        Raises:
            TransientError: if some datasets of the micro-batch are not committed. The query ends. When it is started
                again, it commits the others.
            ConfigurationError, LockHeldError, FencedError: see `run`.
        """
        from distcommit.app.running.commit_micro_batch import commit_micro_batch  # noqa: PLC0415 - what only looks needs no Spark

        commit_micro_batch(self._folders, batch, batch_id, username())

    def recover(self, observer: Observer | None = None, *, dataset: str = "") -> RecoverResult:
        """Replay pending sequences and ingest nothing.

        Args:
            dataset: URN of the only dataset to replay; empty for all. Other datasets stay as they were.

        Raises:
            ConfigurationError: if the store does not know the dataset; no run began.
            LockHeldError, FencedError: see `run`.
        """
        from distcommit.app.running.run_context import open_run  # noqa: PLC0415 - what only looks needs no Spark

        if dataset:
            self.steps(dataset, most=1)
        command = f"recover {dataset}" if dataset else "recover"
        with open_run(self._folders, self._session, command, username(), observer) as (launch, run_settings, events, _):
            settings = replace(run_settings, replays_only=dataset)
            result = recover(launch, settings, events)
            end_run(settings.store, settings.epoch, clean=False)
            return result

    def reprocess(self, urn: str, observer: Observer | None = None) -> RunResult:
        """Process the rejected records of a dataset again, with the current converters and checkers."""
        from distcommit.app.admin.reprocess import reprocess_dataset  # noqa: PLC0415 - what only looks needs no Spark

        return reprocess_dataset(self._folders, self._session, urn, username(), observer)

    def reprocess_all(self, observer: Observer | None = None) -> RunResult:
        """Process the rejected records of all datasets again in one run."""
        from distcommit.app.admin.reprocess import reprocess_all  # noqa: PLC0415 - what only looks needs no Spark

        return reprocess_all(self._folders, self._session, username(), observer)

    def expire(
        self, older_than: str, observer: Observer | None = None, *, dry_run: bool = False, keep_snapshots: bool = False
    ) -> ExpireResult:
        """Delete published files that are older than an age such as `90d`. See `expire_job`."""
        return expire_job(
            self._folders,
            self._session,
            older_than,
            username(),
            observer,
            dry_run=dry_run,
            keep_snapshots=keep_snapshots,
        )

    def compact(
        self, datasets: Sequence[str] = (), observer: Observer | None = None, *, dry_run: bool = False
    ) -> CompactResult:
        """Merge small published files of these datasets, or of all. See `compact_job`."""
        return compact_job(self._folders, self._session, datasets, username(), observer, dry_run=dry_run)

    def cancel(self, *, wait_s: float = 60, on_request: Callable[[int], None] = lambda _: None) -> CancelResult:
        """Cancel the job's live runs on any machine, and wait for their ends. See `cancel_runs`."""
        return cancel_runs(self.open_store(create=False), username(), SystemClock(), wait_s, on_request)

    def request_service(self, wish: ServiceRequest, *, wait_s: float = 0) -> ServiceRequestResult:
        """Pause or resume the job in its service, or trigger a run."""
        return request_service(self.open_store(create=False), wish, username(), SystemClock(), wait_s)

    def retry(self, urn: str) -> None:
        """Let the next run replay a quarantined dataset, or read a stopped one.

        Raises:
            ConfigurationError, ConflictError: if the dataset is unknown, or neither quarantined nor stopped.
        """
        operator_actions.retry(open_for_operator(self._folders, urn), urn, username())

    def accept(self, urn: str) -> None:
        """Declare the sequence of a quarantined or half abandoned dataset done. Its unpublished records are lost. Data
        that is only prepared at a target is rolled back; if the target is unavailable, the next run does that.
        """
        store, committers = open_for_operator(self._folders, urn), self.config.task_flow().committers
        lost_ranges = partial(not_published, store, self.config.task_flow(), username())
        prepared_steps = operator_actions.accept(store, urn, username(), committers, lost_ranges)
        if prepared_steps:
            logger.warning("the next run rolls back the prepared records: %s", ", ".join(map(repr, prepared_steps)))

    def abandon(self, urn: str, *, restart: bool = False) -> None:
        """Roll back the sequence of a quarantined dataset, or finish an interrupted rollback. The next run reads its
        records or, with `restart`, the whole dataset again. Raises ConflictError if neither applies, or the sequence
        can't be rolled back.
        """
        act = operator_actions.restart if restart else operator_actions.abandon
        act(open_for_operator(self._folders, urn), urn, username(), self.config.task_flow().committers)

    def retry_all(self) -> operator_actions.RetryResult:
        """Let the next run replay quarantined datasets and read stopped ones, without those of unreadable buckets."""
        return operator_actions.retry_all(self._folders.opened(), username())

    def abandon_all(self, *, restart: bool = False) -> Abandoned:
        """Roll back the sequences of the datasets that `release_plan` would change: interrupted rollbacks, and
        quarantined datasets whose reason recommends it. All others stay quarantined. See `abandon` for `restart`.
        """
        release = operator_actions.Release.RESTART if restart else operator_actions.Release.ABANDON
        return abandon_all(self.release_plan(release), partial(self.abandon, restart=restart))

    def release_plan(self, release: operator_actions.Release, urn: str | None = None) -> ReleasePlan:
        """Return the effect of a release, or why it would be refused, for one dataset, or with `urn` None for each one
        that waits for an operator. Changes nothing.

        Raises:
            ConfigurationError: if there is no store, or it does not know the dataset.
            DistcommitError, OSError: the errors with which the release would end before it changes anything.
        """
        store = self._folders.opened()
        closed = closed_buckets(store, urn)
        return plan_release(self.status(), self.steps(urn), release, urn, closed=closed, bucket_of=store.bucket_of)

    def quarantine(self, urn: str) -> None:
        """Quarantine a pending dataset until an operator releases it. Raises ConflictError if it is not pending."""
        operator_actions.quarantine(open_for_operator(self._folders, urn), urn, username())

    def set_watermark(self, urn: str, positions: Mapping[str, Position] | None, *, new: bool = False) -> None:
        """Set the positions of an idle dataset, forwards or backwards.

        Args:
            positions: next position to read by partition, for each partition that has one; None deletes the watermark.
            new: whether no run has read the dataset yet.

        Raises:
            ConfigurationError: if the store does not know the dataset (with `new`: knows it), a position is invalid, or
                a partition that has a position is missing. Nothing was written.
            ConflictError: if the dataset has an open sequence.
        """
        store = self._folders.opened()
        record_settings(store, self._folders.fixed_settings())
        set_watermark(store, self.config.source, urn, positions, username(), new=new)

    def import_watermarks(
        self, file: Path | None = None, *, group: str | None = None, overwrite: bool = False, dry_run: bool = False
    ) -> ImportResult:
        """Set the watermarks of datasets that have none (with `overwrite`: of all), to the positions of another system
        or job. Can be repeated after a crash. With `dry_run`, only return what would be set.

        Args:
            file: a CSV file, an export of Gobblin's state store, or the job file of another job (`.yaml`).
            group: a Kafka consumer group, instead of a file.

        Raises:
            ConfigurationError: naming each invalid line. Nothing was written.
            ConflictError, LockHeldError: if a dataset of either job is not idle, or a run of the other job is alive.
        """
        if file is None or group is not None or not is_job_file(file):
            return self._import(read_positions(self.config, file, group), overwrite=overwrite, dry_run=dry_run)
        other = Job.from_file(file)
        with ExitStack() as stack:
            other_store = _store_of(other, self)
            if not dry_run:
                stack.enter_context(closed(other_store, other.config.lock.lease_ttl_s))
            named = Job.from_file(file, names_of(other_store, other.config.source))
            positions = require_some(positions_of(self.config, named.config, other_store))
            return self._import(positions, overwrite=overwrite, dry_run=dry_run)

    def _import(self, foreign: ForeignPositions, *, overwrite: bool, dry_run: bool) -> ImportResult:
        store = None if dry_run and not self._folders.has_store() else self._folders.opened(create=not dry_run)
        if store is not None and not dry_run:
            facts = {name: FixedSetting(value, ANOTHER_SOURCE) for name, value in foreign.source_facts.items()}
            record_settings(store, self._folders.fixed_settings(), facts)
        return import_watermarks(store, self.config.source, foreign, username(), overwrite=overwrite, dry_run=dry_run)

    def rebuild(
        self, *, accept_gaps: bool = False, keep_watermarks: bool = False, dry_run: bool = False
    ) -> RebuildResult:
        """Rebuild a lost or outdated store from the published files. With `dry_run`, only return the changes.

        Args:
            accept_gaps: record gaps between the offsets of files as skipped; compacted topics have such gaps. Otherwise
                a gap is a problem, and no watermark is changed.
            keep_watermarks: read no files, and keep the state of an outdated store. Records that were published since
                are published again, unless an operator sets the watermarks first.

        Raises:
            ConfigurationError: if the job's records have no offsets (without `keep_watermarks`), there is no store to
                keep, or the folders belong to another job.
            StaleStoreError: if the output is older than the store (without `keep_watermarks`).
            ConflictError: if the store is neither outdated nor damaged.
            LockHeldError: if a run is alive.
        """
        return rebuild_job(
            self._folders, username(), accept_gaps=accept_gaps, keep_watermarks=keep_watermarks, dry_run=dry_run
        )

    def repair(self, observer: Observer | None = None, *, dry_run: bool = False) -> RepairResult:
        """Apply the repairs that are safe to automate, and report the remaining problems. See `repair_job`."""

        def abandon(urns: Sequence[str]) -> str:
            for urn in urns:
                self.abandon(urn)
            return ""

        def recover(_: Sequence[str]) -> str:
            result = self.recover(observer)
            return "" if result.succeeded else "; ".join(reason.text for reason in result.reasons.entries)

        return repair_job(
            self.status,
            self.verify_store,
            {
                "records": lambda _: set_run_records_aside(self.open_store(create=False), new_run_id()),
                "rebucket": lambda words: "" if self.rebucket(int(words[0])) else "the number of buckets is unchanged",
                "rebuild": lambda _: "; ".join(self.rebuild().problems),
                "abandon": abandon,
                "recover": recover,
            },
            dry_run=dry_run,
        )

    def rebucket(self, buckets: int | None = None, observer: Observer = _NULL_OBSERVER) -> RebucketResult:
        """Change the number of buckets, or the names or groups of datasets. See `rebucket_job`."""
        return rebucket_job(self._folders, buckets, observer)


def _store_of(other: Job, job: Job) -> JobStore:
    """Open the store of another job. Its fixed settings may differ from that job's file."""
    fs, roots = other._folders.roots()
    if other.config.paths.store == job.config.paths.store:
        raise ConfigurationError(
            f"a job must not import watermarks from its own store, {roots.store}",
            id="JOB_FOLDERS_INVALID",
            todo="set new folders in section paths of the job that imports",
        )
    return open_store(fs, roots, other.config.job, create=False, groups=other._folders.groups)


def username() -> str:
    """Return this process's user and machine, as `user@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # as in a container whose user has no name
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
