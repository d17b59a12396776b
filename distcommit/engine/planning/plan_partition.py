"""The plan job. Each partition plans the datasets of its own buckets, so that no process holds all plans."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count, islice

import msgspec
from msgspec.structs import replace

from distcommit.core.errors import (
    ConfigurationError,
    DistcommitError,
    FencedError,
    SourceError,
    SourceUnavailableError,
    error_text,
    kind_of,
    plain_text,
)
from distcommit.core.interfaces.source import DatasetProblem, Planned, SkippedDataset, SourceState
from distcommit.core.records.deferred_records import DeferredRecords
from distcommit.core.records.fixed_settings import FixedSetting, SourceFact
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.records.run_counts import RunCounts
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import DatasetPlan, WorkUnit
from distcommit.engine.driver.task_reports import Report, Tally
from distcommit.engine.node_failures import hand_back
from distcommit.engine.planning.freshness_lags import known_lags, note_datasets_behind
from distcommit.engine.planning.loop_check import LoopCheck
from distcommit.engine.planning.plan_checks import LARGEST_SIZE, check_plan, checked_deferral
from distcommit.engine.planning.read_priority import with_priorities
from distcommit.engine.planning.work_distribution import Loads, lent_ranges, pack_large_units
from distcommit.engine.reading.record_read_failures import stop_reason
from distcommit.engine.reading.task_recorder import TaskRecorder
from distcommit.engine.reading.worker_deaths import EarlierSuspects
from distcommit.engine.run_settings import RunSettings
from distcommit.pipeline.converter_schema_ids import with_schemas
from distcommit.pipeline.maintenance.delete_superseded_files import delete_superseded
from distcommit.protocol.paths.shared_names import work_unit_name
from distcommit.stores.folders.attempt_notes import make_notes_durable
from distcommit.stores.folders.staging import prepare_bucket
from distcommit.stores.history.retention import expire_history
from distcommit.stores.history.run_records import NOT_PLANNED
from distcommit.stores.history.run_table import DatasetOutcome, TableRow, outcome_row
from distcommit.stores.logs.fencing import require_fence
from distcommit.stores.state.job_store import JobStore
from distcommit.stores.state.run_plans import MANIFEST_VERSION, Manifest, write_plans
from distcommit.stores.state.task_states import prepare_run

logger = logging.getLogger(__name__)


class PlanReport(msgspec.Struct, frozen=True):
    """Report on a partition's plan, or its failure."""

    report: Report
    """Counts and reasons."""
    files: dict[int, str] = {}
    """Name of the plan file by bucket."""
    loads: dict[int, int] = {}
    """Sum of `load_of` by bucket."""
    largest: tuple[tuple[int, int, str], ...] = ()
    """Largest work units as (load, bucket, work unit id)."""
    failure: str = ""
    """Why the source could not be planned; empty if it could."""
    storage_failure: str = ""
    """Why the plan could not be stored; empty if it could."""
    source_facts: dict[str, FixedSetting] = {}
    """Facts that the source reports of itself, by the setting that they are recorded as."""
    misplaced: str = ""
    """A dataset in another bucket than that of its commit group; empty if there is none."""
    suspects: int = 0
    """Work units to read alone, because a worker of an earlier run died."""


class _PartitionPlan:
    def __init__(self) -> None:
        self.tally = Tally()
        self.files: dict[int, str] = {}
        self.loads = Loads()
        self.found: dict[str, FixedSetting] = {}
        self.misplaced = ""
        self.suspects = 0
        self.skipped: list[TableRow] = []

    def skip(self, bucket: int, urn: str, kind: str, reason: str, remedy: tuple[str, ...] = ()) -> None:
        self.tally.add(RunCounts(datasets_skipped=1))
        self.tally.add_reason(urn, kind, reason, remedy)
        self.skipped.append(outcome_row(urn, bucket, DatasetOutcome.SKIPPED, kind=kind, reason=reason))


def plan_partition(settings: RunSettings, partition: int) -> PlanReport:
    """Plan the datasets of a partition, in files that become valid with the manifest.

    Also delete superseded files and a share of expired history.
    """
    planned, failure, storage_failure = _PartitionPlan(), "", ""
    tally = planned.tally
    try:
        states = _states(settings, partition, planned)
        planned.misplaced = _misplaced_dataset(settings.store, states)
        for urn, reason in delete_superseded(settings.store, states):
            tally.note(urn, "superseded files stay", reason)
        if reason := expire_older_history(settings, partition, settings.partitions):
            tally.note(f"partition {partition}", "tables of older runs stay", reason)
        _plan(settings, partition, states, planned)
        recorder = TaskRecorder(settings, "plan", partition)
        recorder.add_outcomes(planned.skipped)
        recorder.write()
    except FencedError as error:
        tally.fenced = str(error)
    except SourceUnavailableError as error:
        hand_back(settings, error)
        failure = plain_text(error.found)
    except (DistcommitError, OSError) as error:
        hand_back(settings, error)
        logger.exception("the plan cannot be stored")
        tally.fenced = _fenced_reason(settings)
        storage_failure = plain_text(str(error))
    if failure or storage_failure:
        tally.add_reason(f"partition {partition}", NOT_PLANNED, failure or storage_failure)
    return PlanReport(
        tally.report(partition),
        planned.files,
        planned.loads.by_bucket,
        tuple(planned.loads.largest),
        failure,
        storage_failure,
        planned.found,
        planned.misplaced,
        planned.suspects,
    )


