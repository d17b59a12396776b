"""The durable state of one job: its layout, its creation, and the logs in it.

<store>/store.json                 format version, job name, first number of buckets; written once
<store>/settings/<number>.json     settings that give stored state its meaning (`recorded_fixed_settings`)
<store>/log/job/<number>.seg       the job log
<store>/log/bucket=<b>/<number>.seg                       bucket logs of the first generation
<store>/log/generations/<g>/bucket=<b>/<number>.seg       bucket logs of generation g, with other buckets
<store>/task_states/, plans/       Parquet tables, by run and by the partition that owns the buckets
<store>/runs/<epoch>.json          records of runs, for diagnosis: see `stores.history.run_records`
<store>/schemas/                   inferred schemas: see `stores.schemas.schema_store`
<store>/lock/, progress/           job lock and display; correctness does not depend on them
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec

from distcommit.core.commit_groups import CommitGroups
from distcommit.core.errors import ConfigurationError, CorruptError, StaleStoreError, UnknownVersionError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.support.parallel import run_parallel
from distcommit.protocol.paths.store import GENERATIONS, JOB_LOG, STORE_MARKER, log_folder
from distcommit.stores.folders.folder_ownership import read_owner, wrong_owner_error
from distcommit.stores.folders.folder_trees import delete_entry
from distcommit.stores.folders.nested_roots_check import first_published, require_apart
from distcommit.stores.logs.commit_log import CommitLog
from distcommit.stores.state.checksummed_json import decode_document, encode_document
from distcommit.stores.state.file_system_probe import probe_file_system

STORE_FORMAT, STORE_VERSION = "distcommit-job", 1
DEFAULT_BUCKETS, MAX_BUCKETS = 64, 65536
_REMOVED = "REMOVED"
_BY_DATASET = CommitGroups()
_MARKER_REMEDY = (
    "`distcommit store rebuild` writes it again from the claim of the output; or restore the file from a backup"
)


class StoreMarker(msgspec.Struct, frozen=True):
    """The content of `store.json`, fixed when the store is created.

    Attributes:
        format: name of the format.
        version: format version.
        job: name of the job.
        buckets: number of buckets in the first generation.
        store_id: unique id of the store.
    """

    format: str
    version: int
    job: str
    buckets: Annotated[int, msgspec.Meta(ge=1, le=MAX_BUCKETS)]
    store_id: str


@dataclass(frozen=True, slots=True)
class Roots:
    """The three folders of a job, as absolute paths. Steps must not touch anything outside them.

    Staging and output are on one file system.

    Attributes:
        store: folder of logs, states and records.
        staging: folder of files that are not published; empty for readers, which need none.
        output: folder of published files.
    """

    store: str
    staging: str
    output: str


@dataclass(frozen=True, slots=True)
class JobStore:
    """An open store. Small and picklable: it is sent to every executor.

    Attributes:
        fs: file system of all folders; see `TwoFileSystems` for a store on another one.
        roots: the job's folders.
        job: name of the job.
        buckets: number of buckets in this generation.
        store_id: unique id of the store.
        groups: rule that gives each dataset its bucket.
        generation: generation of the bucket logs. Once another generation is current, these logs are read-only.
    """

    fs: FileSystem
    roots: Roots
    job: str
    buckets: int
    store_id: str = ""
    groups: CommitGroups = _BY_DATASET
    generation: int = 0

    def bucket_of(self, urn: str) -> int:
        """Return the bucket that contains the dataset's state. Every process computes the same bucket.

        Raises:
            ConfigurationError: if the job's sink names no commit group for the dataset.
        """
        return self.groups.bucket_of(urn, self.buckets)

    def planning_bucket(self, urn: str) -> int:
        return self.groups.planning_bucket(urn, self.buckets)

    def job_log(self, epoch: int = 0) -> CommitLog:
        return CommitLog(self.fs, f"{self.roots.store}/{JOB_LOG}", epoch)

    def bucket_log(self, bucket: int, epoch: int = 0) -> CommitLog:
        return CommitLog(self.fs, f"{self.roots.store}/{log_folder(self.generation, bucket)}", epoch)


def open_store(
    fs: FileSystem,
    roots: Roots,
    job: str,
    buckets: int | None = None,
    *,
    create: bool,
    lost_store_id: str = "",
    groups: CommitGroups = _BY_DATASET,
) -> JobStore:
    """Open the job's store, creating it first if asked to. Costs O(1) operations if the store exists.

    Args:
        fs: file system of all three roots.
        job: name of the job; a store belongs to one job.
        buckets: number of buckets in the configuration. If None, an existing store keeps its number, and a new one gets
            `DEFAULT_BUCKETS`.
        create: whether to create a missing store, after a probe of the file system.
        lost_store_id: id of a lost store that the new one replaces.

    Raises:
        ConfigurationError: if there is no store, it belongs to another job, or it has another number of buckets. Also
            if its folders are not accessible, or the file system lacks an ability that the protocol needs.
        StaleStoreError: if a store must be created and its output was published from another one.
        UnknownVersionError, CorruptError: if the marker cannot be read, or if the job log cannot be read after
            rebucketing.
    """
    path = f"{roots.store}/{STORE_MARKER}"
    try:
        marker = _decode(fs.read(path), path)
    except FileNotFoundError:
        if not create:
            raise ConfigurationError(
                "the store does not exist",
                id="STORE_NOT_FOUND",
                path=roots.store,
                todo="run the job once, or correct paths.store",
            ) from None
        marker = _create(fs, roots, job, buckets or DEFAULT_BUCKETS, lost_store_id)
    except PermissionError as error:
        raise ConfigurationError(
            "the store cannot be read", id="JOB_FOLDERS_NOT_ACCESSIBLE", path=path, found=str(error)
        ) from error
    if marker.job != job:
        raise ConfigurationError(
            "the store belongs to another job",
            id="FOLDER_OF_ANOTHER_JOB",
            path=roots.store,
            expected=f"job {job!r}",
            found=f"job {marker.job!r}",
            todo=f"if this job is new, set paths.store to a folder of its own, or add `--set=paths.store=FOLDER` to the"
            f" command; if it is job {marker.job!r}, set job to {marker.job!r}",
        )
    store = _in_current_generation(JobStore(fs, roots, job, marker.buckets, marker.store_id, groups))
    _require_buckets(store, buckets)
    return store


def _require_buckets(store: JobStore, buckets: int | None) -> None:
    if buckets is not None and store.buckets != buckets:
        raise ConfigurationError(
            "the store has another number of buckets",
            id="BUCKET_COUNT_DIFFERS",
            path=store.roots.store,
            expected=f"commit.buckets: {buckets}",
            found=f"{store.buckets} buckets",
            todo=f"set commit.buckets to {store.buckets}, or remove it; for {buckets} buckets, run"
            f" `distcommit store rebucket JOB.yaml --buckets {buckets}`",
        )


def _in_current_generation(store: JobStore) -> JobStore:
    if not store.fs.list_folder(f"{store.roots.store}/{GENERATIONS}"):
        return store
    fold = store.job_log().refresh()
    return replace(store, generation=fold.generation, buckets=fold.buckets or store.buckets)


def require_unpublished(fs: FileSystem, roots: Roots, job: str) -> None:
    """Check that the output is unclaimed and has no published files, because a new store would publish their records
    again.

    Raises:
        StaleStoreError: if it has published files, or another store's claim.
        ConfigurationError: if another job has claimed it or a folder below a root.
    """
    owner = read_owner(fs, roots.output)
    if owner is not None:
        raise wrong_owner_error(roots.output, owner, job)
    for root in (roots.store, roots.staging):
        first_published(fs, root)  # raises if another job has a folder there
    published = first_published(fs, roots.output)
    if published is not None:
        raise StaleStoreError(
            "the output has published files, and its store does not exist",
            id="STORE_LOST",
            store=roots.store,
            output=roots.output,
            found=published,
            todo="correct paths.store or paths.output; if the store is lost, `distcommit store rebuild` recreates it"
            " from the published files",
        )


def open_any_store(fs: FileSystem, roots: Roots) -> JobStore:
    """Open the store of any job for reading. Raise ConfigurationError if there is none, UnknownVersionError or
    CorruptError if it cannot be read."""
    path = f"{roots.store}/{STORE_MARKER}"
    try:
        marker = _decode(fs.read(path), path)
    except FileNotFoundError:
        todo = "correct the path, or run the job once"
        raise ConfigurationError(
            "the store does not exist", id="STORE_NOT_FOUND", path=roots.store, expected=STORE_MARKER, todo=todo
        ) from None
    return _in_current_generation(JobStore(fs, roots, marker.job, marker.buckets, marker.store_id))


def has_store(fs: FileSystem, roots: Roots) -> bool:
    return fs.status(f"{roots.store}/{STORE_MARKER}") is not None


def marker_path(roots: Roots) -> str:
    return f"{roots.store}/{STORE_MARKER}"


def first_logs(roots: Roots) -> str:
    return f"{roots.store}/{JOB_LOG}".rpartition("/")[0]


def read_marker(fs: FileSystem, roots: Roots, *, repairable: bool) -> StoreMarker | None:
    """Return the store's marker; None if there is none, or if it is damaged and `repairable`.

    Raises:
        UnknownVersionError, CorruptError: like `open_store`.
    """
    path = f"{roots.store}/{STORE_MARKER}"
    try:
        return _decode(fs.read(path), path)
    except FileNotFoundError:
        return None
    except UnknownVersionError:
        raise
    except CorruptError:
        if repairable:
            return None
        raise


def put_marker(store: JobStore) -> None:
    """Put the marker, durably. Call it once the logs exist."""
    marker = StoreMarker(STORE_FORMAT, STORE_VERSION, store.job, store.buckets, store.store_id)
    store.fs.put_if_absent(f"{store.roots.store}/{STORE_MARKER}", encode_document(marker))


def _decode(data: bytes, path: str) -> StoreMarker:
    marker = decode_document(
        data,
        StoreMarker,
        STORE_VERSION,
        "the store's marker",
        path,
        error_id="STORE_MARKER_CORRUPT",
        todo=_MARKER_REMEDY,
    )
    if marker.format != STORE_FORMAT:
        raise UnknownVersionError(
            "the store's format is unknown: it was never released, or belongs to another program",
            path=path,
            expected=f"format {STORE_FORMAT}",
            found=f"format {marker.format}",
            todo="run the version of distcommit that wrote it, or give the job new folders",
        )
    return marker


def remove_store(fs: FileSystem, folder: str) -> None:
    """Delete a store. A partly deleted store cannot be opened; the next creation finishes the deletion."""
    fs.put_if_absent(f"{folder}/{_REMOVED}", b"")
    fs.delete(f"{folder}/{STORE_MARKER}")
    fs.sync([folder], folder)  # the store must be gone before any of its content is
    _finish_removal(fs, folder)
    fs.delete_folder(folder)


def has_removal_begun(fs: FileSystem, folder: str) -> bool:
    return fs.status(f"{folder}/{_REMOVED}") is not None


def _finish_removal(fs: FileSystem, folder: str) -> None:
    if not has_removal_begun(fs, folder):
        return
    for entry in fs.list_folder(folder):
        if entry.name != _REMOVED:
            delete_entry(fs, folder, entry)
    fs.sync([folder], folder)
    fs.delete(f"{folder}/{_REMOVED}")


def _create(fs: FileSystem, roots: Roots, job: str, buckets: int, lost_store_id: str) -> StoreMarker:
    store_id = lost_store_id or uuid.uuid4().hex
    path = f"{roots.store}/{STORE_MARKER}"
    store = JobStore(fs, roots, job, buckets)
    logs = [store.job_log(), *map(store.bucket_log, range(buckets))]
    try:
        require_apart(fs, roots.store, roots.staging, roots.output)
        if not lost_store_id:
            require_unpublished(fs, roots, job)
        for root in (roots.store, roots.staging, roots.output):
            fs.make_folders(root)
        _finish_removal(fs, roots.store)
        # Not probed under the store's id: concurrent rebuilds create the store with the same one.
        probe_file_system(fs, roots.store, roots.staging, roots.output, uuid.uuid4().hex)
        run_parallel(fs.parallel_buckets, CommitLog.create, logs)
        fs.sync([log.folder for log in logs], roots.store)
        for root in (roots.store, roots.staging, roots.output):  # each by itself: they may be on several mounts
            fs.sync([root], "/")
        marker = StoreMarker(STORE_FORMAT, STORE_VERSION, job, buckets, store_id)
        fs.put_if_absent(path, encode_document(marker))
        return _decode(fs.read(path), path)
    except OSError as error:
        raise ConfigurationError(
            "the job's folders cannot be created or written",
            id="JOB_FOLDERS_NOT_ACCESSIBLE",
            found=f"{type(error).__name__}: {error}",
            todo="correct paths.store, paths.staging and paths.output, or their permissions and free space",
        ) from error
