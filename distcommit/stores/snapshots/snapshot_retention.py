"""Retention of snapshots and of files that they protect."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from distcommit.core.errors import CorruptError, DistcommitError, UnknownVersionError
from distcommit.protocol.paths.store import SNAPSHOT_DELTAS, SNAPSHOTS, snapshot_delta_epoch, snapshot_manifest_of
from distcommit.protocol.paths.temporary_and_probes import is_temporary
from distcommit.stores.folders.folder_trees import delete_tree
from distcommit.stores.snapshots.snapshot_deltas import deltas_of, read_chain
from distcommit.stores.snapshots.snapshot_manifests import (
    SnapshotManifest,
    read_snapshot_manifest,
    snapshot_manifest_path,
    valid_manifests,
)
from distcommit.stores.state.job_store import JobStore

logger = logging.getLogger(__name__)


def expire_older_snapshots(store: JobStore, epoch: int, keep: int, *, is_to_come: bool = False) -> None:
    """Delete all but the newest `keep` manifests, durably. Then delete unused deltas.

    Call it after a CUT; newer runs' files are not touched. If a valid manifest cannot be read, nothing is deleted,
    because its files are unknown.

    Args:
        keep: number of snapshots to retain.
        is_to_come: whether the run will put another snapshot, so that one less is retained.

    Raises:
        DistcommitError, OSError: if a deletion fails; retained snapshots keep their files.
    """
    fs, root_folder = store.fs, store.roots.store
    manifests: list[SnapshotManifest] = []
    max_kept = keep - 1 if is_to_come else keep
    fold = store.job_log(epoch).refresh()
    try:
        for root in valid_manifests(fs, root_folder, fold):
            manifests.append(root)
            if len(manifests) == max_kept:
                break
    except (CorruptError, UnknownVersionError) as error:
        logger.warning("older snapshots stay: %s", error)
        return
    if not is_to_come and (not manifests or manifests[0].epoch != epoch):
        return  # fenced
    names = {root.name for root in manifests}
    entries = fs.list_folder(f"{root_folder}/{SNAPSHOTS}")
    present = sorted(name for entry in entries if (name := snapshot_manifest_of(entry.name)) is not None)
    superseded = [name for name in present if name not in names and name[0] < epoch]
    for name in superseded:
        fs.delete(snapshot_manifest_path(root_folder, name))
    if superseded:
        fs.sync([f"{root_folder}/{SNAPSHOTS}"], root_folder)
    needed = deltas_of(entry.snapshot for root in manifests for entry in root.buckets.values())
    for entry in fs.list_folder(f"{root_folder}/{SNAPSHOT_DELTAS}"):
        delta_epoch = snapshot_delta_epoch(entry.name)
        if is_temporary(entry.name) or (delta_epoch is not None and delta_epoch < epoch and entry.name not in needed):
            fs.delete(f"{root_folder}/{SNAPSHOT_DELTAS}/{entry.name}")
    for entry in entries:
        if is_temporary(entry.name):
            fs.delete(f"{root_folder}/{SNAPSHOTS}/{entry.name}")


def delete_snapshots(store: JobStore) -> None:
    """Delete all snapshots, durably. Call it before files that they use are deleted. The next run starts a new
    chain."""
    delete_tree(store.fs, f"{store.roots.store}/{SNAPSHOTS}")
    store.fs.sync([store.roots.store], store.roots.store)


@dataclass(frozen=True, slots=True)
class OldestSnapshot:
    """The oldest retained snapshot, read on first use. Files of the datasets in it must not be deleted.

    Attributes:
        store: the store whose snapshots are read.
    """

    store: JobStore
    _known: dict[int, Mapping[str, int]] = field(default_factory=dict)
    _root: list[SnapshotManifest | None] = field(default_factory=list)

    def done_epoch(self, bucket: int, urn: str) -> int:
        if bucket not in self._known:
            self._known[bucket] = self._done_epochs(bucket)
        return self._known[bucket].get(urn, 0)

    def _done_epochs(self, bucket: int) -> Mapping[str, int]:
        fs, store_root = self.store.fs, self.store.roots.store
        try:
            if not self._root:
                names = (snapshot_manifest_of(entry.name) for entry in fs.list_folder(f"{store_root}/{SNAPSHOTS}"))
                oldest = min((name for name in names if name is not None), default=None)
                self._root.append(read_snapshot_manifest(fs, store_root, oldest) if oldest else None)
            root = self._root[0]
            if root is None or root.generation != self.store.generation or bucket not in root.buckets:
                return {}
            chain = read_chain(fs, store_root, root.buckets[bucket].snapshot)
        except (DistcommitError, OSError) as error:
            logger.warning("superseded files stay: %s", error, extra={"bucket": bucket})
            return {}
        return {urn: snapshot.done_epoch for urn, snapshot in chain.items()}