def expire_older_history(settings: RunSettings, partition: int, partitions: int) -> str:
    """Delete this partition's share of older history. Call it after recovery, which reads some of it.

    Returns:
        why some of the history could not be deleted; empty if all could. A later run deletes the rest.
    """
    try:
        fs, root = settings.store.fs, settings.store.roots.store
        expire_history(fs, root, settings.run_id, partition, partitions, settings.retention, settings.refused)
    except (DistcommitError, OSError) as error:
        logger.warning("the history of older runs was not deleted: %s", error)
        return str(error)
    return ""


def _plans_of_source(settings: RunSettings, owned: Callable[[str], bool], state: SourceState) -> Iterator[Planned]:
    try:
        yield from settings.flow.source.plan(owned, state)
    except Exception as error:
        logger.exception("the source cannot be planned")
        text = error_text(error)
        raise SourceUnavailableError("the source cannot be planned", found=text) from error


def _fenced_reason(settings: RunSettings) -> str:
    try:
        log = settings.store.job_log(settings.epoch)
        require_fence(log.refresh(), settings.epoch, log.folder)
    except (DistcommitError, OSError) as error:
        return str(error) if isinstance(error, FencedError) else ""
    return ""


def _plan(
    settings: RunSettings, partition: int, states: dict[int, dict[str, DatasetState]], result: _PartitionPlan
) -> None:
    tally = result.tally
    plans: dict[int, list[DatasetPlan]] = {}
    ordinals: dict[int, count[int]] = {}
    names: set[str] = set()

    def owned(urn: str) -> bool:
        return settings.store.planning_bucket(urn) in states

    stored_state, loops = _StoredState(settings, states), LoopCheck(settings.flow)
    for dataset_plan in _plans_of_source(settings, owned, stored_state):
        if isinstance(dataset_plan, SourceFact):
            result.found[f"source.{dataset_plan.name}"] = dataset_plan.setting
            loops.add_fact(dataset_plan)
            continue
        if isinstance(dataset_plan, DeferredRecords):
            tally.add(RunCounts(deferred=checked_deferral(dataset_plan)))
            continue
        planned = loops.check(check_plan(dataset_plan, owned, names, settings.store.groups))
        if isinstance(planned, SkippedDataset):
            tally.note(planned.dataset_urn, planned.kind, planned.reason)
            continue
        if isinstance(planned, DatasetProblem):
            bucket = settings.store.planning_bucket(planned.dataset_urn)
            result.skip(bucket, planned.dataset_urn, NOT_PLANNED, planned.error, planned.remedy)
            continue
        state = stored_state.get(planned.dataset_urn)
        if state is not None and (state.status is not DatasetStatus.IDLE or state.is_stopped):
            continue  # replay, or an operator, comes first; `_states` has reported it as skipped
        names.add(planned.dataset_urn)
        bucket = settings.store.planning_bucket(planned.dataset_urn)
        numbers = ordinals.setdefault(bucket, count())
        state = stored_state.get(planned.dataset_urn)
        units = tuple(
            with_schemas(
                replace(unit, work_unit_id=work_unit_name(bucket, next(numbers))), state.schemas if state else {}
            )
            for unit in planned.work_units
        )
        if units:
            plans.setdefault(bucket, []).append(replace(planned, work_units=units))
            _count_units(units, bucket, result)
    _set_priorities(settings, plans, stored_state, tally)
    if not plans:
        return
    fs, root = settings.store.fs, settings.store.roots.store
    prepare_run(fs, root, settings.run_id, partition, settings.partitions)
    for bucket in plans:
        prepare_bucket(settings.store.fs, settings.store.roots.staging, settings.epoch, bucket)
        if settings.flow.preparing_committers:
            make_notes_durable(settings.store.fs, settings.store.roots.staging, settings.epoch, bucket)
    result.files |= write_plans(fs, root, settings.run_id, plans)
    try:
        suspects = EarlierSuspects(settings, states)
        result.suspects = sum(suspects.note(plan.work_units) for listed in plans.values() for plan in listed)
    except OSError as error:  # they are read with others
        result.tally.note("notes of work units", "not read", str(error))


def _set_priorities(
    settings: RunSettings,
    plans: dict[int, list[DatasetPlan]],
    states: Mapping[str, DatasetState],
    tally: Tally,
) -> None:
    if settings.freshness:
        planned = [plan for listed in plans.values() for plan in listed]
        lags = known_lags(settings, planned, states)
        note_datasets_behind(settings.freshness, planned, lags, tally)
        prioritized = iter(with_priorities(settings.freshness, planned, lags))
        plans |= {bucket: list(islice(prioritized, len(listed))) for bucket, listed in plans.items()}


