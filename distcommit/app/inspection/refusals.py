"""What keeps a run from replaying, or a person from releasing, asked by their own looks; nothing is written."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from distcommit.app.inspection.steps import unknown_dataset
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.core.errors import ConflictError, DistcommitError, StaleStoreError
from distcommit.core.interfaces.steps import StepContext
from distcommit.core.ports import FileSystem
from distcommit.fs.dry_run import NotedDeletes
from distcommit.stores.folders.ownership import newest_end, read_marks
from distcommit.stores.logs.fencing import require_newest
from distcommit.stores.logs.generation import require_counting
from distcommit.stores.logs.log_anchors import many_by_hand, require_published, require_whole
from distcommit.stores.state.job_store import JobStore
from distcommit.stores.state.task_states import PastStates


class _Unclaimed(NotedDeletes):
    """What would claim a folder that is nobody's does nothing."""

    def make_folders(self, path: str) -> None:
        pass

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return True


def runnable(folders: JobFolders) -> JobStore:
    """The job's store, if a run of the job could begin on it as it is configured.

    Raises:
        ConfigurationError: if its flow does not fit together, or the store was filled with other settings.
        DistcommitError: as `require_runnable`.
    """
    folders.config.task_flow().check()
    store = folders.opened()
    require_runnable(store)
    return store


def require_runnable(store: JobStore) -> None:
    """Whether a run can begin on the store, as far as its own folders say: not whether another one is alive.

    Raises:
        ConflictError: if a move to another number of buckets is half made.
        StaleStoreError: if store, output and staging are not of one time.
        ConfigurationError: if staging or output belong to another job.
        CorruptError: if the job log can't be read.
    """
    require_counting(store, store.job_log().refresh())
    require_newest(replace(store, fs=cast(FileSystem, _Unclaimed(store.fs))))


def unrecoverable(store: JobStore, context: StepContext) -> dict[str, str]:
    """Buckets that a run could not recover, by name, each with why.

    Args:
        store: the job's.
        context: where the steps' effects are.

    Raises:
        StaleStoreError: as the run would, if the output is older than what was published into it.
    """
    job_fold, past = store.job_log().refresh(), PastStates(store.fs, store.roots.store)
    ended_epoch = newest_end(read_marks(store.fs, store.roots.output))
    found: dict[str, str] = {}
    for bucket in range(store.buckets):
        log = store.bucket_log(bucket)
        try:
            fold = require_whole(store, job_fold, bucket, log, past)
            if job_fold.began_epoch:
                require_published(context, log, fold, ended_epoch)
        except StaleStoreError:
            raise
        except (DistcommitError, OSError) as error:
            found[f"bucket {bucket}"] = str(error)
    return found


def opened_for(folders: JobFolders, urn: str) -> JobStore:
    """The job's store, for a person who acts on that dataset.

    Raises:
        ConfigurationError: if the store was filled with other settings, or does not know the dataset.
        DistcommitError, OSError: what acting on it would raise.
    """
    store = folders.opened()
    closed_to_people(store, urn)
    if urn not in store.bucket_log(store.bucket_of(urn)).refresh().datasets:
        raise unknown_dataset(store, urn)
    return store


def closed_to_people(store: JobStore, urn: str | None = None) -> dict[str, str]:
    """Buckets on which nobody can act by hand, by name, each with why.

    Args:
        store: the job's.
        urn: this dataset is to be acted on: what keeps one from that is raised.

    Raises:
        ConflictError: if the job has another number of buckets by now, or is on its way to one.
        DistcommitError, OSError: of `urn`, what acting on it would raise; or if the job log can't be read.
    """
    found: dict[str, str] = {}
    with many_by_hand(store, "") as open_log:  # which writes nothing where nobody has acted
        for bucket in range(store.buckets) if urn is None else [store.bucket_of(urn)]:
            try:
                open_log(bucket)
            except ConflictError:
                raise
            except (DistcommitError, OSError) as error:
                if urn is not None:
                    raise
                found[f"bucket {bucket}"] = str(error)
    return found
