"""Repair of a job's small files that are damaged, and of its job log, so that a rebuild can open the store.

Each is set aside and written again: the store's marker from the claim of the output and from the folders of its logs, a
claim from the marker, the record of settings from the job file. What can't be read of the job log is set aside once the
output says that no run may begin; the rebuild that follows takes an epoch above all that is published.
"""

from __future__ import annotations

from contextlib import suppress

from distcommit.app.job_file.job_folders import JobFolders
from distcommit.core.errors import ConflictError, CorruptError, DistcommitError, StaleStoreError, UnknownVersionError
from distcommit.core.ports import FileSystem
from distcommit.core.records.log_records import DatasetStatus
from distcommit.engine.clock import SystemClock
from distcommit.protocol.paths.parts import bucket_number
from distcommit.protocol.paths.store import BEGUN, record_name
from distcommit.stores.folders.ownership import Mark, Owner, not_the_owner, put_mark, read_marks, read_owner
from distcommit.stores.folders.staging import staged_epochs
from distcommit.stores.history.run_records import path_of, read_beginning, read_record, recorded_epochs
from distcommit.stores.logs.corrupt_tail import fold_of_rest, is_torn, set_torn_aside
from distcommit.stores.logs.fencing import claim_folders
from distcommit.stores.state.damaged_files import (
    CLAIMS,
    SETTINGS_RECORD,
    claim_path,
    is_damaged,
    is_only_set_aside,
    note_replaced,
    set_file_aside,
    unreadable_files,
)
from distcommit.stores.state.fixed_settings import record_settings_anew
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

MARKER, JOB_LOG = "the store's marker", "the job log"


def repair_files(folders: JobFolders, run_id: str, *, dry_run: bool) -> list[str]:
    """Repair all damaged files of a store that is there, and return their names.

    Args:
        folders: the job's.
        run_id: a new run's id, by which damaged files are set aside.
        dry_run: only return the names.

    Raises:
        CorruptError: if neither the marker nor a claim can be read.
        ConfigurationError, StaleStoreError: if a folder belongs to another job, or to another store of this one.
        ConflictError: if the job log is damaged, and the job publishes all datasets or none and has unfinished ones.
        LockHeldError: if a run is alive.
        UnknownVersionError: if a newer version wrote a file.
    """
    fs, roots = folders.places()
    store = _store_of(folders, fs, roots)
    if store is None:
        return []
    marked = read_marker(fs, roots, repairable=True) is not None
    names = [*([] if marked else [MARKER]), *(file.name for file in unreadable_files(store) if file.is_damaged)]
    names += [name for root, name in CLAIMS.items() if is_only_set_aside(fs, roots, claim_path(getattr(roots, root)))]
    is_log_torn = is_torn(store.job_log())
    if dry_run or not (names or is_log_torn):
        return [*names, *([JOB_LOG] if is_log_torn else [])]
    with JobLock(fs, roots.store, run_id, folders.config.lock.lease_ttl_s, SystemClock()):
        if not marked:
            with suppress(FileNotFoundError):
                set_file_aside(fs, roots, marker_path(roots), run_id)
            put_marker(store)
        _repair_claims(store, names, run_id)
        if SETTINGS_RECORD in names:
            set_file_aside(fs, roots, record_settings_anew(store, folders.pinned()), run_id)
        if is_log_torn:
            names.append(JOB_LOG)
            _set_job_log_aside(store, run_id, whole_job=folders.config.commit.scope == "job")
    return names


def set_run_records_aside(store: JobStore, run_id: str) -> str:
    """Set aside damaged records of runs: nothing depends on them. Return an empty text: it was done."""
    fs, root = store.fs, store.roots.store
    for epoch in recorded_epochs(fs, root):
        for name, read in ((record_name(epoch), read_record), (record_name(epoch, BEGUN), read_beginning)):
            try:
                read(fs, root, epoch)
            except (DistcommitError, OSError) as error:
                if is_damaged(error):
                    set_file_aside(fs, store.roots, path_of(root, name), run_id)
    return ""


def _store_of(folders: JobFolders, fs: FileSystem, roots: Roots) -> JobStore | None:
    """The store with its first generation of logs; None if there is none.

    What a damaged marker said, the claims of the folders and the folders of the logs say too.
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
        raise not_the_owner(roots.output, owner, folders.config.job)
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
            "nothing that can be read says whose the job's folders are",
            store=roots.store,
            found=str(damaged),
            todo="restore store.json from a backup. If there is none, and output and staging are this job's, delete"
            f" {claim_path(roots.output)} and {claim_path(roots.staging)}, put the store aside, and `distcommit"
            " store rebuild` makes it anew from the published files",
        ) from damaged
    return None


def _repair_claims(store: JobStore, names: list[str], run_id: str) -> None:
    """Claim again the folders whose claim is damaged.

    Raises:
        StaleStoreError: if the marks of runs beside a damaged claim are not those of this store.
    """
    roots = [root for root, name in CLAIMS.items() if name in names]
    if "output" in roots and not is_torn(store.job_log()):
        began_epoch = store.job_log().refresh().began_epoch
        if read_marks(store.fs, store.roots.output)[Mark.BEGAN] < began_epoch:
            raise StaleStoreError(
                "the claim of a folder is damaged, and the folder is not the one that this store's runs published into",
                path=store.roots.output,
                expected=f"a mark of epoch {began_epoch}",
                todo="correct paths.output, or put the newest output back, then rebuild again",
            )
    paths = [claim_path(getattr(store.roots, root)) for root in roots]
    for path in paths:
        with suppress(FileNotFoundError):  # an earlier repair died here
            set_file_aside(store.fs, store.roots, path, run_id)
    if paths:
        claim_folders(store)
    for path in paths:
        note_replaced(store.fs, store.roots, path)


def _set_job_log_aside(store: JobStore, run_id: str, *, whole_job: bool) -> None:
    """Let the job log begin where it can be read, after the output says that a rebuild is under way."""
    if whole_job and any(_is_any_open(store, bucket) for bucket in range(store.buckets)):
        raise ConflictError(
            "the job log is damaged, which says whether held back datasets were decided to be published",
            store=store.roots.store,
            found="datasets that are sealed and not closed",
            todo="put the newest job log in its place; or put the store aside, and `distcommit store rebuild` makes"
            " it anew from the published files",
        )
    fs, output = store.fs, store.roots.output
    rest = fold_of_rest(store.job_log())
    epoch = 1 + max(
        rest.fence_epoch, *read_marks(fs, output).values(), *staged_epochs(fs, store.roots.staging), *_fenced(store)
    )
    put_mark(fs, output, epoch, Mark.REBUILD)
    set_torn_aside(store, store.job_log(epoch), epoch)


def _is_any_open(store: JobStore, bucket: int) -> bool:
    states = fold_of_rest(store.bucket_log(bucket)).datasets.values()
    return any(state.status is not DatasetStatus.IDLE for state in states)


def _fenced(store: JobStore) -> list[int]:
    found = [0]
    for bucket in range(store.buckets):
        with suppress(DistcommitError, OSError):
            found.append(fold_of_rest(store.bucket_log(bucket)).fence_epoch)
    return found
