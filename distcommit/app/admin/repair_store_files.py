"""Repair damaged small files of a job, and its job log, so that a rebuild can open the store.

Each damaged file is set aside and written again: the store's marker from the output's claim and the folders of the
logs, a claim from the marker, the record of settings from the job file. Before the unreadable part of the job log is
set aside, a mark in the output keeps runs from beginning. The rebuild then takes an epoch above all published ones.
"""

from __future__ import annotations

from contextlib import suppress

from distcommit.app.job_file.job_folders import JobFolders
from distcommit.core.errors import ConflictError, CorruptError, DistcommitError, StaleStoreError, UnknownVersionError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.records.log_records import DatasetStatus
from distcommit.engine.system_clock import SystemClock
from distcommit.protocol.paths.shared_names import bucket_number
from distcommit.protocol.paths.store import BEGUN, record_name
from distcommit.stores.folders.folder_ownership import Owner, read_owner, wrong_owner_error
from distcommit.stores.folders.run_markers import Marker, put_run_marker, read_markers
from distcommit.stores.folders.staging import staged_epochs
from distcommit.stores.history.run_records import read_beginning, read_record, record_path, recorded_epochs
from distcommit.stores.logs.corrupt_log_tail import fold_readable_part, is_corrupt, set_corrupt_tail_aside
from distcommit.stores.logs.fencing import take_ownership_of_folders
from distcommit.stores.state.damaged_files import (
    OWNER_FILES,
    SETTINGS_RECORD,
    is_damaged,
    is_only_set_aside,
    owner_path,
    record_restored,
    set_file_aside,
    unreadable_files,
)
from distcommit.stores.state.job_lock import JobLock
from distcommit.stores.state.job_store import (
    JobStore,
    Roots,
    first_logs,
    has_removal_begun,
    marker_path,
    put_marker,
    read_marker,
)
from distcommit.stores.state.recorded_fixed_settings import replace_unreadable_settings

MARKER, JOB_LOG = "the store's marker", "the job log"


def repair_files(folders: JobFolders, run_id: str, *, dry_run: bool) -> list[str]:
    """Repair all damaged files of an existing store, and return their names. Return none if there is no store.

    Args:
        run_id: a new run's id, which names the folder of the damaged files.
        dry_run: only return the names.

    Raises:
        CorruptError: if neither the marker nor a claim can be read.
        ConfigurationError, StaleStoreError: if a folder belongs to another job, or to another store of the job.
        ConflictError: if the job log is damaged, the job publishes all datasets or none, and sequences are unfinished.
        LockHeldError: if another process holds the job lock.
        UnknownVersionError: if a newer version wrote a file.
    """
    fs, roots = folders.roots()
    store = _store_of(folders, fs, roots)
    if store is None:
        return []
    marked = read_marker(fs, roots, repairable=True) is not None
    names = [*([] if marked else [MARKER]), *(file.name for file in unreadable_files(store) if file.is_damaged)]
    names += [
        name for root, name in OWNER_FILES.items() if is_only_set_aside(fs, roots, owner_path(getattr(roots, root)))
    ]
    is_log_corrupt = is_corrupt(store.job_log())
    if dry_run or not (names or is_log_corrupt):
        return [*names, *([JOB_LOG] if is_log_corrupt else [])]
    with JobLock(fs, roots.store, run_id, folders.config.lock.lease_ttl_s, SystemClock()):
        if not marked:
            with suppress(FileNotFoundError):
                set_file_aside(fs, roots, marker_path(roots), run_id)
            put_marker(store)
        _repair_ownership(store, names, run_id)
        if SETTINGS_RECORD in names:
            set_file_aside(fs, roots, replace_unreadable_settings(store, folders.fixed_settings()), run_id)
        if is_log_corrupt:
            names.append(JOB_LOG)
            _set_job_log_aside(store, run_id, whole_job=folders.config.commit.scope == "job")
    return names


def set_run_records_aside(store: JobStore, run_id: str) -> str:
    """Set aside damaged records of runs, on which nothing depends. Return an empty text, which means success."""
    fs, root = store.fs, store.roots.store
    for epoch in recorded_epochs(fs, root):
        for name, read in ((record_name(epoch), read_record), (record_name(epoch, BEGUN), read_beginning)):
            try:
                read(fs, root, epoch)
            except (DistcommitError, OSError) as error:
                if is_damaged(error):
                    set_file_aside(fs, store.roots, record_path(root, name), run_id)
    return ""


