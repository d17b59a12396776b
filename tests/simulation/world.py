"""A whole job on a simulated machine, and the checks that must hold after any history.

The product's own entry functions run in one process on a POSIX file system in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace

from distcommit.app.admin.compact import compacting
from distcommit.app.admin.expire import expiring
from distcommit.app.auditing.audit import audit_store
from distcommit.core.commit_groups import CommitGroups
from distcommit.core.interfaces.clock import Clock
from distcommit.core.interfaces.file_system import FileSystem, FolderEntry
from distcommit.core.interfaces.sink import Sink
from distcommit.core.interfaces.source import Source
from distcommit.core.records.freshness_targets import NO_TARGETS, Freshness
from distcommit.core.records.log_records import DatasetState
from distcommit.core.support.decoding import from_msgpack
from distcommit.core.watermark import Watermark, as_offset
from distcommit.engine.driver.launch_interface import JobFailedError, Launch, Result
from distcommit.engine.driver.run import RecoverResult, RunResult, new_run_id, recover, run
from distcommit.engine.driver.run_recorder import recorded_run
from distcommit.engine.driver.task_progress import progress_folder, watched
from distcommit.engine.node_failures import NodeFailedError
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.engine.run_settings import RunSettings
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.fs.local_disk.posix_calls import PosixCalls
from distcommit.fs.separate_store import TwoFileSystems
from distcommit.pipeline.maintenance.compaction_groups import CompactionPolicy
from distcommit.pipeline.maintenance.reprocess_source import ReprocessSource
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.protocol.paths.shared_names import OWNERSHIP_FOLDER
from distcommit.protocol.paths.store import RUNS, SNAPSHOT_DELTAS, SNAPSHOTS
from distcommit.protocol.paths.temporary_and_probes import OUTPUT_PROBE, TEMPORARY, is_store_probe
from distcommit.protocol.seal_decision import CommitPolicy, RetryPolicy
from distcommit.sinks.files.sink import FileSink
from distcommit.spark.task_launch import PartitionCall
from distcommit.stores.history.retention import DEFAULT_RETENTION, Retention
from distcommit.stores.logs.fencing import begin_run, end_run
from distcommit.stores.state.job_store import JobStore, Roots, has_store, open_store
from distcommit.testing.fakes.model_source import ModelSource
from tests.models.model_flow import MODEL_FLOWS, flow_of_formats
from tests.simulation.log_watch import log_violation
from tests.simulation.simulated_hdfs import SimulatedHdfs
from tests.simulation.snapshot_watch import cut_violation

ROOTS = Roots("/job/store", "/job/staging", "/job/output")
_SINK = FileSink(compression="none")
FILE_A_RECORD = FileSink(compression="none", target_file_bytes=1)
"""A work unit writes a file for each record."""
_SWEPT = (RUNS, SNAPSHOTS, SNAPSHOT_DELTAS)


class SimulatedFileSystem(LocalFileSystem):
    """The local file system's own code, above other system calls."""

    scheme = "simulated"


class SimulatedClock:
    """Clock whose time passes only during sleeps."""

    def __init__(self) -> None:
        self._now_s, self._off_s = 1_700_000_000.0, 0.0

    def now_ms(self) -> int:
        return int((self._now_s + self._off_s) * 1000)

    def monotonic_s(self) -> float:
        return self._now_s

    def sleep(self, seconds: float) -> None:
        self._now_s += seconds

    def jump(self, seconds: float) -> None:
        """Set the clock, in either direction; no time passes."""
        self._off_s += seconds


