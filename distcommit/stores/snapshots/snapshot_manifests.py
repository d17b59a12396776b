"""Snapshots: readers that use them see whole commits only, of one dataset or of all datasets at one point.

<store>/snapshots/<epoch>-<phase>.json     the manifest of a snapshot: for each bucket the head of its log and the delta
                                      chain (`stores.snapshots.snapshot_deltas`) with the state of its datasets

A run puts a manifest before it writes CUT to the job log. A manifest is valid if its CUT is the newest one in the job
log, or if it is the parent of a valid manifest. So the manifest of a fenced run is never valid. Files that readers of a
retained snapshot need are deleted only after the manifest, durably. The model is `tests/spec/cut_model.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from distcommit.core.error_handling.storage_errors import storage_error
from distcommit.core.errors import CorruptError, DistcommitError, StaleStoreError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.records.bucket_and_dataset_snapshots import BucketSnapshot, SnapshotName
from distcommit.core.records.job_log_records import CutPhase
from distcommit.fs.separate_store import file_system_at
from distcommit.protocol.log_state import Fold
from distcommit.protocol.paths.store import (
    SNAPSHOT_DELTAS,
    SNAPSHOTS,
    snapshot_manifest_name,
)
from distcommit.stores.state.checksummed_json import decode_document, encode_document
from distcommit.stores.state.job_store import JobStore

logger = logging.getLogger(__name__)

SNAPSHOT_VERSION = 1
RETAINED_SNAPSHOTS = 20
"""Default number of retained snapshots."""
_TRIES = 3


class SnapshotBucket(msgspec.Struct, frozen=True):
    """A bucket in a snapshot.

    Attributes:
        epoch: epoch of the run that wrote the entry.
        snapshot: the entry.
    """

    epoch: int
    snapshot: BucketSnapshot


class SnapshotManifest(msgspec.Struct, frozen=True):
    """The manifest of a snapshot.

    Attributes:
        version: format version.
        epoch: epoch of the run.
        phase: the CUT of the run, after replay or at its end.
        run_id: the run's id.
        time_ms: time of the snapshot, in milliseconds since 1970; never before the parent's.
        generation: generation of the bucket logs.
        parent: the previous snapshot; None if a new chain starts here.
        repeats_parent: whether it has the content of its parent, because the datasets of an all-or-none job are not, or
            may not be, published completely.
        is_settled: whether no bucket had an open sequence.
        buckets: entries by bucket.
    """

    version: int
    epoch: int
    phase: CutPhase
    run_id: str
    time_ms: int
    generation: int
    parent: SnapshotName | None
    repeats_parent: bool
    is_settled: bool
    buckets: dict[int, SnapshotBucket]

    @property
    def name(self) -> SnapshotName:
        return self.epoch, self.phase


def newest_snapshot_name(fold: Fold) -> SnapshotName | None:
    """Return epoch and phase of the newest CUT, or None."""
    marked = ((fold.began_epoch, CutPhase.BEGAN), (fold.ended_epoch, CutPhase.ENDED))
    return max(((epoch, int(phase)) for epoch, phase in marked if epoch), default=None)


def snapshot_manifest_path(store_root: str, name: SnapshotName) -> str:
    return f"{store_root}/{SNAPSHOTS}/{snapshot_manifest_name(*name)}"


def read_snapshot_manifest(fs: FileSystem, store_root: str, name: SnapshotName) -> SnapshotManifest | None:
    """Return a manifest, or None. Raise UnknownVersionError or CorruptError."""
    path = snapshot_manifest_path(store_root, name)
    try:
        root = decode_document(fs.read(path), SnapshotManifest, SNAPSHOT_VERSION, "the manifest of a snapshot", path)
    except FileNotFoundError:
        return None
    if root.name != name:
        raise CorruptError(
            "a file has the manifest of another snapshot",
            id="SNAPSHOT_CORRUPT",
            path=path,
            expected=f"epoch {name[0]}, phase {name[1]}, as in the file's name",
            found=f"epoch {root.name[0]}, phase {root.name[1]}",
        )
    return root


def valid_manifests(fs: FileSystem, store_root: str, fold: Fold) -> Iterator[SnapshotManifest]:
    """Yield valid manifests of kept snapshots, the newest first. Raise UnknownVersionError or CorruptError."""
    name = newest_snapshot_name(fold)
    while name is not None and (root := read_snapshot_manifest(fs, store_root, name)) is not None:
        yield root
        name = root.parent


def parent_manifest(store: JobStore, fold: Fold) -> SnapshotManifest | None:
    """Return the newest snapshot's manifest. If it is missing, unreadable or of another generation, return None, so
    that a new chain starts."""
    try:
        name = newest_snapshot_name(fold)
        root = read_snapshot_manifest(store.fs, store.roots.store, name) if name else None
    except DistcommitError as error:
        logger.warning("the chain of snapshots starts again: %s", error, extra={"store": store.roots.store})
        return None
    return root if root is not None and root.generation == store.generation else None


def prepare_snapshots(store: JobStore) -> None:
    folder = f"{store.roots.store}/{SNAPSHOT_DELTAS}"
    if file_system_at(store.fs, folder).has_folders and store.fs.status(folder) is None:
        store.fs.make_folders(folder)
        store.fs.sync([folder], store.roots.store)


def put_snapshot(
    store: JobStore, epoch: int, run_id: str, phase: CutPhase, snapshots: Iterable[BucketSnapshot], now_ms: int
) -> None:
    """Put the manifest of the run's next snapshot, durably, unless the run is fenced. Call it before the CUT is
    recorded.

    Args:
        phase: the CUT, after replay or at the end.
        snapshots: entries of the buckets, written by their owners since the run has fenced them. A bucket without an
            entry keeps the entry of the previous snapshot.
        now_ms: present time, in milliseconds since 1970.

    Raises:
        DistcommitError: if the manifest cannot be put.
    """
    fold = store.job_log(epoch).refresh()
    if fold.fence_epoch != epoch:
        return
    before = parent_manifest(store, fold)
    entries = {entry.bucket: entry for entry in snapshots}
    buckets, repeats = _next_buckets(store, fold, epoch, before, entries)
    root = SnapshotManifest(
        version=SNAPSHOT_VERSION,
        epoch=epoch,
        phase=phase,
        run_id=run_id,
        time_ms=max(now_ms, before.time_ms if before else 0),
        generation=store.generation,
        parent=before.name if before else None,
        repeats_parent=repeats,
        is_settled=len(entries) == store.buckets and not repeats and not any(entry.open for entry in entries.values()),
        buckets=buckets,
    )
    _put(store, root)


def _next_buckets(
    store: JobStore, fold: Fold, epoch: int, before: SnapshotManifest | None, snapshots: Mapping[int, BucketSnapshot]
) -> tuple[dict[int, SnapshotBucket], bool]:
    """Return the next buckets, and whether the snapshot repeats the previous one, because new entries might show only a
    part of an all-or-none job's run."""
    former = before.buckets if before else {}
    missing = [bucket for bucket in range(store.buckets) if bucket not in snapshots]
    repeats = any(entry.decided_open for entry in snapshots.values())
    if missing:  # it is unknown whether these contain decided sequences
        oldest_missing = min(former[bucket].epoch if bucket in former else 0 for bucket in missing)
        may_be_partial = any(decided >= oldest_missing for decided in fold.decided_epochs)
        repeats = repeats or may_be_partial or (before is not None and before.repeats_parent)
    now = {bucket: SnapshotBucket(epoch, entry) for bucket, entry in sorted(snapshots.items())}
    return (dict(former) if repeats else {**former, **now}), repeats


def _put(store: JobStore, root: SnapshotManifest) -> None:
    fs, folder = store.fs, f"{store.roots.store}/{SNAPSHOTS}"
    path, data = snapshot_manifest_path(store.roots.store, root.name), encode_document(root)
    for tries_left in reversed(range(_TRIES)):
        try:
            if not fs.put_if_absent(path, data):
                if fs.read(path) != data:  # of an undone history, as no other run has this epoch
                    fs.delete(path)
                    continue
                fs.sync([folder], store.roots.store)
            return
        except OSError as error:
            if not tries_left:
                raise storage_error(error, "the manifest of a snapshot cannot be written", path=path) from error
            if isinstance(error, FileNotFoundError):
                fs.make_folders(folder)
    raise StaleStoreError(
        "the manifest of a snapshot belongs to another run", path=path, found="a file that reappears when deleted"
    )
