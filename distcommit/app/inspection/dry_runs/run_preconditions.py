"""Checks whether a run could begin, and which buckets reject it or an operator action."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from distcommit.app.inspection.open_commit_steps import unknown_dataset
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.core.errors import ConflictError, DistcommitError, StaleStoreError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.fs.dry_run_file_system import DryRunDeletes
from distcommit.stores.folders.run_markers import newest_end, read_markers
from distcommit.stores.logs.fencing import require_newest
from distcommit.stores.logs.generation_checks import require_current_generation
from distcommit.stores.logs.log_anchors import many_by_hand, require_intact, require_published
from distcommit.stores.state.job_store import JobStore
from distcommit.stores.state.task_states import PastStates


class _Unclaimed(DryRunDeletes):
    """A file system that changes nothing and reports success, so that checks can claim folders without an owner."""

    def make_folders(self, path: str) -> None:
        pass

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return True


def open_runnable_store(folders: JobFolders) -> JobStore:
    """Return the job's store if a run could begin on it.

    Raises:
        ConfigurationError: if the job's flow is inconsistent, or the store was created with other fixed settings.
        DistcommitError: if no run could begin, see `require_runnable`.
    """
    folders.config.task_flow().check()
    store = folders.opened()
    require_runnable(store)
    return store


def require_runnable(store: JobStore) -> None:
    """Raise the error with which a run would refuse to begin on this store. A live run is not an error.

    Raises:
        ConflictError: if the number of buckets has changed, or a move to another number is unfinished.
        StaleStoreError: if one of store, output and staging was restored from an older copy.
        ConfigurationError: if staging or output belong to another job.
        CorruptError: if the job log can't be read.
    """
    require_current_generation(store, store.job_log().refresh())
    require_newest(replace(store, fs=cast(FileSystem, _Unclaimed(store.fs))))


def unrecoverable_buckets(store: JobStore, context: StepContext) -> dict[str, str]:
    """Return the buckets that a run could not recover, by name (`bucket 3`), each with the reason.

    Args:
        context: folders and committers at which steps take effect.

    Raises:
        StaleStoreError: if the output is older than the store's record of it.
    """
    job_fold, past = store.job_log().refresh(), PastStates(store.fs, store.roots.store)
    ended_epoch = newest_end(read_markers(store.fs, store.roots.output))
    reasons: dict[str, str] = {}
    for bucket in range(store.buckets):
        log = store.bucket_log(bucket)
        try:
            fold = require_intact(store, job_fold, bucket, log, past)
            if job_fold.began_epoch:
                require_published(context, log, fold, ended_epoch)
        except StaleStoreError:
            raise
        except (DistcommitError, OSError) as error:
            reasons[f"bucket {bucket}"] = str(error)
    return reasons


def open_for_operator(folders: JobFolders, urn: str) -> JobStore:
    """Open the job's store for an operator action on a dataset.

    Raises:
        ConfigurationError: if the store was created with other fixed settings, or does not know the dataset.
        DistcommitError, OSError: if the dataset's bucket rejects operator actions.
    """
    store = folders.opened()
    closed_buckets(store, urn)
    if urn not in store.bucket_log(store.bucket_of(urn)).refresh().datasets:
        raise unknown_dataset(store, urn)
    return store


def closed_buckets(store: JobStore, urn: str | None = None) -> dict[str, str]:
    """Return the buckets that reject operator actions, by name (`bucket 3`), each with the reason.

    Args:
        urn: check only the bucket of this dataset, and raise its error.

    Raises:
        ConflictError: if the number of buckets has changed, or a move to another number is unfinished.
        DistcommitError, OSError: if the job log can't be read; with `urn`, also if its bucket rejects actions.
    """
    reasons: dict[str, str] = {}
    with many_by_hand(store, "") as open_log:  # writes nothing if no record was added
        for bucket in range(store.buckets) if urn is None else [store.bucket_of(urn)]:
            try:
                open_log(bucket)
            except ConflictError:
                raise
            except (DistcommitError, OSError) as error:
                if urn is not None:
                    raise
                reasons[f"bucket {bucket}"] = str(error)
    return reasons
