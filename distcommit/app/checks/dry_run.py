"""The dry run: the datasets that a run would read, with their sizes and columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from distcommit.app.checks.flow_description import FlowColumn, known_columns
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.core.errors import error_text
from distcommit.core.interfaces.source import (
    DatasetProblem,
    SkippedDataset,
    Source,
    SourceSettings,
    SourceState,
)
from distcommit.core.records.deferred_records import DeferredRecords
from distcommit.core.records.log_records import DatasetState
from distcommit.core.support.counts import count_of
from distcommit.core.work_units import DatasetPlan
from distcommit.schemas.known_columns import Columns
from distcommit.stores.state.job_store import JobStore

_MOST_OPENED = 20
"""Number of datasets whose first records are read to show their columns."""


class PlannedDataset(msgspec.Struct, frozen=True):
    """A dataset that a run would read.

    Attributes:
        dataset: dataset URN.
        work_units: number of its work units.
        size: records or bytes to read, as the plan's `unit` names them; None if unknown.
        columns: columns that the source delivers; None if they are not known.
        problem: why the dataset, or its columns, can't be read; empty if they can.
    """

    dataset: str
    work_units: int = 0
    size: int | None = None
    columns: list[FlowColumn] | None = None
    problem: str = ""


class DryRun(msgspec.Struct, frozen=True):
    """The datasets with new data, as the source plans them now.

    Attributes:
        unit: `records`, `bytes`, or empty if the source knows no sizes.
        size: sum over all datasets, in `unit`; None if the source does not know.
        datasets_count: number of datasets that a run would read, without those whose planned number of records is 0.
        datasets: datasets that a run would read, and the datasets with a problem.
        notes: datasets that a rule skips, records that are left to later runs, and datasets of the store that are no
            longer selected, each with the reason.
        unknown: why only a run can plan; empty if the plan is known.
    """

    unit: str
    size: int | None
    datasets_count: int
    datasets: list[PlannedDataset]
    notes: list[str] = []
    unknown: str = ""


def plan_dry_run(folders: JobFolders) -> DryRun:
    """Plan as the next run would, and read the first records of some datasets. Nothing is written.

    Raises:
        DistcommitError: if the source as a whole can't be planned.
    """
    source = folders.config.source
    if source.staged_by or source.batch_column:
        return DryRun("", None, 0, [], unknown=f"the source of type {source.type} is planned by Spark, in a run")
    states = SourceState()
    if folders.has_store():
        states.update(_states(folders.open_store(create=False)))
    datasets, notes = list[PlannedDataset](), list[str]()
    for planned in source.plan(lambda _: True, states):
        match planned:
            case DatasetPlan():
                datasets.append(_planned(source, planned, opened=len(datasets)))
            case DatasetProblem(urn, error):
                datasets.append(PlannedDataset(urn, problem=error))
            case SkippedDataset(urn, reason):
                notes.append(f"{urn}: {reason}")
            case DeferredRecords(urn, records, cause, is_minimum):
                notes.append(
                    f"{urn}: {'at least ' if is_minimum else ''}{count_of(records, 'record')} left for later: {cause}"
                )
    if unselected := _unselected(source, states):
        named = f"{', '.join(unselected[:3])}{', ...' if len(unselected) > 3 else ''}"
        notes.append(
            f"the job file no longer selects {count_of(len(unselected), 'dataset')} of the store ({named}): runs read"
            " nothing of them, and their watermarks stay"
        )
    sizes = [dataset.size for dataset in datasets if dataset.size is not None]
    total = sum(sizes) if source.size_unit else None
    count = len([row for row in datasets if row.work_units and (row.size or source.size_unit != "records")])
    return DryRun(source.size_unit, total, count, datasets, notes)


def _states(store: JobStore) -> Iterator[tuple[str, DatasetState]]:
    for bucket in range(store.buckets):
        yield from store.bucket_log(bucket).refresh().datasets.items()


def _unselected(source: Source, states: Mapping[str, DatasetState]) -> list[str]:
    """Return the datasets with a watermark of which the settings select no partition."""
    watermarks = {urn: state.watermark for urn, state in states.items() if state.watermark is not None}
    return sorted(
        urn
        for urn, watermark in watermarks.items()
        if watermark.positions and not any(source.selects(urn, partition) for partition in watermark.positions)
    )


def _planned(source: Source, plan: DatasetPlan, *, opened: int) -> PlannedDataset:
    size = sum(map(source.planned_size, plan.work_units)) if source.size_unit else None
    units = len(plan.work_units)
    try:
        columns = _columns(source, plan, may_open=opened < _MOST_OPENED)
    except Exception as error:  # noqa: BLE001 - of any client, or of a damaged file
        return PlannedDataset(plan.dataset_urn, units, size, problem=f"can't be read: {error_text(error)}")
    return PlannedDataset(plan.dataset_urn, units, size, columns)


def _columns(source: Source, plan: DatasetPlan, *, may_open: bool) -> list[FlowColumn] | None:
    """Return the columns that the source declares, or the columns of the dataset's first records; None without both."""
    if source.batch_schema is not None:
        return known_columns(Columns.of(source.batch_schema))[0]
    if not may_open:
        return None
    extractor = source.open()
    try:
        batch = next(iter(extractor.extract(plan.work_units[0])), None) if plan.work_units else None
    finally:
        extractor.close()
    if batch is None:
        return None
    schema, check = batch.schema, source.rejection_check if isinstance(source, SourceSettings) else None
    return known_columns(Columns.of(schema if check is None else check.convert_schema(schema, plan.work_units[0])))[0]
