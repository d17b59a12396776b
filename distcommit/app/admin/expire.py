"""Expiry: delete published files older than a cutoff, and record the deletion for audit, rebuild and readers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from distcommit.app.admin.maintenance_run import LISTED, MaintenanceResult, require_files, run_maintenance
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.core.errors import ConfigurationError
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.records.maintenance_units import ExpiryCutoff
from distcommit.engine.run_events import Observer
from distcommit.engine.run_settings import RunSettings
from distcommit.engine.system_clock import SystemClock
from distcommit.pipeline.maintenance.expiry_source import ExpirySource
from distcommit.pipeline.maintenance.published_files import LiveFile
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.stores.snapshots.expiry_requests import newest_expiry_request, put_expiry_request
from distcommit.stores.state.job_store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HOURS = {"h": 1, "d": 24, "w": 7 * 24}
_LEAST_SNAPSHOTS = 2


class ExpireRow(msgspec.Struct, frozen=True):
    """The expired files of a dataset.

    Attributes:
        dataset: dataset URN.
        files: number of files, including error files.
        records: records in the files, including rejected ones.
        size_bytes: size of the files in bytes.
        rejected: rejected records in the files; included in `records`.
    """

    dataset: str
    files: int
    records: int
    size_bytes: int
    rejected: int = 0


class ExpireResult(MaintenanceResult, kw_only=True):
    """The files older than `cutoff_ms` that were, or would be, deleted.

    Attributes:
        cutoff_ms: cutoff in milliseconds since 1970.
        files: number of expired files.
        records: records in the expired files, including rejected ones.
        size_bytes: size of the expired files in bytes.
        rows: first hundred datasets with expired files. Counts include all.
        deleted: whether the files are deleted. If not, they stay until no kept snapshot shows them.
        undated: live files of unknown age, which never expire: outside of time folders, on a file system without times.
        rejected: rejected records in the expired files; included in `records`.
    """

    cutoff_ms: int
    files: int = 0
    records: int = 0
    size_bytes: int = 0
    rows: list[ExpireRow] = []
    deleted: bool = False
    undated: int = 0
    rejected: int = 0


def age_ms(text: str) -> int:
    """Return an age such as `90d`, `36h` or `12w` in milliseconds.

    Raises:
        ConfigurationError: if the text is not an age.
    """
    match = re.fullmatch(r"([0-9]{1,6})([hdw])", text)
    if match is None or not int(match[1]):
        raise ConfigurationError(
            "the text is not an age",
            id="ARGUMENT_INVALID",
            expected="a number from 1 to 999999 and h, d or w, such as 90d",
            found=text,
        )
    return int(match[1]) * _HOURS[match[2]] * 3_600_000


def find_expired(store: JobStore, flow: TaskFlow, before_ms: int, *, dry_run: bool) -> ExpireResult:
    """Return the live files that are older than `before_ms`, in milliseconds since 1970. Nothing is changed.

    `dry_run` is only copied to the result. The result lists as skipped: buckets and datasets that can't be read, and
    datasets with such files that are not idle, are stopped or have no watermark.
    """
    result, cutoff = ExpireResult(cutoff_ms=before_ms, dry_run=dry_run), ExpiryCutoff(before_ms)
    source = ExpirySource(store.fs, store.roots.output, flow, before_ms)
    for state, live in result.surveys(store, partial(_live, source)):
        urn = state.dataset_urn
        result.undated += sum(1 for file in live if not file.end_ms)
        past = [file for file in live if cutoff.is_expired(file.end_ms)]
        if not past:
            continue
        if state.status is not DatasetStatus.IDLE or state.is_stopped:
            reason = "stopped" if state.is_stopped else state.status.value
            result.skip(f"{urn}: it is {reason}; `distcommit status` has the remedy")
            continue
        if state.watermark is None:
            result.skip(f"{urn}: it has no watermark any more; its files can go once a run has committed it")
            continue
        _add(result, urn, past)
    return result


def _live(source: ExpirySource, state: DatasetState) -> list[LiveFile]:
    return list(source.aged(state.dataset_urn, state.done_epoch).live_files())


def _add(result: ExpireResult, urn: str, past: Sequence[LiveFile]) -> None:
    rejected = sum(file.footer.records for file in past if file.footer.kind == "rejected")
    records, size_bytes = sum(file.footer.records for file in past), sum(file.size_bytes for file in past)
    result.datasets, result.files = result.datasets + 1, result.files + len(past)
    result.records, result.rejected = result.records + records, result.rejected + rejected
    result.size_bytes += size_bytes
    if len(result.rows) < LISTED:
        result.rows.append(ExpireRow(urn, len(past), records, size_bytes, rejected))


def expire_job(
    folders: JobFolders,
    session: SparkSession | None,
    older_than: str,
    user: str,
    observer: Observer | None = None,
    *,
    dry_run: bool = False,
    keep_snapshots: bool = False,
) -> ExpireResult:
    """Delete published files, and files of rejected records, that are older than an age. Watermarks stay. Expired
    rejected records can no longer be reprocessed.

    A file in a time folder is as old as the end of the folder's period; any other file is as old as its modification.

    The cutoff is recorded durably first. A run then seals a tombstone for each dataset, which names the expired files:
    from then on audit, rebuild and readers of newer snapshots do not expect them. A second run deletes older snapshots
    and the files, and replaces each tombstone by a short one. After a crash, repeat the command; the job's runs also
    finish the work, except for snapshots that they keep.

    Args:
        session: a Spark session to use; None uses the active one or starts one.
        older_than: an age, see `age_ms`.
        dry_run: only return what would be deleted.
        keep_snapshots: keep snapshots. Later runs delete the files once no kept snapshot shows them.

    Raises:
        ConfigurationError: if `older_than` is not an age, the job has no store, a sink does not write files, or the job
            does not publish exactly once by `append` or `replace_partitions`; nothing was changed.
        DistcommitError: if a run can't begin or fails.
    """
    now_ms = SystemClock().now_ms()
    before_ms = now_ms - age_ms(older_than)
    flow = folders.config.task_flow()
    _require_expirable(folders, flow)
    store = folders.open_store(create=False) if dry_run else folders.opened()
    result = find_expired(store, flow, before_ms, dry_run=dry_run)
    if dry_run:
        return result
    if not result.datasets and newest_expiry_request(store) is None:
        result.succeeded = not result.skipped_count
        return result
    put_expiry_request(store, before_ms, now_ms, user)
    command = f"expire {older_than}"
    superseded = run_maintenance(folders, session, command, user, observer, partial(expiring, before_ms=before_ms))
    result.add_run(superseded)
    if superseded.succeeded and not keep_snapshots:
        expire = partial(expiring, before_ms=before_ms, kept_snapshots=_LEAST_SNAPSHOTS)
        swept = run_maintenance(folders, session, command, user, observer, expire)
        result.deleted = result.succeeded = swept.succeeded
    return result


def expiring(settings: RunSettings, before_ms: int, kept_snapshots: int | None = None) -> RunSettings:
    """Return the settings of a run that expires files older than `before_ms` instead of reading the source.
    `kept_snapshots` replaces the job's number of kept snapshots; None leaves it.
    """
    store, flow = settings.store, settings.flow
    source = ExpirySource(store.fs, store.roots.output, flow, before_ms)
    stored = kept_snapshots or settings.kept_snapshots
    return replace(settings, flow=source.flow_without_constructs(), kept_snapshots=stored)


def _require_expirable(folders: JobFolders, flow: TaskFlow) -> None:
    others = [branch.name for branch in flow.branches if not branch.sink.abilities.files]
    actual = f"branch {others[0]}, whose records are at a target of its own: delete them there" if others else ""
    if flow.publish == "replace":
        actual = "sink.publish: replace, where each run takes the place of all that is older"
    expected = "files that are added, or replaced by partition, exactly once"
    require_files(folders, "this job's files can't be expired by age", expected, actual)