def _store_of(folders: JobFolders, fs: FileSystem, roots: Roots) -> JobStore | None:
    """Return the store with its first generation of logs; None if there is no store. If the marker is damaged, the
    claims of the folders and the folders of the logs replace it.
    """
    marker = read_marker(fs, roots, repairable=True)
    if has_removal_begun(fs, roots.store):
        return None
    if marker is not None:
        return JobStore(fs, roots, marker.job, marker.buckets, marker.store_id, folders.groups)
    numbers = [bucket_number(entry.name) for entry in fs.list_folder(first_logs(roots))]
    buckets = len([number for number in numbers if number is not None])
    owner = _any_owner(fs, roots)
    if owner is None or not buckets:
        return None
    if owner.job != folders.config.job:
        raise wrong_owner_error(roots.output, owner, folders.config.job)
    return JobStore(fs, roots, owner.job, buckets, owner.store_id, folders.groups)


def _any_owner(fs: FileSystem, roots: Roots) -> Owner | None:
    damaged: CorruptError | None = None
    for root in (roots.output, roots.staging):
        try:
            owner = read_owner(fs, root)
        except UnknownVersionError:
            raise
        except CorruptError as error:
            damaged = error
            continue
        if owner is not None:
            return owner
    if damaged is not None:
        raise CorruptError(
            "neither the store's marker nor a folder's claim can be read",
            id="STORE_MARKERS_CORRUPT",
            store=roots.store,
            found=str(damaged),
            todo=(
                "restore store.json from a backup. If there is none, and output and staging are this job's, "
                f"delete {owner_path(roots.output)} and {owner_path(roots.staging)}, put the store aside, and "
                "`distcommit store rebuild` creates it from the published files"
            ),
        ) from damaged
    return None


def _repair_ownership(store: JobStore, names: list[str], run_id: str) -> None:
    """Claim the folders with a damaged claim again.

    Raises:
        StaleStoreError: if the marks of runs beside a damaged claim are not those of this store.
    """
    roots = [root for root, name in OWNER_FILES.items() if name in names]
    if "output" in roots and not is_corrupt(store.job_log()):
        began_epoch = store.job_log().refresh().began_epoch
        if read_markers(store.fs, store.roots.output)[Marker.BEGAN] < began_epoch:
            raise StaleStoreError(
                "the claim of a folder is damaged, and the folder is not the one that this store's runs published into",
                path=store.roots.output,
                expected=f"a mark of epoch {began_epoch}",
                todo="correct paths.output, or put the newest output back, then rebuild again",
            )
    paths = [owner_path(getattr(store.roots, root)) for root in roots]
    for path in paths:
        with suppress(FileNotFoundError):  # an earlier repair died here
            set_file_aside(store.fs, store.roots, path, run_id)
    if paths:
        take_ownership_of_folders(store)
    for path in paths:
        record_restored(store.fs, store.roots, path)


def _set_job_log_aside(store: JobStore, run_id: str, *, whole_job: bool) -> None:
    """Set the unreadable part of the job log aside, after a mark in the output records the rebuild."""
    if whole_job and any(_is_any_open(store, bucket) for bucket in range(store.buckets)):
        raise ConflictError(
            "the job log is damaged, which records whether held back datasets are published",
            id="JOB_LOG_DAMAGED",
            store=store.roots.store,
            found="datasets that are sealed and not closed",
            todo=(
                "put the newest job log in its place; or put the store aside, and `distcommit store rebuild` "
                "creates it from the published files"
            ),
        )
    fs, output = store.fs, store.roots.output
    remainder = fold_readable_part(store.job_log())
    epoch = 1 + max(
        remainder.fence_epoch,
        *read_markers(fs, output).values(),
        *staged_epochs(fs, store.roots.staging),
        *_fenced(store),
    )
    put_run_marker(fs, output, epoch, Marker.REBUILD)
    set_corrupt_tail_aside(store, store.job_log(epoch), epoch)


def _is_any_open(store: JobStore, bucket: int) -> bool:
    states = fold_readable_part(store.bucket_log(bucket)).datasets.values()
    return any(state.status is not DatasetStatus.IDLE for state in states)


def _fenced(store: JobStore) -> list[int]:
    epochs = [0]
    for bucket in range(store.buckets):
        with suppress(DistcommitError, OSError):
            epochs.append(fold_readable_part(store.bucket_log(bucket)).fence_epoch)
    return epochs
