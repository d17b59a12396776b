"""Read the stored state of a job, without Spark, on any machine that reaches the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from distcommit.app.inspection.dataset_list import DatasetsResult, Query, list_datasets
from distcommit.app.inspection.job_status import StatusResult, read_status
from distcommit.app.inspection.open_commit_steps import StepsResult, read_steps
from distcommit.app.inspection.problems.environment_checks import check_environment
from distcommit.app.inspection.problems.problem_detection import find_problems
from distcommit.app.inspection.problems.recommended_commands import command_for
from distcommit.app.inspection.recorded_runs import RecordedRun, RunsResult, newest_epoch, read_run, read_runs
from distcommit.app.job_file.environment_variables import unset_variables
from distcommit.app.job_file.job_config import JobConfig
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.app.job_file.load_job_file import is_job_file, load_tree, parse_config
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.interfaces.source import Lag
from distcommit.core.records.log_records import DatasetState
from distcommit.engine.system_clock import SystemClock
from distcommit.stores.history.retention import Retention
from distcommit.stores.operator.schedule_requests import paused_by
from distcommit.stores.snapshots.expiry_requests import readable_expiry_request
from distcommit.stores.state.job_store import JobStore, Roots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from distcommit.app.auditing.audit import AuditResult
    from distcommit.app.inspection.dry_runs.replay_plan import ReplayPlan
    from distcommit.app.inspection.dry_runs.sweep_plan import SweepResult
    from distcommit.app.inspection.read_commit_log import LogResult
    from distcommit.app.inspection.report_data.run_report import RunReport
    from distcommit.app.inspection.verify_store import VerifyResult
    from distcommit.app.migration.compare_outputs import CompareResult

_ALL = Query()
_NEWEST_RUNS, _NEWEST_SHOWN = 20, 5


class StoredJob:
    """A job whose stored state can be read. Rarely used modules are imported on demand, so that `status` starts fast.
    Methods that read the store raise ConfigurationError if there is none.

    Args:
        config: the job's configuration.
        session: a Spark session for runs. Without one, a run uses the active session of this process, or starts one and
            stops it.
        path: the job file.
        overrides: settings that override the job file, for commands in messages.
        throwaway: whether the job's folders are deleted after one run.
        tree: the content of the job file before variables are substituted.
        unset: names of unset environment variables by dotted setting.
    """

    def __init__(
        self,
        config: JobConfig,
        session: SparkSession | None = None,
        *,
        path: Path | None = None,
        overrides: Sequence[str] = (),
        throwaway: bool = False,
        tree: Mapping[str, Any] | None = None,
        unset: Mapping[str, str] | None = None,
    ) -> None:
        self.config, self._session = config, session
        self.path, self.overrides = path, tuple(overrides)
        self._folders = JobFolders(config, path, tuple(overrides), throwaway, tree or {}, unset or {})

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        overrides: Sequence[str] = (),
        session: SparkSession | None = None,
        *,
        needs_variables: bool = True,
    ) -> Self:
        """Return the job of a YAML file.

        Args:
            overrides: overrides of settings, each as `section.key=value`.
            session: a Spark session for runs; see the class.
            needs_variables: whether all environment variables that the file names must be set. If not, only methods
                that use a setting with an unset variable raise ConfigurationError.

        Raises:
            ConfigurationError: if the file is invalid.
        """
        tree = load_tree(path, overrides)
        config = parse_config(tree, Path(path), overrides, needs_variables=needs_variables)
        return cls(config, session, path=Path(path), overrides=overrides, tree=tree, unset=unset_variables(tree))

    def within(self, session: SparkSession) -> Self:
        """Return the job with a shared Spark session."""
        other = copy(self)
        other._session = session
        return other

    def roots(self) -> tuple[FileSystem, Roots]:
        """Return the file system and the paths of the job's folders, even if there is no store yet."""
        return self._folders.roots()

    def command(self, name: str) -> str:
        """Return the shell command `distcommit NAME` for this job, with its overrides."""
        return command_for(self._folders)(name)

    def status(self, *, idle: bool = True) -> StatusResult:
        """Return datasets, newest runs and problems with their commands. Only reads; safe beside a live run.

        Args:
            idle: whether to list idle datasets without read failures. Otherwise they are only counted.
        """
        store, clock = self.open_store(create=False), SystemClock()
        config, published_in = self.config, self._published_in
        whole_job = config.commit.scope == "job"
        status = read_status(store, published_in, config.source.extract_of, whole_job=whole_job, idle=idle)
        runs = read_runs(store, clock, newest=_NEWEST_RUNS)
        environment = check_environment(self._folders, store, status, runs, clock.now_ms())
        if self.config.schedule is not None:
            status = msgspec.structs.replace(status, paused_by=paused_by(store.fs, store.roots.store))
        return msgspec.structs.replace(
            status,
            runs=runs.runs[:_NEWEST_SHOWN],
            failed_in_a_row=runs.failed_in_a_row,
            expiry_request=readable_expiry_request(store),
            problems=find_problems(status, runs, command_for(self._folders), environment),
        )

    @property
    def _published_in(self) -> Callable[[str], str]:
        return partial(self.config.task_flow().published_in, output=self.config.paths.output)

    def datasets(self, query: Query = _ALL, *, lag: bool = False) -> DatasetsResult:
        """Return the datasets that match `query`.

        Args:
            lag: ask the source how far each dataset is behind; this machine must reach the source.
        """
        store = self.open_store(create=False)
        newest = read_runs(store, SystemClock(), newest=1).runs if query.read else []
        status = msgspec.structs.replace(read_status(store), runs=[row for row in newest if row.epoch][:1])
        ask_lag = partial(_lags, self._folders, store) if lag else None
        result = list_datasets(store, status, query, ask_lag, self.config.targets)
        published_in, extract_of = self._published_in, self.config.source.extract_of
        for index, row in enumerate(result.datasets):  # of those that are shown
            urn = row.state.dataset
            state = msgspec.structs.replace(row.state, published_in=published_in(urn), extract=extract_of(urn))
            result.datasets[index] = msgspec.structs.replace(row, state=state)
        return result

    def steps(self, dataset: str | None = None, *, most: int = 0) -> StepsResult:
        """Return the open sequences with the state of each commit step. Raises ConfigurationError if the store does not
        know the dataset.
        """
        store = self.open_store(create=False)
        return read_steps(store, _step_context(self.config, store), dataset, most)

    def replay_plan(self, dataset: str | None = None) -> ReplayPlan:
        """Return the effect that the next run would have on each open sequence. A live run is ignored.

        Raises:
            DistcommitError: the error with which the next run would end before its replay.
        """
        from distcommit.app.inspection.dry_runs.replay_plan import plan_replay  # noqa: PLC0415
        from distcommit.app.inspection.dry_runs.run_preconditions import open_runnable_store, unrecoverable_buckets  # noqa: PLC0415 - few ask for it

        store = open_runnable_store(self._folders)
        remaining = unrecoverable_buckets(store, _step_context(self.config, store))
        return plan_replay(self.status(), self.steps(dataset), remaining)

    def verify_store(self) -> VerifyResult:
        """Verify the logs against the rules, and the records of runs against the logs."""
        from distcommit.app.inspection.verify_store import verify_store  # noqa: PLC0415 - few ask for it

        return verify_store(self.open_store(create=False))

    def sweeps(self) -> SweepResult:
        """Return the files that the next run would delete: orphaned, superseded and expired ones. Raises the errors of
        `replay_plan`.
        """
        from distcommit.app.inspection.dry_runs.run_preconditions import open_runnable_store  # noqa: PLC0415 - few ask for it
        from distcommit.app.inspection.dry_runs.sweep_plan import show_sweeps  # noqa: PLC0415

        store, retention = open_runnable_store(self._folders), self.config.retention
        return show_sweeps(store, Retention(retention.runs, retention.tables), self.config.kept_snapshots)

    def runs(self) -> RunsResult:
        """Return the recorded runs."""
        return read_runs(self.open_store(create=False), SystemClock())

    def recorded_run(self, epoch: int) -> RecordedRun:
        """Return the records of one run. Raises ConfigurationError if the run has none."""
        return read_run(self.open_store(create=False), epoch, SystemClock())

    def report(self, epoch: int | None = None, *, lag: bool = False) -> RunReport:
        """Return the report of a run. Raises ConfigurationError if the run has no record.

        Args:
            epoch: the run's epoch; None for the newest run.
            lag: ask the source how far each dataset is behind now; this machine must reach the source.
        """
        from distcommit.app.inspection.report_data.run_report import add_job_status, make_report  # noqa: PLC0415 - few ask for it

        store, clock = self.open_store(create=False), SystemClock()
        newest = newest_epoch(store, clock)
        required = newest if epoch is None else epoch
        report = make_report(store, required, clock, partial(_lags, self._folders, store) if lag else None)
        if report.run.epoch != newest and not report.run.is_dead:
            return report
        return add_job_status(report, store, self.status(idle=False), self.command("run"))

    def log(self, *, bucket: int | None = None, dataset: str | None = None) -> LogResult:
        """Return the records of the job log, or of a bucket's log, or those that concern a dataset. Raises
        ConfigurationError if there is no such bucket, or both are given.
        """
        from distcommit.app.inspection.read_commit_log import read_log  # noqa: PLC0415 - few ask for it

        return read_log(self.open_store(create=False), bucket=bucket, dataset=dataset)

    def audit(self, *, deep: bool = False) -> AuditResult:
        """Check that each offset below the watermarks is published exactly once, or at least once if the job is
        configured so. Raises ConfigurationError if a sink of the job can't report its commits.

        Args:
            deep: read every record instead of the files' metadata, and have targets count their visible rows.
        """
        from distcommit.app.auditing.audit import audit_store  # noqa: PLC0415 - few ask for it
        from distcommit.app.auditing.target_ledgers import open_ledgers, require_audited  # noqa: PLC0415 - few ask for it

        self._folders.require_variables("sink", "fork")
        flow = self.config.task_flow()
        require_audited(flow)
        store, at_least_once = self.open_store(create=False), self.config.commit.delivery == "at_least_once"
        with open_ledgers(flow, store) as ledgers:
            return audit_store(
                store, self.config.source.provenance, deep=deep, at_least_once=at_least_once, ledgers=ledgers
            )

    def compare(self, file: Path | None = None, *, group: str | None = None) -> CompareResult:
        """Compare with the positions of another system, or with the output of another job. A live run causes
        differences.

        Args:
            file: a CSV file, a Gobblin export, or the job file of another job (`.yaml`).
            group: a Kafka consumer group, instead of a file.

        Raises:
            ConfigurationError: if a file is invalid, not exactly one of `file` and `group` is given, or outputs are to
                be compared and records have no offsets or a sink can't report its commits.
        """
        from distcommit.app.auditing.target_ledgers import require_audited  # noqa: PLC0415 - few ask for it
        from distcommit.app.migration.compare_outputs import compare_outputs, compare_positions, require_offsets  # noqa: PLC0415 - few ask for it
        from distcommit.app.migration.foreign_positions import read_positions  # noqa: PLC0415 - few ask for it

        self._folders.require_variables("source", "sink", "fork")
        store = self.open_store(create=False)
        if file is not None and group is None and is_job_file(file):
            require_offsets(self.config.source.provenance)
            other = StoredJob.from_file(file)
            flow, other_flow = self.config.task_flow(), other.config.task_flow()
            for task_flow in (flow, other_flow):
                require_audited(task_flow)
            return compare_outputs(store, flow, other.open_store(create=False), other_flow)
        return compare_positions(store, read_positions(self.config, file, group))

    def open_store(self, *, create: bool) -> JobStore:
        """Open the job's store. If `create` and there is none, create it."""
        return self._folders.open_store(create=create)


def _step_context(config: JobConfig, store: JobStore) -> StepContext:
    committers = config.task_flow().committers
    return StepContext(store.fs, store.roots.staging, store.roots.output, committers, store.store_id)


def _lags(folders: JobFolders, store: JobStore, urns: Iterable[str]) -> Iterable[Lag]:
    folders.require_variables("source")
    requested = set(urns)
    states: dict[str, DatasetState] = {}
    for bucket in sorted(set(map(store.bucket_of, requested))):
        dataset_states = store.bucket_log(bucket).refresh().datasets
        states |= {urn: state for urn, state in dataset_states.items() if urn in requested}
    return folders.config.source.lags(states)
