"""Compaction: merge small published files, and record the merge for audit, rebuild and readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from distcommit.app.job_file.job_folders import JobFolders
from distcommit.core.errors import ConfigurationError, DistcommitError
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.support.parallel import run_ahead
from distcommit.engine.driver.run import RunResult, run
from distcommit.engine.run_events import Observer
from distcommit.engine.run_settings import RunSettings
from distcommit.engine.system_clock import SystemClock
from distcommit.pipeline.maintenance.compaction_groups import CompactionPolicy
from distcommit.pipeline.maintenance.compaction_source import CompactionSource, file_sink_of
from distcommit.pipeline.maintenance.published_files import LiveFile
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.stores.logs.fencing import end_run
from distcommit.stores.state.job_store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LISTED = 100
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


class CompactResult(msgspec.Struct):
    """The small files that were, or would be, merged.

    Attributes:
        dry_run: whether nothing was changed.
        datasets: number of datasets with files to merge.
        files_before: number of their live data files before the compaction.
        files_after: number of their live data files after it; in a dry run, the expected number.
        bytes_before: size of these files before the compaction.
        bytes_after: size of these files after it; 0 in a dry run.
        rows: first hundred datasets with files to merge. Counts include all.
        skipped: first hundred datasets or buckets that could not be compacted, with the reason. Their files stay as
            they are.
        skipped_count: number of all skipped datasets and buckets.
        epoch: epoch of the run that merged the files; 0 without a run.
        succeeded: whether the run succeeded. Without a run: whether nothing was skipped; true for a dry run.
    """

    dry_run: bool
    datasets: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows: list[CompactRow] = []
    skipped: list[str] = []
    skipped_count: int = 0
    epoch: int = 0
    succeeded: bool = True


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
    policy = CompactionPolicy(_TARGET_FILE_BYTES, _MIN_FILES, SystemClock().now_ms())
    store = folders.open_store(create=False) if dry_run else folders.opened()
    result = find_compactable(store, flow, policy, datasets, dry_run=dry_run)
    if dry_run:
        return result
    if not result.datasets:
        result.succeeded = not result.skipped_count
        return result
    done = _run(folders, session, policy, datasets, user, observer)
    result.epoch, result.succeeded = done.epoch, done.succeeded
    for reason in done.reasons.entries:
        _skip(result, f"{reason.subject}: {reason.text}")
    _add_sizes_after(result, store, flow, policy)
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
    result, unknown = CompactResult(dry_run), set(datasets)
    source = CompactionSource(store.fs, store.roots.output, flow, policy)
    for bucket in range(store.buckets):
        try:
            known = store.bucket_log(bucket).refresh().datasets
        except (DistcommitError, OSError) as error:
            _skip(result, f"bucket {bucket}: {error}")
            unknown = {urn for urn in unknown if store.bucket_of(urn) != bucket}
            continue
        states = [state for urn, state in sorted(known.items()) if not datasets or urn in datasets]
        unknown.difference_update(state.dataset_urn for state in states)
        surveys = run_ahead(store.fs.parallel_calls, partial(_survey, source), states)
        for state, survey in zip(states, surveys, strict=True):
            _add(result, state, survey)
    if unknown:
        raise ConfigurationError(
            "the store does not know this dataset",
            id="DATASET_UNKNOWN",
            dataset=min(unknown),
            store=store.roots.store,
            todo="give its URN as `distcommit status --all` shows it",
        )
    return result


def compacting(settings: RunSettings, policy: CompactionPolicy, datasets: Sequence[str] = ()) -> RunSettings:
    """Return the settings of a run that compacts files instead of reading the source."""
    store, flow = settings.store, settings.flow
    source = CompactionSource(store.fs, store.roots.output, flow, policy, tuple(datasets))
    return replace(settings, flow=source.flow_without_constructs())


def _survey(source: CompactionSource, state: DatasetState) -> _Survey | str:
    try:
        groups = source.groups(state, reads_records=False)
        return _Survey(groups, source.live_sizes(state) if groups else ())
    except (DistcommitError, OSError) as error:
        return str(error)


def _add(result: CompactResult, state: DatasetState, survey: _Survey | str) -> None:
    urn = state.dataset_urn
    if isinstance(survey, str):
        _skip(result, f"{urn}: {survey}")
        return
    merged = [file for group in survey.groups for file in group]
    if not merged:
        return
    if state.status is not DatasetStatus.IDLE or state.is_stopped or state.watermark is None:
        reason = "stopped" if state.is_stopped else state.status.value if state.watermark else "without a watermark"
        _skip(result, f"{urn}: it is {reason}; `distcommit status` has the remedy")
        return
    row = CompactRow(
        dataset=urn,
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
    if len(result.rows) < _LISTED:
        result.rows.append(row)


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


def _run(
    folders: JobFolders,
    session: SparkSession | None,
    policy: CompactionPolicy,
    datasets: Sequence[str],
    user: str,
    observer: Observer | None,
) -> RunResult:
    from distcommit.app.running.run_context import open_run  # noqa: PLC0415 - a dry run needs no Spark

    command = " ".join(["compact", *datasets])
    with open_run(folders, session, command, user, observer) as (launch, run_settings, run_observer, _):
        settings = compacting(run_settings, policy, datasets)
        result = run(launch, settings, fixed=folders.fixed_settings(), observer=run_observer)
        end_run(settings.store, settings.epoch, clean=result.succeeded)
        return result


def _require_appended_files(folders: JobFolders, flow: TaskFlow) -> None:
    others = [branch.name for branch in flow.branches if file_sink_of(flow, branch.name) is None]
    actual = f"branch {others[0]}, whose sink is not `files`" if others else ""
    if flow.publish != "append":
        actual = f"sink.publish: {flow.publish}, where new files replace old ones"
    if folders.config.commit.delivery == "at_least_once":
        actual = "commit.delivery: at_least_once, which writes nothing ahead"
    if actual:
        raise ConfigurationError(
            "this job's files can't be compacted",
            id="MAINTENANCE_NOT_POSSIBLE",
            job=folders.config.job,
            expected="files that are added (sink.publish: append) exactly once",
            found=actual,
        )


def _skip(result: CompactResult, text: str) -> None:
    result.skipped_count += 1
    if len(result.skipped) < _LISTED:
        result.skipped.append(text)