@dataclass(frozen=True, slots=True)
class World:
    """Configuration of a history's job.

    `max_seconds`: when its tasks stop reading. `watched`: whether its tasks' progress is read. `loses_ingest`: whether
    Spark gives the ingest job up once its tasks have run. `files`: the format of its files. `min_interval_s`: above 0
    its tasks commit once, at their end. `resized`: it no longer sets the number of buckets. `flow`: the flow between
    source and sink. `repeats`: another executor repeats a task whose node failed. `on_hdfs`: its folders are on HDFS.
    `store_apart`: its store is on another file system, which is HDFS with `on_hdfs`.
    """

    buckets: int = 1
    partitions: int = 1
    policy: CommitPolicy = CommitPolicy.FULL
    job_level: bool = False
    max_attempts: int = 3
    task_attempts: int = 1
    max_seconds: float = 0
    watched: bool = False
    loses_ingest: bool = False
    files: FileSink = _SINK
    at_least_once: bool = False
    min_interval_s: float = 0
    resized: bool = False
    flow: Callable[[Source, Sink], TaskFlow] = TaskFlow.straight
    retry_across_runs: RetryPolicy = RetryPolicy.NEVER
    stop_after_failed_runs: int = 0
    resume_across_runs: bool = False
    policies: tuple[tuple[str, CommitPolicy], ...] = ()
    kept: Retention = DEFAULT_RETENTION
    freshness: Freshness = NO_TARGETS
    repeats: bool = False
    on_hdfs: bool = False
    store_apart: bool = False

    def store(self, calls: PosixCalls) -> JobStore:
        """Return the job's store on that machine; create it if it is missing."""
        fs: FileSystem = SimulatedHdfs(calls) if self.on_hdfs else SimulatedFileSystem(calls)
        if self.store_apart:
            fs = TwoFileSystems(fs, SimulatedFileSystem(calls), ROOTS.store)
        buckets = None if self.resized and has_store(fs, ROOTS) else self.buckets
        return open_store(fs, ROOTS, "job", buckets, create=True)

    def run(
        self,
        calls: PosixCalls,
        source: ModelSource,
        clock: Clock | None = None,
        sink: Sink | None = None,
        launched: Callable[[Launch], Launch] = lambda launch: launch,
    ) -> RunResult:
        """Run the whole job as a process would, from opening the store to the result.

        `launched`: wraps the function that launches the executors' functions.
        """
        here = _launch_and_repeat if self.repeats else launch_here
        launch = launched(_launch_and_lose if self.loses_ingest else here)
        settings = self.begin(calls, source, clock, sink)
        with (
            recorded_run(settings, "run", "world") as observer,
            watched(settings, observer, look=False) if self.watched else nullcontext(observer) as watching,
        ):
            result = run(launch, settings, max_seconds=self.max_seconds, observer=watching)
            end_run(settings.store, settings.epoch, clean=result.succeeded)
            return result

    def reprocess(
        self, calls: PosixCalls, source: ModelSource, urn: str, clock: Clock | None = None, sink: Sink | None = None
    ) -> RunResult:
        """Reprocess the live error files of a dataset, or of all if `urn` is empty, as a process would."""
        settings = self.begin_again(calls, source, urn, clock, sink)
        with recorded_run(settings, f"reprocess {urn or '--all'}", "world") as observer:
            result = run(launch_here, settings, observer=observer)
            end_run(settings.store, settings.epoch, clean=result.succeeded)
            return result

    def retain(
        self, calls: PosixCalls, source: ModelSource, before_ms: int, kept_snapshots: int | None = None
    ) -> RunResult:
        """Run once to expire older records, as a process would."""
        settings = expiring(self.begin(calls, source), before_ms, kept_snapshots)
        with recorded_run(settings, "expire", "world") as observer:
            result = run(launch_here, settings, observer=observer)
            end_run(settings.store, settings.epoch, clean=result.succeeded)
            return result

    def compact(self, calls: PosixCalls, source: ModelSource, policy: CompactionPolicy) -> RunResult:
        """Run once to compact small files, as a process would."""
        settings = compacting(self.begin(calls, source), policy)
        with recorded_run(settings, "compact", "world") as observer:
            result = run(launch_here, settings, observer=observer)
            end_run(settings.store, settings.epoch, clean=result.succeeded)
            return result

    def recover(self, calls: PosixCalls, source: ModelSource) -> RecoverResult:
        """Run a recovery only, as a process would."""
        settings = self.begin(calls, source)
        with recorded_run(settings, "recover", "world") as observer:
            result = recover(launch_here, settings, observer)
            end_run(settings.store, settings.epoch, clean=False)
            return result

    def begin(
        self, calls: PosixCalls, source: ModelSource, clock: Clock | None = None, sink: Sink | None = None
    ) -> RunSettings:
        """Open the store, claim the job's folders, take an epoch and mark the output with it."""
        sink = sink or self.files
        store = replace(self.store(calls), groups=CommitGroups(sink))
        run_id = new_run_id()
        if self.watched:
            store.fs.make_folders(progress_folder(ROOTS.store, run_id))
        return RunSettings(
            store=store,
            run_id=run_id,
            epoch=begin_run(store, run_id, unsealed=self.at_least_once),
            partitions=self.partitions,
            flow=self.flow(source, sink),
            policy=self.policy,
            policies=self.policies,
            job_level=self.job_level,
            min_interval_s=self.min_interval_s,
            max_attempts=self.max_attempts,
            task_attempts=self.task_attempts,
            retry_across_runs=self.retry_across_runs,
            stop_after_failed_runs=self.stop_after_failed_runs,
            resume_across_runs=self.resume_across_runs,
            retention=self.kept,
            freshness=self.freshness,
            at_least_once=self.at_least_once,
            clock=clock or SimulatedClock(),
        )

    def begin_again(
        self, calls: PosixCalls, source: ModelSource, urn: str, clock: Clock | None = None, sink: Sink | None = None
    ) -> RunSettings:
        """Begin as `begin` does, with a run that reads error files: see `reprocess`."""
        settings = self.begin(calls, source, clock, sink)
        errors = ReprocessSource(settings.store.fs, ROOTS.output, settings.flow, urn)
        return replace(settings, flow=settings.flow.with_source(errors))

    def watermarks(self, calls: PosixCalls) -> dict[str, Watermark]:
        """Return the stored watermarks; empty while there is no store."""
        fs = SimulatedFileSystem(calls)
        if fs.status(f"{ROOTS.store}/store.json") is None:
            return {}
        store = open_store(fs, ROOTS, "job", create=False)
        return {
            urn: state.watermark
            for bucket in range(store.buckets)
            for urn, state in store.bucket_log(bucket).refresh().datasets.items()
            if state.watermark is not None
        }

    def violation(
        self,
        calls: PosixCalls,
        source: ModelSource,
        before: Mapping[str, Watermark],
        *,
        set_by_hand: bool = False,
        earlier_records: int = 0,
    ) -> str:
        """Return a violation after an undisturbed whole run; empty if there is none.

        Args:
            calls: the machine.
            source: the job's input.
            before: the watermarks at the crash: none may be behind them now.
            set_by_hand: whether an operator may have moved the beginning of a dataset.
            earlier_records: how many published records come from sources before their recreation.
        """
        store = self.store(calls)
        after = self.watermarks(calls)
        for urn, watermark in before.items():
            if urn not in after or not after[urn].covers(watermark):
                return f"watermark of {urn} went back: {watermark} to {after.get(urn)}"
        expected = {
            urn: Watermark(dict(dataset.partitions), dataset.incarnation) for urn, dataset in source.datasets.items()
        }
        if after != expected:
            return f"watermarks are {after}, expected {expected}"
        audit = audit_store(
            store, source.provenance, deep=self.flow is flow_of_formats, at_least_once=self.at_least_once
        )
        ends = [end for dataset in source.datasets.values() for end in dataset.partitions.values()]
        records_of = next((records_of for flow, records_of in MODEL_FLOWS if flow is self.flow), None)
        records = earlier_records + sum(sum(map(records_of, range(end))) if records_of else end for end in ends)
        if set_by_hand:
            records -= sum(as_offset(first) for state in _states(store) for first in state.origin.values())
        expired = sum(sum(dataset.expired.values()) for dataset in source.datasets.values())
        rows = [row for row in audit.partitions if not row.incarnation]  # of others only the files' records count
        known_records = audit.records + audit.rejected_records
        known_records += 0 if records_of else sum(row.skipped + row.holes for row in rows)
        wrong_count = known_records < records if self.at_least_once else known_records != records
        if not audit.passed or wrong_count or audit.skipped > expired:
            return f"{audit.records} records published of {records}; {audit}"
        if self.resume_across_runs and left_in_staging(calls):  # the run after the one that resumes sweeps
            self.run(calls, source)
        return self.violation_beside(calls)

    def violation_beside(self, calls: PosixCalls) -> str:
        """Return a violation of everything but the published records: orphaned files, the logs, the snapshots."""
        store = self.store(calls)
        for folder in (*_folders(store), *(f"{store.roots.store}/{name}" for name in _SWEPT), store.roots.output):
            for entry in store.fs.list_folder(folder):
                if entry.name.startswith((TEMPORARY, OUTPUT_PROBE)) and not _of_a_new_store(entry):
                    return f"left behind: {folder}/{entry.name}"
        orphaned = left_in_staging(calls)
        return f"left behind in task output: {orphaned}" if orphaned else log_violation(store) or cut_violation(store)


