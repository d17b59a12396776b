"""The content of each snapshot of a simulated job, compared with the required content."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from distcommit.app.reading.live_files import live_files
from distcommit.core.records.bucket_and_dataset_snapshots import DatasetSnapshot, SnapshotName
from distcommit.core.watermark import as_offset
from distcommit.core.work_units import MAIN_BRANCH
from distcommit.sinks.files.footer import read_records
from distcommit.stores.snapshots.snapshot_deltas import read_chain
from distcommit.stores.snapshots.snapshot_manifests import SnapshotManifest, valid_manifests
from distcommit.stores.state.job_store import JobStore

Seen = Mapping[str, tuple[int, int, int]]
"""By dataset: its done epoch, its live records, and the records below its watermark."""


def datasets_at(store: JobStore, root: SnapshotManifest) -> dict[str, DatasetSnapshot]:
    """Return the positions of a snapshot's datasets.

    Raises as `read_chain`.
    """
    chains = [read_chain(store.fs, store.roots.store, bucket.snapshot) for bucket in root.buckets.values()]
    return {urn: snapshot for chain in chains for urn, snapshot in chain.items()}


def seen_at_cuts(store: JobStore) -> Iterator[tuple[SnapshotName, Seen]]:
    """Return a reader's result at each existing snapshot, the newest first; raise if one cannot be read."""
    for root in valid_manifests(store.fs, store.roots.store, store.job_log().refresh()):
        yield (
            root.name,
            {
                urn: (snapshot.done_epoch, _records(store, urn, snapshot.done_epoch), _passed(snapshot))
                for urn, snapshot in datasets_at(store, root).items()
            },
        )


def _records(store: JobStore, urn: str, done_epoch: int) -> int:
    paths = live_files(store.fs, store.roots.output, urn, done_epoch, MAIN_BRANCH)
    return sum(read_records(store.fs, path).num_rows for path in paths)


def _passed(seen: DatasetSnapshot) -> int:
    return sum(map(as_offset, seen.watermark.positions.values())) if seen.watermark is not None else 0


def cut_violation(store: JobStore) -> str:
    """Return a violation of the existing snapshots.

    Each must be readable, none may show a dataset behind the previous one, and that of the last ended run must agree
    with the logs.
    """
    newer: dict[str, DatasetSnapshot] | None = None
    fold = store.job_log().refresh()
    has_ended = fold.has_ended and fold.began_epoch == fold.fence_epoch
    for root in valid_manifests(store.fs, store.roots.store, fold):
        datasets = datasets_at(store, root)
        if newer is None and has_ended:
            logs = [store.bucket_log(bucket).refresh().datasets.values() for bucket in range(store.buckets)]
            done = {state.dataset_urn: state.done_epoch for states in logs for state in states if state.done_epoch}
            if {urn: dataset_snapshot.done_epoch for urn, dataset_snapshot in datasets.items()} != done:
                return f"the newest cut {root.name} shows {datasets}, and the logs say {done}"
        back = [
            urn
            for urn, dataset_snapshot in datasets.items()
            if newer is not None and _is_back(newer.get(urn), dataset_snapshot)
        ]
        if back:
            return f"after the cut {root.name} datasets go back: {back}"
        newer = datasets
    return "a run has ended without a snapshot" if newer is None and has_ended else ""


def _is_back(newer: DatasetSnapshot | None, seen: DatasetSnapshot) -> bool:
    return newer is None or newer.done_epoch < seen.done_epoch
