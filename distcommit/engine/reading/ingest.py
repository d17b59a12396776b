"""The ingest job: tasks read work units and commit complete datasets."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from distcommit.core.error_handling.error_text_classification import is_permanent
from distcommit.core.errors import DistcommitError, FencedError, StuckError, error_text
from distcommit.core.interfaces.sink import AttemptIdentity
from distcommit.core.interfaces.source import Extractor
from distcommit.core.interfaces.work_unit_settings import SETTINGS
from distcommit.core.records.maintenance_units import is_maintenance
from distcommit.core.records.run_counts import EXECUTION_COUNTS, RunCounts, SinkCounter
from distcommit.core.support.io_batching import run_batched_outcomes, with_ids
from distcommit.core.work_units import TaskOutcome, TaskState, WorkUnit
from distcommit.engine.committing.bucket_committer import BucketCommitter
from distcommit.engine.driver.task_progress import ProgressFile
from distcommit.engine.driver.task_reports import Report, Tally
from distcommit.engine.node_failures import NodeFailedError, hand_back
from distcommit.engine.reading.attempt_report import report_attempt
from distcommit.engine.reading.back_off import wait_before_retry
from distcommit.engine.reading.read_deadline import ReadDeadline
from distcommit.engine.reading.task_plan import TaskPlan, ingest_tasks
from distcommit.engine.reading.task_recorder import TaskRecorder
from distcommit.engine.reading.worker_deaths import TaskNotes, units_to_read
from distcommit.engine.run_events import Progressed
from distcommit.engine.run_settings import RunSettings
from distcommit.pipeline.background_finalization import BackgroundFinalization
from distcommit.pipeline.limits.watchdog_process import Watchdog
from distcommit.pipeline.progress_counters import ProgressCounters
from distcommit.pipeline.task_attempt import Attempt
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.protocol.seal_decision import CommitPolicy
from distcommit.stores.folders.attempt_notes import note_attempt
from distcommit.stores.folders.staging import make_area
from distcommit.stores.schemas.schema_store import SchemaStore
from distcommit.stores.state.run_plans import read_manifest
from distcommit.stores.state.task_states import TaskStateWriter

logger = logging.getLogger(__name__)


def ingest_partition(settings: RunSettings, task: int) -> Report:
    """Run one ingest task: read its work units one after the other, and commit in between.

    Tasks with a number below `len(manifest.large_units)` read large work units. The other tasks read work units of the
    buckets that their partition owns or borrows. The drain repeats a failed commit. The fence of a newer run ends the
    task early and is in the report.

    Raises:
        NodeFailedError: if the node may have failed and another executor repeats the task. Finished work is stored.
    """
    ingest = _IngestTask(settings, task)
    try:
        ingest.run()
    except FencedError as error:
        ingest.tally.fenced = str(error)
    except NodeFailedError:
        ingest.keep_finished()
        raise
    return ingest.report()


def read_suspect(settings: RunSettings, task: int) -> Report:
    """Run a task for the work unit `settings.alone`.

    If a worker has died while it read only this work unit, record a failure instead.
    """
    manifest = read_manifest(settings.store.fs, settings.store.roots.store, settings.run_id)
    return ingest_partition(settings, ingest_tasks(settings, manifest) + task)


class _IngestTask:
    def __init__(self, settings: RunSettings, task: int) -> None:
        self._settings, self._task, self._clock = settings, task, settings.clock
        self.tally = Tally()
        self._store, self._fs = settings.store, settings.store.fs
        root = self._store.roots.store
        plan = TaskPlan(settings, task)
        self._owned, self._plans, self._bucket_of = plan.owned, plan.plans, plan.bucket_of
        self._units, self._tasks = plan.units, plan.tasks
        self._deadline = ReadDeadline(settings)
        self._notes = TaskNotes(settings)
        self._schemas = SchemaStore(self._fs, root, settings.epoch, settings.resume_across_runs)
        self._writer = TaskStateWriter(self._fs, root, settings.run_id, settings.partitions)
        self._recorder = TaskRecorder(settings, "ingest", task, self._writer.writer)
        self._committers: dict[int, BucketCommitter] = {}
        self._tables = settings.task_states(self._plans)
        self._abandoned_counts: list[RunCounts] = []
        self._finished: dict[int, list[TaskState]] = {}
        self._uncommitted: set[int] = set()
        self._unsynced: set[str] = set()
        self._permanently_failed: set[str] = set()
        self._committed_at_s = self._clock.monotonic_s()
        self._progress = ProgressFile(settings, "ingest", task, self._so_far)
        self._live = ProgressCounters(self._progress.tick)
        self._watchdog = Watchdog(settings.flow, TaskStateWriter(self._fs, root, settings.run_id, settings.partitions))

    def report(self) -> Report:
        """Return the report, without failed commits, which the drain repeats."""
        committed = self._committed().only(*EXECUTION_COUNTS, "datasets_committed", "files_swept")
        return replace(self.tally.report(self._task), counts=self.tally.counts + committed)

    def _committed(self) -> RunCounts:
        run_counts = (committer.tally.counts for committer in self._committers.values())
        return RunCounts.total((*self._abandoned_counts, *run_counts))

    def _so_far(self) -> Progressed:
        read, done = self.tally.counts, self._committed()
        counts = RunCounts(
            datasets_committed=done.datasets_committed,
            records_read=self._live.records,
            steps_executed=done.steps_executed,
            work_units_failed=read.work_units_failed,
            executions_failed=done.executions_failed,
            bytes_read=self._live.bytes_read,
        )
        return Progressed(counts=counts, spent=self._live.seconds_by_activity)

    def run(self) -> None:
        units, permanently_failed = self._units_left_by_earlier_attempts()
        remaining = units
        with self._progress, self._watchdog:
            for attempt in range(self._settings.task_attempts):
                if attempt and not wait_before_retry(self._settings, attempt, self._commit_all):
                    break
                failed = self._read(remaining)
                self._put_states()
                remaining = [unit for unit in remaining if unit in failed or unit.work_unit_id in self._unsynced]
                permanently_failed += sum(1 for unit in remaining if unit.work_unit_id in self._permanently_failed)
                remaining = [unit for unit in remaining if unit.work_unit_id not in self._permanently_failed]
                if not remaining:
                    break
                logger.warning("%d work units failed in attempt %d", len(remaining), attempt + 1)
                self._unsynced.clear()
            self._notes.forget(units)
            self.tally.add(RunCounts(work_units_failed=len(remaining) + permanently_failed))
            self._commit_all()
        self._recorder.write(len(self._units))

    def keep_finished(self) -> None:
        self._notes.forget(())
        self._put_states()

    def _units_left_by_earlier_attempts(self) -> tuple[list[WorkUnit], int]:
        states: list[TaskState] = []
        for bucket in self._plans:
            try:
                states += self._committer(bucket).poll_states()
            except (DistcommitError, OSError) as error:
                hand_back(self._settings, error)
                logger.warning("task states cannot be read, reading again: %s", error, extra={"bucket": bucket})
        remaining, killers = units_to_read(self._units, states)
        for unit, death in self._notes.deaths_of(remaining):
            self._add_state(failed_state(self._settings, unit, death))
            return [], killers + 1
        unsuspected = self._notes.without_suspects(remaining)
        self.tally.add(RunCounts(work_units_suspected=len(remaining) - len(unsuspected)))
        return unsuspected, killers

    def _read(self, units: list[WorkUnit]) -> list[WorkUnit]:
        """Read work units and commit; return the failed ones.

        A work unit that failed only in optional branches is read again, and these reject all of its records.
        """
        failed: list[WorkUnit] = []
        flows: dict[str, TaskFlow] = {}
        while units:
            earlier_flows, flows = flows, {}
            to_read_again: list[WorkUnit] = []
            for unit, state in self._read_once(units, earlier_flows):
                flow = earlier_flows.get(unit.work_unit_id, self._settings.flow).diverting(state.branches)
                (failed if flow is None else to_read_again).append(unit)
                if flow is not None:
                    flows[unit.work_unit_id] = flow
            units = to_read_again
        return failed

    def _read_once(self, units: list[WorkUnit], flows: Mapping[str, TaskFlow]) -> list[tuple[WorkUnit, TaskState]]:
        """Read each work unit once; return failed ones. `flows`: flows other than the job's, by work unit."""
        failed: list[tuple[WorkUnit, TaskState]] = []
        _announce(self._settings, units)
        try:
            extractor = self._settings.flow.source.open()
            extractor.announce(units)
        except Exception as error:
            hand_back(self._settings, error)
            logger.exception("the source cannot be opened")
            failed = [(unit, failed_state(self._settings, unit, error)) for unit in units]
            for _, state in failed:
                self._add_state(state)
            return failed
        try:
            with BackgroundFinalization(1 if self._notes.are_written else self._fs.parallel_calls) as preparing:
                for unit in units:
                    with self._recorder.working_on(unit.dataset_urn):
                        attempt = self._read_unit(extractor, unit, flows.get(unit.work_unit_id, self._settings.flow))
                        if isinstance(attempt, Attempt):
                            preparing.add(attempt)
                        else:
                            failed.append((unit, attempt))
                            self._add_state(attempt)
                    failed += self._add_ended(preparing.ended())
                    if self._clock.monotonic_s() - self._committed_at_s >= self._settings.min_interval_s:
                        self._commit()
                failed += self._add_ended(preparing.ended(all_of_them=True))
        finally:
            _close(extractor)
            self._settings.flow.close()
        return failed

    def _add_ended(self, attempts: Iterable[Attempt]) -> list[tuple[WorkUnit, TaskState]]:
        failed: list[tuple[WorkUnit, TaskState]] = []
        for attempt in attempts:
            state = attempt.state()
            if state.outcome is not TaskOutcome.SUCCEEDED:
                hand_back(self._settings, attempt.error)
                failed.append((attempt.unit, state))
            self._add_state(state, attempt.counters)
        return failed

    def _read_unit(self, extractor: Extractor, unit: WorkUnit, flow: TaskFlow) -> Attempt | TaskState:
        """Return the attempt, even if it failed; a failed state if folder, note or marker can't be written."""
        settings, roots = self._settings, self._store.roots
        bucket = self._bucket_of[unit.dataset_urn]
        identity = _new_attempt(settings, unit, self._task, self._tasks)
        try:
            area = make_area(self._fs, roots.staging, roots.output, bucket, identity)
            if flow.preparing_committers:
                note_attempt(self._fs, roots.staging, area.prefix, flow.preparing_committers)
            self._notes.put(unit)
        except OSError as error:
            hand_back(settings, error)
            logger.warning("no folder for an attempt: %s", error, extra={"work_unit": unit.work_unit_id})
            return failed_state(settings, unit, error)
        attempt = Attempt(flow, unit, area, identity, self._clock, schema_store=self._schemas, counters=self._live)
        with self._watchdog.working_on(bucket, failed_state(settings, unit, StuckError("a construct does not return"))):
            attempt.read(
                extractor,
                self._deadline.of(unit),
                keeps_prefix=settings.policy_of(unit.dataset_urn) is CommitPolicy.PARTIAL,
            )
        return attempt

    def _add_state(self, state: TaskState, counters: tuple[SinkCounter, ...] = ()) -> None:
        self._permanently_failed.discard(state.work_unit_id)
        if state.outcome is not TaskOutcome.SUCCEEDED and is_permanent(state.error):
            self._permanently_failed.add(state.work_unit_id)
        self._finished.setdefault(self._bucket_of[state.dataset_urn], []).append(state)
        report_attempt(state, counters, self.tally)
        self._progress.tick()

    def _commit_all(self) -> None:
        """Commit in all buckets, because other tasks may have put states."""
        self._uncommitted.update(self._plans)
        self._commit()

    def _commit(self) -> None:
        """Put finished states, then commit ready datasets.

        The drain repeats failures, and commits groups of other partitions' buckets, because several committers would
        conflict at one target.
        """
        self._put_states()
        grouped = self._store.groups.are_named
        buckets = sorted(bucket for bucket in self._uncommitted if bucket in self._owned or not grouped)
        commits = [with_ids(self._committer(bucket).commit_ready(ended=False), bucket=bucket) for bucket in buckets]
        with self._live.at("commit"), self._recorder.committing():
            outcomes = run_batched_outcomes(commits, self._fs.parallel_buckets)
        for bucket, outcome in zip(buckets, outcomes, strict=True):  # one report: one thread
            if isinstance(outcome, FencedError | NodeFailedError):
                raise outcome
            if isinstance(outcome, Exception):  # work units of other buckets continue
                hand_back(self._settings, outcome)
                trace = None if isinstance(outcome, DistcommitError | OSError) else outcome
                logger.warning("commit left to the drain: %s", outcome, extra={"bucket": bucket}, exc_info=trace)
                self._abandoned_counts.append(self._committers.pop(bucket).tally.counts)
        self._uncommitted = set()
        self._committed_at_s = self._clock.monotonic_s()
        self._progress.tick()

    def _put_states(self) -> None:
        """Make staged files durable, then put states that name them; the next call repeats failures."""
        if not self._finished:
            return
        try:
            self._fs.sync_tree(self._store.roots.staging)
        except OSError as error:  # final for these files: their bytes may be lost, so that these attempts have failed
            unsynced, self._finished = self._finished, {}
            hand_back(self._settings, error)
            logger.exception("staged files could not be synced")
            text = f"staged files could not be synced: {error}"
            self._unsynced.update(s.work_unit_id for states in unsynced.values() for s in states)
            self._finished = {bucket: _with_error(states, text) for bucket, states in unsynced.items()}
        for bucket, name in self._writer.append(self._finished).items():
            if isinstance(name, OSError):
                hand_back(self._settings, name)
                logger.warning("task states could not be written: %s", name, extra={"bucket": bucket})
                continue
            self._committer(bucket).add_states(name, self._finished.pop(bucket))
            self._uncommitted.add(bucket)

    def _committer(self, bucket: int) -> BucketCommitter:
        if bucket not in self._committers:
            observer = self._recorder.recording(self.tally)
            self._committers[bucket] = BucketCommitter(
                self._settings, bucket, observer, self._plans[bucket], self._tables
            )
        return self._committers[bucket]