def build_manifest(settings: RunSettings, reports: Sequence[PlanReport]) -> Manifest:
    """Return the manifest in O(partitions + buckets).

    Large work units get separate tasks. The owner of a bucket reads its other work units, unless it has much more to
    read than other partitions. With freshness targets or `resume_across_runs`, no work units are separate.
    """
    loads = {bucket: load for r in reports for bucket, load in r.loads.items()}
    largest_units = sorted((unit for r in reports for unit in r.largest), reverse=True)
    share = max(1, sum(loads.values()) // (2 * settings.partitions))
    in_order = settings.freshness or settings.resume_across_runs
    large = [u for u in largest_units if u[0] >= share and not in_order]
    for load, bucket, _ in large:
        loads[bucket] -= load
    files = {bucket: name for r in reports for bucket, name in r.files.items()}
    largest = largest_units[len(large)][0] if len(largest_units) > len(large) else 1
    return Manifest(
        MANIFEST_VERSION,
        settings.run_id,
        settings.epoch,
        files,
        pack_large_units(large, settings.partitions),
        lent_ranges(loads, settings.partitions, largest),
    )


def _states(settings: RunSettings, partition: int, planned: _PartitionPlan) -> dict[int, dict[str, DatasetState]]:
    """Return dataset states by readable bucket. Report open and stopped datasets as skipped."""
    states: dict[int, dict[str, DatasetState]] = {}
    for bucket in settings.buckets_of(partition):
        try:
            log = settings.store.bucket_log(bucket, settings.epoch)
            fold = log.refresh()
            require_fence(fold, settings.epoch, log.folder)
        except FencedError:
            raise
        except (DistcommitError, OSError) as error:
            hand_back(settings, error)
            planned.tally.add_reason(f"bucket {bucket}", kind_of(error), str(error))
            continue
        if fold.fence_epoch < settings.epoch:
            planned.tally.add_reason(f"bucket {bucket}", "not fenced", "its recovery failed; its datasets are skipped")
            continue
        states[bucket] = fold.datasets
        for state in fold.datasets.values():
            if state.open is not None:
                planned.skip(bucket, state.dataset_urn, f"skipped, {state.status.value}", state.open.reason)
            elif state.is_stopped:
                planned.skip(bucket, state.dataset_urn, "skipped, stopped", stop_reason(state))
    return states


def _misplaced_dataset(store: JobStore, states: Mapping[int, Mapping[str, DatasetState]]) -> str:
    """Return a dataset in another bucket than that of its commit group, or an empty text.

    In the group's bucket it has no watermark, so it would be read from the beginning.
    """
    if not store.groups.are_named:
        return ""
    for bucket, dataset_states in states.items():
        for urn in dataset_states:
            with suppress(ConfigurationError):
                if store.bucket_of(urn) != bucket:
                    return urn
    return ""


class _StoredState(SourceState):
    """Stored states of datasets in a partition's buckets, and in other buckets on demand.

    All buckets are fenced and replayed, so until the manifest is put, only operators can change states.
    """

    def __init__(self, settings: RunSettings, owned: dict[int, dict[str, DatasetState]]) -> None:
        super().__init__({urn: state for bucket in owned.values() for urn, state in bucket.items()})
        self._store, self._epoch, self._others = settings.store, settings.epoch, dict(owned)
        self._settings = settings

    def to_read_again(self, urn: str) -> Watermark | None:
        state = self.get(urn)
        if state is None or state.read_failure is None:
            return None
        applies = self._settings.retry_across_runs.applies_to(self._settings.policy_of(urn))
        return state.read_failure.expected_high if applies else None

    @property
    def records_per_dataset(self) -> int:
        return self._settings.freshness.records_per_run if self._settings.freshness else 0

    def anywhere(self, urn: str) -> DatasetState | None:
        bucket = self._store.planning_bucket(urn)
        if bucket not in self._others:
            try:
                fold = self._store.bucket_log(bucket).refresh()
                if fold.fence_epoch < self._epoch:
                    raise DistcommitError("the bucket's recovery failed", bucket=bucket)
                self._others[bucket] = fold.datasets
            except (DistcommitError, OSError) as error:
                raise SourceError(
                    "it is unknown whether another dataset was read before",
                    id="EARLIER_READS_UNKNOWN",
                    dataset=urn,
                    bucket=bucket,
                    found=str(error),
                ) from error
        return self._others[bucket].get(urn)


def _count_units(units: Sequence[WorkUnit], bucket: int, result: _PartitionPlan) -> None:
    size = min(sum(unit.size for unit in units), LARGEST_SIZE - result.tally.counts.size_planned)
    result.tally.add(RunCounts(datasets_planned=1, work_units=len(units), size_planned=size))
    result.loads.add(bucket, units)
