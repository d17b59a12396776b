"""The durable state of one job: its layout, its creation, and the logs in it.

<store>/store.json                 format version, job name, first number of buckets; written once
<store>/settings/<number>.json     settings that give what is stored its meaning: see `stores.state.fixed_settings`
<store>/log/job/<number>.seg       the job log
<store>/log/bucket=<b>/<number>.seg                       as the store was made
<store>/log/generations/<g>/bucket=<b>/<number>.seg       of generation g: with another number of buckets
<store>/task_states/, plans/       Parquet tables, by run and the partition that owns the buckets
<store>/runs/<epoch>.json          what each run left of itself: see `stores.history.run_records`; not depended on
<store>/schemas/                   what converters have inferred: see `stores.schemas.schema_history`
<store>/lock/, progress/           politeness and display; nothing depends on them
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec

from distcommit.core.commit_groups import CommitGroups
from distcommit.core.errors import ConfigurationError, CorruptError, StaleStoreError, UnknownVersionError
from distcommit.core.ports import FileSystem, ProbedFileSystem
from distcommit.core.support.parallel import in_flight
from distcommit.protocol.paths.store import GENERATIONS, JOB_LOG, STORE_MARKER, log_folder
from distcommit.protocol.paths.temporary import is_store_probe, store_probe_name
from distcommit.stores.folders.deletion import delete_entry, delete_tree
from distcommit.stores.folders.nested_roots import first_published, require_apart
from distcommit.stores.folders.ownership import not_the_owner, read_owner
from distcommit.stores.logs.log import CommitLog
from distcommit.stores.state.documents import decode_document, encode_document

STORE_FORMAT, STORE_VERSION = "distcommit-job", 1
DEFAULT_BUCKETS, MAX_BUCKETS = 64, 65536
_REMOVED = "REMOVED"
_PROBES = 3
_BY_DATASET = CommitGroups()
_TODO = "`distcommit store rebuild` writes it again from the claim of the output; or restore the file from a backup"


class StoreMarker(msgspec.Struct, frozen=True):
    """What `store.json` holds. All of it is fixed when the store is made."""

    format: str
    version: int
    job: str
    buckets: Annotated[int, msgspec.Meta(ge=1, le=MAX_BUCKETS)]
    store_id: str


@dataclass(frozen=True, slots=True)
class Roots:
    """The three folders of a job, absolute, on one file system. Steps can't touch anything outside them."""

    store: str
    staging: str
    output: str


@dataclass(frozen=True, slots=True)
class JobStore:
    """An opened store. Small and picklable: it goes to every executor.

    `groups`: the rule by which datasets have their buckets.
    `generation`: whose bucket logs these are; once another one counts, nothing can be written in them.
    """

    fs: FileSystem
    roots: Roots
    job: str
    buckets: int
    store_id: str = ""
    groups: CommitGroups = _BY_DATASET
    generation: int = 0

    def bucket_of(self, urn: str) -> int:
        """The bucket that holds the dataset's state. Every process that asks gets the same answer.

        Raises:
            ConfigurationError: if the job's sink names no commit group for it.
        """
        return self.groups.bucket_of(urn, self.buckets)

    def planning_bucket(self, urn: str) -> int:
        """The bucket whose owner plans the dataset, or tells why it can't be planned."""
        return self.groups.planning_bucket(urn, self.buckets)

    def job_log(self, epoch: int = 0) -> CommitLog:
        """The job log, for a writer of `epoch`."""
        return CommitLog(self.fs, f"{self.roots.store}/{JOB_LOG}", epoch)

    def bucket_log(self, bucket: int, epoch: int = 0) -> CommitLog:
        """A bucket's log, for a writer of `epoch`."""
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
    """Opens the job's store, making it first if asked to. Costs O(1) operations if it is there.

    Args:
        fs: the file system of all three roots.
        roots: the folders.
        job: the job's name; a store belongs to one job.
        buckets: the number of buckets that the configuration names; None takes what the store has, or
            `DEFAULT_BUCKETS` for a new one.
        create: whether a missing store is made (and the file system probed for what the protocol needs).
        lost_store_id: the id of a lost store that the one to be made takes the place of.
        groups: the job's rule for commit groups.

    Raises:
        ConfigurationError: if there is no store, it is another job's, it has another number of buckets, or the file
            system can't do what the protocol needs.
        StaleStoreError: if a store has to be made and its output was published from another one, which is lost.
        UnknownVersionError, CorruptError: if the marker is not one that this version writes; or, where there has been
            another number of buckets, if the job log, which says how many count, can't be read.
    """
    path = f"{roots.store}/{STORE_MARKER}"
    try:
        marker = _decode(fs.read(path), path)
    except FileNotFoundError:
        if not create:
            todo = "run the job once, or correct paths.store"
            raise ConfigurationError(
                "there is no store here", path=roots.store, expected=f"a file {STORE_MARKER}", todo=todo
            ) from None
        marker = _create(fs, roots, job, buckets or DEFAULT_BUCKETS, lost_store_id)
    except PermissionError as error:
        raise ConfigurationError("the store can't be read", path=path, found=str(error)) from error
    if marker.job != job:
        raise ConfigurationError(
            "this store belongs to another job",
            path=roots.store,
            expected=f"job {job!r}",
            found=f"job {marker.job!r}",
            todo="give each job a paths.store of its own",
        )
    store = _as_it_counts(JobStore(fs, roots, job, marker.buckets, marker.store_id, groups))
    if buckets is not None and store.buckets != buckets:
        raise ConfigurationError(
            "this store has another number of buckets",
            path=roots.store,
            expected=f"commit.buckets: {buckets}",
            found=f"{store.buckets} buckets",
            todo=f"set commit.buckets to {store.buckets}, or leave it out; to have {buckets}, give"
            f" `distcommit store rebucket JOB.yaml --buckets {buckets}`",
        )
    return store


