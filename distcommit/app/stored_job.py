"""A job as it is stored: what can be looked at without Spark, from any machine that reaches the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from distcommit.app.inspection.datasets import DatasetsResult, Query, list_datasets
from distcommit.app.inspection.problems.commands import command_for
from distcommit.app.inspection.problems.detect import troubles_of
from distcommit.app.inspection.problems.environment_checks import look_around
from distcommit.app.inspection.runs import RunResultKept, RunsResult, newest_epoch, read_run, read_runs
from distcommit.app.inspection.status import StatusResult, read_status
from distcommit.app.inspection.steps import StepsResult, read_steps
from distcommit.app.job_file.config import JobConfig, load_tree, parse_config
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.core.interfaces.source import Lag
from distcommit.core.interfaces.steps import StepContext
from distcommit.core.ports import FileSystem
from distcommit.core.records.log_records import DatasetState
from distcommit.engine.clock import SystemClock
from distcommit.stores.history.retention import Retention
from distcommit.stores.operator.schedule_requests import paused_by
from distcommit.stores.snapshots.expiry_cutoffs import known_horizon
from distcommit.stores.state.job_store import JobStore, Roots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from distcommit.app.auditing.audit import AuditResult
    from distcommit.app.inspection.read_log import LogResult
    from distcommit.app.inspection.replay_plan import ReplayPlan
    from distcommit.app.inspection.run_report import RunReport
    from distcommit.app.inspection.sweeps import SweepResult
    from distcommit.app.inspection.verify_store import VerifyResult
    from distcommit.app.migration.compare import CompareResult

_ALL = Query()
_NEWEST_RUNS, _NEWEST_SHOWN = 20, 5


class StoredJob:
    """One ingestion job, to be looked at. What few ask for is imported when they do: `status` is waited for.

    Args:
        config: the job.
        session: a Spark session to use; without one each run uses the one that is open in this process, or starts its
            own and stops it.
        path: the job's file, and
        overrides: what wins over it, for commands that messages name.
        throwaway: whether its folders are deleted after one run.
        tree: what the file says, as it stands there.
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
    ) -> None:
        self.config, self._session = config, session
        self._folders = JobFolders(config, path, tuple(overrides), throwaway, tree or {})

    @classmethod
    def from_file(cls, path: str | Path, overrides: Sequence[str] = (), session: SparkSession | None = None) -> Self:
        """The job that a YAML file describes; `overrides` are `section.key=value` texts.

        Raises:
            ConfigurationError: if the file is wrong.
        """
        tree = load_tree(path, overrides)
        config = parse_config(tree, Path(path))
        return cls(config, session, path=Path(path), overrides=overrides, tree=tree)

    def within(self, session: SparkSession) -> Self:
        """The same job, whose runs use a Spark session that others use, too."""
        own = self._folders
        return type(self)(
            own.config, session, path=own.path, overrides=own.overrides, throwaway=own.throwaway, tree=own.tree
        )

    def places(self) -> tuple[FileSystem, Roots]:
        """The file system of the job's folders, and these, whether there is a store or not."""
        return self._folders.places()

    def command(self, name: str) -> str:
        """A command on the job as a shell takes it."""
        return command_for(self._folders)(name)

    def status(self, *, idle: bool = True) -> StatusResult:
        """What is stored of each dataset, what is kept of the newest runs, and what is wrong, with the commands that
        resolve it. Reads only; runs beside a live run.

        Args:
            idle: whether datasets are listed of which there is nothing to be said; else they are counted alone.

        Raises:
            ConfigurationError: if there is no store.
        """
        store, clock = self.open_store(create=False), SystemClock()
        config, published_in = self.config, self._published_in
        whole_job = config.commit.scope == "job"
        status = read_status(store, published_in, config.source.extract_of, whole_job=whole_job, idle=idle)
        runs = read_runs(store, clock, newest=_NEWEST_RUNS)
        around = look_around(self._folders, store, status, runs, clock.now_ms())
        if self.config.schedule is not None:
            status = msgspec.structs.replace(status, paused_by=paused_by(store.fs, store.roots.store))
        return msgspec.structs.replace(
            status,
            runs=runs.runs[:_NEWEST_SHOWN],
            failed_in_a_row=runs.failed_in_a_row,
            retained=known_horizon(store),
            troubles=troubles_of(status, runs, command_for(self._folders), around),
        )

    @property
    def _published_in(self) -> Callable[[str], str]:
        return partial(self.config.task_flow().published_in, output=self.config.paths.output)

    def datasets(self, query: Query = _ALL, *, lag: bool = False) -> DatasetsResult:
        """Datasets one by one, as `query` wants them. Reads only; raises as `status`.

        Args:
            query: which, and by what.
            lag: ask the source how far each is behind, which reaches it from this machine.
        """
        store = self.open_store(create=False)
        newest = read_runs(store, SystemClock(), newest=1).runs if query.read else []
        status = msgspec.structs.replace(read_status(store), runs=[row for row in newest if row.epoch][:1])
        ask_lag = partial(self._lags, store) if lag else None
        found = list_datasets(store, status, query, ask_lag, self.config.targets)
        published_in, extract_of = self._published_in, self.config.source.extract_of
        for index, row in enumerate(found.datasets):  # of those that are shown
            urn = row.state.dataset
            state = msgspec.structs.replace(row.state, published_in=published_in(urn), extract=extract_of(urn))
            found.datasets[index] = msgspec.structs.replace(row, state=state)
        return found

    def _lags(self, store: JobStore, urns: Iterable[str]) -> Iterable[Lag]:
        wanted = set(urns)
        states: dict[str, DatasetState] = {}
        for bucket in sorted(set(map(store.bucket_of, wanted))):
            found = store.bucket_log(bucket).refresh().datasets
            states |= {urn: state for urn, state in found.items() if urn in wanted}
        return self.config.source.lags(states)

    def steps(self, dataset: str | None = None, *, most: int = 0) -> StepsResult:
        """What is sealed and not closed, with the state of each step. Reads only.

        Raises:
            ConfigurationError: if there is no store, or it does not know the dataset.
        """
        store = self.open_store(create=False)
        return read_steps(store, self._step_context(store), dataset, most)

    def _step_context(self, store: JobStore) -> StepContext:
        roots, committers = store.roots, self.config.task_flow().committers
        return StepContext(store.fs, roots.staging, roots.output, committers, store.store_id)

    def replay_plan(self, dataset: str | None = None) -> ReplayPlan:
        """What the next run's replay would do, were no other run alive. Reads only; raises as `steps`.

        Raises:
            DistcommitError: what such a run would refuse to begin with.
        """
        from distcommit.app.inspection.refusals import runnable, unrecoverable  # noqa: PLC0415 - few ask for it
        from distcommit.app.inspection.replay_plan import plan_replay  # noqa: PLC0415

        store = runnable(self._folders)
        left = unrecoverable(store, self._step_context(store))
        return plan_replay(self.status(), self.steps(dataset), left)

    def verify_store(self) -> VerifyResult:
        """Whether each log keeps the rules, and what runs say is what the logs say. Reads only.

        Raises:
            ConfigurationError: if there is no store.
        """
        from distcommit.app.inspection.verify_store import verify_store  # noqa: PLC0415 - few ask for it

        return verify_store(self.open_store(create=False))

    def sweeps(self) -> SweepResult:
        """What the next run would delete of what nobody needs any more, as things stand. Reads only; raises as
        `replay_plan`."""
        from distcommit.app.inspection.refusals import runnable  # noqa: PLC0415 - few ask for it
        from distcommit.app.inspection.sweeps import show_sweeps  # noqa: PLC0415

        kept = self.config.retention
        return show_sweeps(runnable(self._folders), Retention(kept.runs, kept.tables), self.config.kept_cuts)

    def runs(self) -> RunsResult:
        """What is kept of the job's runs. Reads only; runs beside a live run.

        Raises:
            ConfigurationError: if there is no store.
        """
        return read_runs(self.open_store(create=False), SystemClock())

    def kept_run(self, epoch: int) -> RunResultKept:
        """All that is kept of the run of an epoch. Reads only.

        Raises:
            ConfigurationError: if there is no store, or nothing is kept of such a run.
        """
        return read_run(self.open_store(create=False), epoch, SystemClock())

    def report(self, epoch: int | None = None, *, lag: bool = False) -> RunReport:
        """What a page shows of the run of an epoch, or of the newest one. Reads only; runs beside a live run.

        Args:
            epoch: the run's; None: of the newest.
            lag: ask the source how far each dataset is behind now, which reaches it from this machine.

        Raises:
            ConfigurationError: if there is no store, or nothing is kept of such a run.
        """
        from distcommit.app.inspection.run_report import make_report  # noqa: PLC0415 - few ask for it

        store, clock = self.open_store(create=False), SystemClock()
        chosen = newest_epoch(store, clock) if epoch is None else epoch
        return make_report(store, chosen, clock, partial(self._lags, store) if lag else None)

    def log(self, *, bucket: int | None = None, dataset: str | None = None) -> LogResult:
        """The records of the job log, of a bucket's or of those that concern a dataset. Reads only.

        Raises:
            ConfigurationError: if there is no store, or no such bucket.
        """
        from distcommit.app.inspection.read_log import read_log  # noqa: PLC0415 - few ask for it

        return read_log(self.open_store(create=False), bucket=bucket, dataset=dataset)

    def audit(self, *, deep: bool = False) -> AuditResult:
        """Whether every offset below the watermarks is published exactly once, or as often as the job's delivery says.
        Reads only.

        Args:
            deep: read every record instead of the files' metadata, and have targets count the rows that their readers
                see.

        Raises:
            ConfigurationError: if there is no store, or if one of the job's sinks tells nothing of what it has
                committed: its target is then to be asked.
        """
        from distcommit.app.auditing.audit import audit_store  # noqa: PLC0415 - few ask for it
        from distcommit.app.auditing.ledgers import open_ledgers, require_audited  # noqa: PLC0415 - few ask for it

        flow = self.config.task_flow()
        require_audited(flow)
        store, at_least_once = self.open_store(create=False), self.config.commit.delivery == "at_least_once"
        with open_ledgers(flow, store) as ledgers:
            return audit_store(
                store, self.config.source.provenance, deep=deep, at_least_once=at_least_once, ledgers=ledgers
            )

    def compare(self, file: Path | None = None, *, group: str | None = None) -> CompareResult:
        """Compares with another system's positions, or with what another job (`file` ends in .yaml) has published.

        Reads only; best while nothing runs.

        Raises:
            ConfigurationError: if it is another job, and the source's records have no offsets; or a file is wrong.
        """
        from distcommit.app.auditing.ledgers import require_audited  # noqa: PLC0415 - few ask for it
        from distcommit.app.migration.compare import compare_outputs, compare_positions, require_offsets  # noqa: PLC0415 - few ask for it
        from distcommit.app.migration.positions import read_positions  # noqa: PLC0415 - few ask for it

        store = self.open_store(create=False)
        if file is not None and is_job_file(file):
            require_offsets(self.config.source.provenance)
            other = StoredJob.from_file(file)
            flow, other_flow = self.config.task_flow(), other.config.task_flow()
            for each in (flow, other_flow):
                require_audited(each)
            return compare_outputs(store, flow, other.open_store(create=False), other_flow)
        return compare_positions(store, read_positions(self.config, file, group))

    def open_store(self, *, create: bool) -> JobStore:
        """The job's store, made first if asked to."""
        return self._folders.open_store(create=create)


def is_job_file(path: Path) -> bool:
    """Whether it is named as job files are."""
    return path.suffix.lower() in (".yaml", ".yml")
