"""Compaction: merge small published files, and record the merge for audit, rebuild and readers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from distcommit.app.admin.compaction_turn import MOST_BYTES, CompactionTurn
from distcommit.app.admin.maintenance_run import LISTED, MaintenanceResult, require_files, run_maintenance
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.core.errors import DistcommitError, LockHeldError, error_text, printable
from distcommit.core.records.freshness_targets import BEHIND
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.engine.driver.launch_interface import JobFailedError
from distcommit.engine.driver.run import RunResult
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

logger = logging.getLogger(__name__)

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
        bytes_after: size of these files after it; 0 in a dry run.
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
    turn: CompactionTurn | None = None,
) -> CompactResult:
    """Merge the small published data files of some or all datasets. Records, order and watermarks stay.

    One run seals a sequence for each dataset: the merged files, and tombstones that name the small files. Snapshot
    readers see either the small files or the merged ones. Later runs delete the small files, once no kept snapshot
    shows them. After a crash, repeat the command; the job's runs also finish what was sealed.

    Args:
        session: a Spark session to use; None uses the active one or starts one.
        datasets: names of the datasets; empty: all.
        turn: the datasets that are looked at after a run, and the policy of the job file; None for the command.

    Raises:
        ConfigurationError: if the store does not know a dataset, the job has no store, a sink does not write files, or
            the job does not publish exactly once by `append`; nothing was changed.
        DistcommitError: if a run can't begin or fails.
    """
    flow = folders.config.task_flow()
    _require_appended_files(folders, flow)
    policy = turn.policy if turn else CompactionPolicy(_TARGET_FILE_BYTES, _MIN_FILES, SystemClock().now_ms())
    store = folders.open_store(create=False) if dry_run else folders.opened()
    result = find_compactable(store, flow, policy, datasets, dry_run=dry_run, turn=turn)
    if dry_run:
        return result
    if not result.datasets:
        result.succeeded = not result.skipped_count
        return result
    command = "compact after a run" if turn else " ".join(["compact", *datasets])
    compact = partial(compacting, policy=policy, datasets=turn.chosen if turn else datasets)
    result.add_run(run_maintenance(folders, session, command, user, observer, compact))
    _add_sizes_after(result, store, flow, policy)
    return result


def compact_after_run(
    folders: JobFolders, session: SparkSession, ended: RunResult, user: str, observer: Observer | None = None
) -> CompactResult | None:
    """Merge small files of some datasets by the policy of the job file, in a run of its own. Its failure is logged and
    recorded, and is not one of the ended run.

    Nothing is done without a policy, if the ended run left something to do, or if another run has begun meanwhile.

    Args:
        session: the Spark session of the ended run.
        ended: result of the run.

    Returns:
        the result; None if nothing was done.
    """
    settings, has_more = folders.config.compact, bool(ended.totals.deferred)
    is_behind = any(note.kind == BEHIND for note in ended.notes.entries)
    if settings is None or not ended.succeeded or has_more or is_behind:
        return None
    before_ms = SystemClock().now_ms() - int(settings.after * 1000)
    policy = CompactionPolicy(
        settings.target_file_bytes, settings.min_files, before_ms, rewrites_large=False, most_bytes=MOST_BYTES
    )
    ids = {"job": folders.config.job, "run": ended.run_id}
    try:
        result = compact_job(folders, session, (), user, observer, turn=CompactionTurn(policy, ended.epoch))
    except LockHeldError:
        logger.info("small files stay until a later run, because another run has begun", extra=ids)
        return None
    except (DistcommitError, JobFailedError, OSError) as error:
        logger.warning("small files were not merged: %s", error_text(error), extra=ids)
        return None
    for reason in result.skipped:
        logger.warning("small files were not merged: %s", printable(reason), extra=ids)
    return result


def find_compactable(
    store: JobStore,
    flow: TaskFlow,
    policy: CompactionPolicy,
    datasets: Sequence[str] = (),
    *,
    dry_run: bool,
    turn: CompactionTurn | None = None,
) -> CompactResult:
    """Return the datasets with files to merge. Nothing is changed. With `turn`, only some datasets are looked at.

    The result lists as skipped: buckets and datasets that can't be read, and datasets with such files that are not
    idle, are stopped or have no watermark.

    Raises:
        ConfigurationError: if the store does not know a dataset.
    """
    result = CompactResult(dry_run=dry_run)
    source = CompactionSource(store.fs, store.roots.output, flow, policy)
    buckets = turn.buckets(store.buckets) if turn else range(store.buckets)
    some_of = partial(turn.some_of, buckets=store.buckets) if turn else list[DatasetState]
    for state, survey in result.surveys(store, partial(_survey, source), datasets, buckets, some_of):
        row = _add(result, state, survey)
        if turn and row is not None:
            turn.add(row.dataset, row.merged_bytes)
        if turn and turn.is_over:
            break
    return result


def compacting(settings: RunSettings, policy: CompactionPolicy, datasets: Sequence[str] = ()) -> RunSettings:
    """Return the settings of a run that compacts files instead of reading the source."""
    store, flow = settings.store, settings.flow
    source = CompactionSource(store.fs, store.roots.output, flow, policy, tuple(datasets))
    return replace(settings, flow=source.flow_without_constructs())


def _survey(source: CompactionSource, state: DatasetState) -> _Survey:
    groups = source.groups(state, reads_records=False)
    return _Survey(groups, source.live_sizes(state) if groups else ())


def _add(result: CompactResult, state: DatasetState, survey: _Survey) -> CompactRow | None:
    """Add a dataset to the result. Return its row; None if it has no files to merge or is skipped."""
    merged = [file for group in survey.groups for file in group]
    if not merged:
        return None
    if state.status is not DatasetStatus.IDLE or state.is_stopped or state.watermark is None:
        reason = "stopped" if state.is_stopped else state.status.value if state.watermark else "without a watermark"
        result.skip(f"{state.dataset_urn}: it is {reason}; `distcommit status` has the remedy")
        return None
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
    return row


def _add_sizes_after(result: CompactResult, store: JobStore, flow: TaskFlow, policy: CompactionPolicy) -> None:
    """Replace expected numbers by those of the files that are live now. Datasets that are not listed keep theirs."""
    source = CompactionSource(store.fs, store.roots.output, flow, policy)
    for index, row in enumerate(result.rows):
        state = store.bucket_log(store.bucket_of(row.dataset)).refresh().state_of(row.dataset)
        try:
            sizes = source.live_sizes(state)
        except (DistcommitError, OSError):  # the run has reported it
            continue
        after = msgspec.structs.replace(row, files_after=len(sizes), bytes_after=sum(sizes))
        result.rows[index] = after
        result.files_after += after.files_after - row.files_after
        result.bytes_after += after.bytes_after


def _require_appended_files(folders: JobFolders, flow: TaskFlow) -> None:
    others = [branch.name for branch in flow.branches if file_sink_of(flow, branch.name) is None]
    actual = f"branch {others[0]}, whose sink is not `files`" if others else ""
    if flow.publish != "append":
        actual = f"sink.publish: {flow.publish}, where new files replace old ones"
    problem, expected = (
        "this job's files can't be compacted",
        "files that are added (sink.publish: append) exactly once",
    )
    require_files(folders, problem, expected, actual)