def left_in_staging(calls: PosixCalls) -> list[FolderEntry]:
    """Return the entries of the job's staging folder, except the ownership note."""
    return [
        entry
        for entry in SimulatedFileSystem(calls).list_folder(ROOTS.staging)
        if entry.name != OWNERSHIP_FOLDER and not _of_a_new_store(entry)
    ]


def _of_a_new_store(entry: FolderEntry) -> bool:
    """Return whether the entry is a file system probe of a new store.

    If the disk fails just then, the probe stays until another store is created.
    """
    return is_store_probe(entry.name)


def launch_here(
    function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
) -> list[Result]:
    """Run executor functions one after the other in this process, called as Spark calls them."""
    call = PartitionCall(function, settings)
    reports = (report for task in range(tasks) for report in call.in_task(task, ()))
    return [from_msgpack(report, kind) for report in reports]


def _launch_and_repeat(
    function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
) -> list[Result]:
    """Launch as `launch_here` does, but repeat a task whose node failed, as Spark does on another executor."""
    reports: list[bytes] = []
    for task in range(tasks):
        try:
            reports += PartitionCall(function, settings, hands_back=1).in_task(task, ())
        except NodeFailedError:
            reports += PartitionCall(function, replace(settings, after_death=True)).in_task(task, ())
    return [from_msgpack(report, kind) for report in reports]


def _launch_and_lose(
    function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
) -> list[Result]:
    """Launch as `launch_here` does, but fail the ingest job after its tasks have run."""
    reports = launch_here(function, settings, tasks, kind)
    if function is ingest_partition:
        raise JobFailedError("Job aborted due to stage failure", "aborted")
    return reports


def _states(store: JobStore) -> list[DatasetState]:
    return [s for bucket in range(store.buckets) for s in store.bucket_log(bucket).refresh().datasets.values()]


def _folders(store: JobStore) -> list[str]:
    return [store.job_log().folder, *(store.bucket_log(bucket).folder for bucket in range(store.buckets))]
