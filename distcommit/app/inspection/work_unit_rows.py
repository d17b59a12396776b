"""Lists the work units of a run, or those that a dataset's state records of its previous run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from distcommit.app.inspection.recorded_runs import RunStatus, read_run
from distcommit.core.errors import ConfigurationError, CorruptError
from distcommit.core.interfaces.clock import Clock
from distcommit.core.records.previous_run import PreviousRun
from distcommit.core.support.notebook_tables import NotebookTable
from distcommit.core.task_properties import TaskProperties
from distcommit.core.watermark import Position
from distcommit.core.work_units import TaskOutcome, TaskState, WorkUnit
from distcommit.stores.folders.staging import list_attempts
from distcommit.stores.state.job_store import JobStore
from distcommit.stores.state.run_plans import PlanReader, read_manifest
from distcommit.stores.state.task_states import PastStates


class WorkUnitStatus(StrEnum):
    """The status of a work unit in a run."""

    PENDING = "pending"
    """No attempt has begun."""
    RUNNING = "running"
    """An attempt has begun and not ended."""
    INTERRUPTED = "interrupted"
    """An attempt has begun, and the run ended before it did."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PARTIAL = "partial"
    """The attempt failed, but a prefix can be committed."""


class WorkUnitRow(msgspec.Struct, frozen=True):
    """A work unit in a run.

    Attributes:
        dataset: dataset URN.
        work_unit: id of the work unit in the run.
        status: status of the work unit.
        attempts: number of finished attempts.
        low: first positions by partition.
        expected_high: planned ends by partition.
        actual_high: positions where the last attempt ended, by partition; empty before an attempt has ended.
        properties: properties that the source, a construct or a writer recorded, by the name of this part.
        is_committed: whether the output of the work unit is committed; None if unknown.
        records_read: number of records read.
        error: why the last attempt failed; empty if it did not.
    """

    dataset: str
    work_unit: str
    status: WorkUnitStatus
    attempts: int
    low: dict[str, Position]
    expected_high: dict[str, Position]
    actual_high: dict[str, Position] = {}
    properties: TaskProperties = {}
    is_committed: bool | None = None
    records_read: int = 0
    error: str = ""


class WorkUnitsResult(NotebookTable, msgspec.Struct, frozen=True):
    """The work units of a run.

    Attributes:
        job: name of the job.
        epoch: epoch of the run.
        status: status of the run.
        counts: number of work units by status.
        work_units: work units in the order of buckets and plans.
    """

    job: str
    epoch: int
    status: RunStatus
    counts: dict[str, int]
    work_units: list[WorkUnitRow]


def rows_of_previous_run(dataset: str, run: PreviousRun | None) -> list[WorkUnitRow]:
    """Return the work units of a dataset's previous run; none if `run` is None."""
    return [
        WorkUnitRow(
            dataset,
            result.work_unit_id,
            WorkUnitStatus(result.outcome.value),
            result.attempts,
            dict(result.low.positions),
            dict(result.expected_high.positions),
            dict(result.actual_high.positions),
            result.properties,
            result.is_committed,
        )
        for result in (run.work_units if run is not None else ())
    ]


def read_work_units(store: JobStore, epoch: int, clock: Clock) -> WorkUnitsResult:
    """Return all work units of a run, from its plan, its task states, and its attempts in the staging folder.

    Raises:
        ConfigurationError: if no such run is recorded, or it has no plan yet, or retention has deleted the plan.
        CorruptError: if its plan cannot be read.
    """
    run, fs, root = read_run(store, epoch, clock).run, store.fs, store.roots.store
    try:
        manifest = read_manifest(fs, root, run.run_id)
    except FileNotFoundError as error:
        raise ConfigurationError(
            "the plan of this run does not exist",
            id="RUN_UNKNOWN",
            epoch=epoch,
            found="none: the run has not planned yet, or retention has deleted its plan",
        ) from error
    plans, states = PlanReader(fs, root, manifest), PastStates(fs, root)
    is_alive = run.status in (RunStatus.PENDING, RunStatus.RUNNING)
    rows: list[WorkUnitRow] = []
    for bucket in sorted(manifest.files):
        attempts: dict[str, list[TaskState]] = {}
        for state in states.of(run.run_id, bucket):
            attempts.setdefault(state.work_unit_id, []).append(state)
        begun = list_attempts(fs, store.roots.staging, epoch, bucket)
        try:
            units = [unit for plan in plans.of(bucket) for unit in plan.work_units]
        except FileNotFoundError as error:
            raise CorruptError("a plan file is missing", bucket=bucket, found=str(error)) from error
        rows += _rows(units, attempts, begun, is_alive=is_alive)
    counts = Counter(row.status for row in rows)
    by_status = {status.value: counts[status] for status in WorkUnitStatus if counts[status]}
    return WorkUnitsResult(store.job, epoch, run.status, by_status, rows)


def _rows(
    units: Iterable[WorkUnit],
    states: Mapping[str, Sequence[TaskState]],
    begun: Mapping[str, Sequence[str]],
    *,
    is_alive: bool,
) -> Iterable[WorkUnitRow]:
    for unit in units:
        finished = sorted(
            states.get(unit.work_unit_id, ()),
            key=lambda state: (state.outcome is TaskOutcome.SUCCEEDED, state.finished_ms),
        )
        last = finished[-1] if finished else None
        ended = {state.attempt for state in finished}
        is_begun = any(folder.rpartition(".")[2] not in ended for folder in begun.get(unit.work_unit_id, ()))
        status = WorkUnitStatus.PENDING if last is None else WorkUnitStatus(last.outcome.value)
        if is_begun and status is not WorkUnitStatus.SUCCEEDED:
            status = WorkUnitStatus.RUNNING if is_alive else WorkUnitStatus.INTERRUPTED
        yield WorkUnitRow(
            unit.dataset_urn,
            unit.work_unit_id,
            status,
            len(finished),
            dict(unit.low.positions),
            dict(unit.expected_high.positions),
            dict(last.actual_high.positions) if last is not None else {},
            last.properties if last is not None else {},
            records_read=last.records_read if last is not None else 0,
            error=last.error if last is not None else "",
        )