def _announce(settings: RunSettings, units: list[WorkUnit]) -> None:
    """Announce datasets to the sink. An error is only logged, because each writer would meet it."""
    usual = (unit for unit in units if not is_maintenance(unit) and SETTINGS not in unit.properties)
    datasets = dict.fromkeys(unit.dataset_urn for unit in usual)
    try:
        settings.flow.announce(list(datasets), settings.run_id)
    except Exception:
        logger.warning("the sink could not prepare for %d datasets", len(datasets), exc_info=True)


def _close(extractor: Extractor) -> None:
    try:
        extractor.close()
    except Exception:
        logger.warning("an extractor could not be closed", exc_info=True)


def _with_error(states: Iterable[TaskState], error: str) -> list[TaskState]:
    return [replace(state, outcome=TaskOutcome.FAILED, branches=(), error=error) for state in states]


def failed_state(settings: RunSettings, unit: WorkUnit, error: Exception) -> TaskState:
    now = settings.clock.now_ms()
    return TaskState(
        run_id=settings.run_id,
        epoch=settings.epoch,
        dataset_urn=unit.dataset_urn,
        work_unit_id=unit.work_unit_id,
        attempt=uuid.uuid4().hex,
        outcome=TaskOutcome.FAILED,
        low=unit.low,
        expected_high=unit.expected_high,
        actual_high=unit.low,
        error=error_text(error),
        started_ms=now,
        finished_ms=now,
    )


def _new_attempt(settings: RunSettings, unit: WorkUnit, task: int, tasks: int) -> AttemptIdentity:
    attempt, of = uuid.uuid4().hex, (settings.run_id, settings.epoch, unit.dataset_urn, unit.work_unit_id)
    return AttemptIdentity(*of, attempt, task=task, tasks=tasks)