def _as_it_counts(store: JobStore) -> JobStore:
    """The store with the number of buckets that counts: as it was made, unless there is another generation of logs."""
    if not store.fs.list_folder(f"{store.roots.store}/{GENERATIONS}"):
        return store
    fold = store.job_log().refresh()
    return replace(store, generation=fold.generation, buckets=fold.buckets or store.buckets)


def _require_unpublished(fs: FileSystem, roots: Roots, job: str) -> None:
    """A new store knows of no published file: what is in its output would be published again."""
    owner = read_owner(fs, roots.output)
    if owner is not None:
        raise not_the_owner(roots.output, owner, job)
    for root in (roots.store, roots.staging):
        first_published(fs, root)  # raises where another job has a folder there
    published = first_published(fs, roots.output)
    if published is not None:
        raise StaleStoreError(
            "there is no store for an output that has published files",
            store=roots.store,
            output=roots.output,
            found=published,
            todo="correct paths.store or paths.output; if the store is lost, `distcommit store rebuild` makes it anew"
            " from the published files",
        )


def open_any_store(fs: FileSystem, roots: Roots) -> JobStore:
    """The store that is there, whichever job's, to be read by who has no job file. Raises as `open_store`."""
    path = f"{roots.store}/{STORE_MARKER}"
    try:
        marker = _decode(fs.read(path), path)
    except FileNotFoundError:
        todo = "correct the path, or run the job once"
        raise ConfigurationError("there is no store here", path=roots.store, expected=STORE_MARKER, todo=todo) from None
    return _as_it_counts(JobStore(fs, roots, marker.job, marker.buckets, marker.store_id))


def has_store(fs: FileSystem, roots: Roots) -> bool:
    """Whether there is a store, of whomever."""
    return fs.status(f"{roots.store}/{STORE_MARKER}") is not None


def marker_path(roots: Roots) -> str:
    """Return where the store's marker is."""
    return f"{roots.store}/{STORE_MARKER}"


def first_logs(roots: Roots) -> str:
    """Return the folder of the first generation's logs."""
    return f"{roots.store}/{JOB_LOG}".rpartition("/")[0]


