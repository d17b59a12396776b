"""Compaction: merge small published files, and record the merge for audit, rebuild and readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from distcommit.app.admin.maintenance_run import LISTED, MaintenanceResult, require_files, run_maintenance
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.core.errors import DistcommitError
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.engine.run_events import Observer
from distcommit.engine.run_settings import RunSettings
from distcommit.engine.system_clock import SystemClock
from distcommit.pipeline.maintenance.compaction_groups import CompactionPolicy
from distcommit.pipeline.maintenance.compaction_source import CompactionSource, file_sink_of
from distcommit.pipeline.maintenance.published_files import LiveFile
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.stores.state.job_store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TARGET_FILE_BYTES = 128 << 20
_MIN_FILES = 2


class CompactRow(msgspec.Struct, frozen=True):
    """The live data files of a dataset that has files to merge.

    Attributes:
        dataset: dataset URN.
        files_before: number of files before the compaction.
        files_after: number of files after it; in a dry run, the expected number.
        bytes_before: size of the files before the compaction.
        bytes_after: size of the files after it; 0 in a dry run, because the size of merged files is unknown.
        merged_files: number of small files to merge.
        merged_bytes: size of these small files.
    """

    dataset: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    merged_files: int
    merged_bytes: int


class CompactResult(MaintenanceResult):
    """The small files that were, or would be, merged.

    Attributes:
        files_before: number of their live data files before the compaction.
        files_after: number of their live data files after it; in a dry run, the expected number.
        bytes_before: size of these files before the compaction.
        bytes_after: size of these files after it; 0 in a dry run. Datasets that are not listed count
            with the size before.
        rows: first hundred datasets with files to merge. Counts include all.
    """

    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows: list[CompactRow] = []


class _Survey(NamedTuple):
    """The groups of files of a dataset to merge, and the sizes of all of its live files if there are such groups."""

    groups: Sequence[Sequence[LiveFile]]
    sizes: Sequence[int]


def compact_job(
    folders: JobFolders,
    session: SparkSession | None,
    datasets: Sequence[str],
    user: str,
    observer: Observer | None = None,
    *,
    dry_run: bool = False,
) -> CompactResult:
    """Merge the small published data files of some or all datasets. Records, order and watermarks stay.

    The section `compact` of the job file sets which files are small, old and numerous enough.

    One run seals a sequence for each dataset: the merged files, and tombstones that name the small files. Snapshot
    readers see either the small files or the merged ones. Later runs delete the small files, once no kept snapshot
    shows them. After a crash, repeat the command; the job's runs also finish what was sealed.

    Args:
        session: a Spark session to use; None uses the active one or starts one.
        datasets: names of the datasets; empty: all.

    Raises:
        ConfigurationError: if the store does not know a dataset, the job has no store, a sink does not write files, or
            the job does not publish exactly once by `append`; nothing was changed.
        DistcommitError: if a run can't begin or fails.
    """
    flow = folders.config.task_flow()
    _require_appended_files(folders, flow)
    settings, now_ms = folders.config.compact, SystemClock().now_ms()
    policy = CompactionPolicy(_TARGET_FILE_BYTES, _MIN_FILES, now_ms) if settings is None else settings.policy(now_ms)
    store = folders.open_store(create=False) if dry_run else folders.opened()
    result = find_compactable(store, flow, policy, datasets, dry_run=dry_run)
    if dry_run:
        return result
    if not result.datasets:
        result.succeeded = not result.skipped_count
        return result
    command = " ".join(["compact", *datasets])
    compact = partial(compacting, policy=policy, datasets=datasets)
    result.add_run(run_maintenance(folders, session, command, user, observer, compact))
    add_sizes_after(result, store, flow, policy)
    return result


def find_compactable(
    store: JobStore, flow: TaskFlow, policy: CompactionPolicy, datasets: Sequence[str] = (), *, dry_run: bool
) -> CompactResult:
    """Return the datasets with files to merge. Nothing is changed.

    The result lists as skipped: buckets and datasets that can't be read, and datasets with such files that are not
    idle, are stopped or have no watermark.

    Raises:
        ConfigurationError: if the store does not know a dataset.
    """
    result = CompactResult(dry_run=dry_run)
    source = CompactionSource(store.fs, store.roots.output, flow, policy)
    for state, survey in result.surveys(store, partial(_survey, source), datasets):
        _add(result, state, survey)
    return result


def compacting(settings: RunSettings, policy: CompactionPolicy, datasets: Sequence[str] = ()) -> RunSettings:
    """Return the settings of a run that compacts files instead of reading the source."""
    store, flow = settings.store, settings.flow
    source = CompactionSource(store.fs, store.roots.output, flow, policy, tuple(datasets))
    return replace(settings, flow=source.flow_without_constructs())


def _survey(source: CompactionSource, state: DatasetState) -> _Survey:
    groups = source.groups(state, reads_records=False)
    return _Survey(groups, source.live_sizes(state) if groups else ())


def _add(result: CompactResult, state: DatasetState, survey: _Survey) -> None:
    merged = [file for group in survey.groups for file in group]
    if not merged:
        return
    if state.status is not DatasetStatus.IDLE or state.is_stopped or state.watermark is None:
        reason = "stopped" if state.is_stopped else state.status.value if state.watermark else "without a watermark"
        result.skip(f"{state.dataset_urn}: it is {reason}; `distcommit status` has the remedy")
        return
    row = CompactRow(
        dataset=state.dataset_urn,
        files_before=len(survey.sizes),
        files_after=len(survey.sizes) - len(merged) + len(survey.groups),
        bytes_before=sum(survey.sizes),
        bytes_after=0,
        merged_files=len(merged),
        merged_bytes=sum(file.size_bytes for file in merged),
    )
    result.datasets += 1
    result.files_before += row.files_before
    result.files_after += row.files_after
    result.bytes_before += row.bytes_before
    if len(result.rows) < LISTED:
        result.rows.append(row)


def add_sizes_after(result: CompactResult, store: JobStore, flow: TaskFlow, policy: CompactionPolicy) -> None:
    """Replace expected numbers by those of the files that are live now. Datasets that are not listed keep the expected
    number of files, and the size before the compaction.
    """
    source = CompactionSource(store.fs, store.roots.output, flow, policy)
    result.bytes_after = result.bytes_before
    for index, row in enumerate(result.rows):
        state = store.bucket_log(store.bucket_of(row.dataset)).refresh().state_of(row.dataset)
        try:
            sizes = source.live_sizes(state)
        except (DistcommitError, OSError):  # the run has reported it
            continue
        after = msgspec.structs.replace(row, files_after=len(sizes), bytes_after=sum(sizes))
        result.rows[index] = after
        result.files_after += after.files_after - row.files_after
        result.bytes_after += after.bytes_after - row.bytes_before


def _require_appended_files(folders: JobFolders, flow: TaskFlow) -> None:
    others = [branch.name for branch in flow.branches if file_sink_of(flow, branch.name) is None]
    actual = f"branch {others[0]}, whose sink is not `files`" if others else ""
    if flow.publish != "append":
        actual = f"sink.publish: {flow.publish}, where new files replace old ones"
    expected = "files that are added (sink.publish: append) exactly once"
    require_files(folders, "this job's files can't be compacted", expected, actual)