def read_marker(fs: FileSystem, roots: Roots, *, repairable: bool) -> StoreMarker | None:
    """Return the store's marker; None if there is none or, where it is to be repaired, if it is damaged.

    Raises:
        UnknownVersionError, CorruptError: as `open_store`.
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
    """Put the marker of a store whose logs are there, durably."""
    marker = StoreMarker(STORE_FORMAT, STORE_VERSION, store.job, store.buckets, store.store_id)
    store.fs.put_if_absent(f"{store.roots.store}/{STORE_MARKER}", encode_document(marker))
    store.fs.sync([store.roots.store], store.roots.store)


def _decode(data: bytes, path: str) -> StoreMarker:
    marker = decode_document(data, StoreMarker, STORE_VERSION, "the store's marker", path, todo=_TODO)
    if marker.format != STORE_FORMAT:
        raise UnknownVersionError(
            "the store is of a format that was never released, or another program's",
            path=path,
            expected=f"format {STORE_FORMAT}",
            found=f"format {marker.format}",
            todo="run the version of distcommit that wrote it, or give the job new folders",
        )
    return marker


def remove_store(fs: FileSystem, folder: str) -> None:
    """Deletes a store. Should this be killed half-way, the next creation finishes it: what is left is never opened."""
    fs.put_if_absent(f"{folder}/{_REMOVED}", b"")
    fs.delete(f"{folder}/{STORE_MARKER}")
    fs.sync([folder], folder)  # no store any more, before any of it goes
    _finish_removal(fs, folder)
    fs.delete_folder(folder)


def has_removal_begun(fs: FileSystem, folder: str) -> bool:
    """Return whether what is there is left of a store that `remove_store` deletes."""
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
            _require_unpublished(fs, roots, job)
        for root in (roots.store, roots.staging, roots.output):
            fs.make_folders(root)
        _finish_removal(fs, roots.store)
        _probe(fs, roots, uuid.uuid4().hex)  # not the store's id: two rebuilds of a lost store make it under the same
        in_flight(fs.parallel_buckets, CommitLog.create, logs)
        fs.sync([log.folder for log in logs], roots.store)
        fs.sync([roots.store, roots.staging, roots.output], "/")
        marker = StoreMarker(STORE_FORMAT, STORE_VERSION, job, buckets, store_id)
        fs.put_if_absent(path, encode_document(marker))
        return _decode(fs.read(path), path)
    except OSError as error:
        raise ConfigurationError(
            "the job's folders can't be made or written",
            found=f"{type(error).__name__}: {error}",
            todo="correct paths.store, paths.staging and paths.output, or their permissions and free space",
        ) from error


def _probe(fs: FileSystem, roots: Roots, probe_id: str) -> None:
    """Tries what the protocol rests on: put-if-absent, rename without replacing, staging and output on one file system,
    names that are kept apart; and all of it if nobody has tried a file system of this kind.

    Tries again before it refuses: another process that makes the same store may have swept what this one probes with.

    Raises:
        ConfigurationError: naming what the file system can't do.
    """
    places = (roots.store, roots.staging, roots.output)
    for root in places:  # what a creation that crashed has left
        for entry in fs.list_folder(root):
            if is_store_probe(entry.name):
                delete_entry(fs, root, entry)
    names = [f"{root}/{store_probe_name(probe_id)}" for root in places]
    refused: ConfigurationError | None = None
    for _ in range(_PROBES):
        try:
            refused = _probed(fs, roots, *names)
            if refused is None:
                refused = _probed_in_full(fs, f"{roots.store}/{store_probe_name(f'folder-{probe_id}')}")
        except FileNotFoundError as error:
            refused = _refused(fs, roots.store, f"keeping a file that was just made ({error})")
        finally:
            for name in names:
                _take_away(fs, name)
        if refused is None:
            return
    if refused is not None:
        raise refused


def _take_away(fs: FileSystem, probe: str) -> None:
    """Deletes what was probed with, whatever becomes of the others: nobody looks for it once there is a store."""
    try:
        fs.delete(probe)
    except OSError:  # its answer may be lost
        with suppress(OSError):
            fs.delete(probe)


def _probed(fs: FileSystem, roots: Roots, put: str, source: str, target: str) -> ConfigurationError | None:
    if not fs.put_if_absent(put, b"1") or fs.put_if_absent(put, b"2") or fs.read(put) != b"1":
        return _refused(fs, roots.store, "put-if-absent (of two writers of one name, one must lose)")
    staged = fs.create(source, target)
    staged.write(b"3")
    staged.close_file(sync=True)
    fs.put_if_absent(target, b"4")
    for made in (put, source, target):
        folder, _, name = made.rpartition("/")
        if fs.status(f"{folder}/{name.upper()}") is not None:
            return _refused(fs, folder, "keeping names apart that differ in case only, as those of datasets may")
    try:
        fs.rename(source, target)
    except FileExistsError:
        fs.delete(target)
    except FileNotFoundError:
        raise
    except OSError as error:
        return _refused(fs, roots.output, f"rename from {roots.staging} ({error})")
    else:
        return _refused(fs, roots.output, "rename without replacing an existing file")
    try:
        fs.rename(source, target)
    except FileNotFoundError:
        raise
    except OSError as error:
        return _refused(
            fs, roots.output, f"rename from {roots.staging} (staging and output must share one file system: {error})"
        )
    return None


def _probed_in_full(fs: FileSystem, folder: str) -> ConfigurationError | None:
    """Where the file system asks for it: see `ProbedFileSystem`."""
    if not isinstance(fs, ProbedFileSystem):
        return None
    try:
        fs.probe(folder)
    except ConfigurationError as error:
        return error
    finally:
        delete_tree(fs, folder)
    return None


def _refused(fs: FileSystem, root: str, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"this {fs.scheme} file system can't do what exactly-once needs: {what}",
        path=root,
        todo="choose another file system for the job's folders",
    )
