"""Snapshot deltas: the datasets of a bucket that have changed since the previous delta.

<store>/snapshots/deltas/<epoch>-<bucket>-<number>-<checksum>.json

The owner of the bucket writes a delta when it reports the bucket's log head; the file never changes. The delta chain
of a bucket is a base with all of its datasets and at most eight deltas; then a new base follows.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

import msgspec
from xxhash import xxh3_64_intdigest

from distcommit.core.errors import CorruptError, DistcommitError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.records.bucket_and_dataset_snapshots import BucketSnapshot, DatasetSnapshot
from distcommit.core.support.io_batching import BatchedWork
from distcommit.protocol.log_state import Fold
from distcommit.protocol.paths.store import SNAPSHOT_DELTAS, snapshot_delta_name
from distcommit.stores.logs.commit_log import CommitLog, PutIfAbsent
from distcommit.stores.state.checksummed_json import decode_document, encode_document
from distcommit.stores.state.job_store import JobStore

logger = logging.getLogger(__name__)

DELTA_VERSION = 1
_MAX_CHAIN = 9
_TRIES = 3
_ENCODER = msgspec.msgpack.Encoder(order="deterministic")


class SnapshotDelta(msgspec.Struct, frozen=True):
    """A snapshot delta of a bucket.

    Attributes:
        version: format version.
        bucket: the bucket.
        is_base: whether it contains all datasets of the bucket.
        datasets: done epoch and watermark by dataset URN. If this is not a base, only datasets that have changed.
    """

    version: int
    bucket: int
    is_base: bool
    datasets: dict[str, DatasetSnapshot]


def published_datasets(fold: Fold) -> dict[str, DatasetSnapshot]:
    return {
        state.dataset_urn: DatasetSnapshot(state.done_epoch, state.watermark)
        for state in fold.datasets.values()
        if state.done_epoch
    }


def checksum_of(datasets: Mapping[str, DatasetSnapshot]) -> str:
    """Return a checksum of datasets in any order, as 16 hexadecimal digits."""
    total = sum(xxh3_64_intdigest(_ENCODER.encode(item)) for item in datasets.items())
    return f"{total % 2**64:016x}"


def read_chain(fs: FileSystem, store_root: str, bucket_snapshot: BucketSnapshot) -> dict[str, DatasetSnapshot]:
    """Return done epoch and watermark of a bucket's datasets, by dataset URN.

    Raises:
        FileNotFoundError: if a delta is missing.
        UnknownVersionError, CorruptError: if a delta cannot be read, or the datasets do not match their checksum.
    """
    datasets: dict[str, DatasetSnapshot] = {}
    for index, name in enumerate(bucket_snapshot.deltas):
        path = f"{store_root}/{SNAPSHOT_DELTAS}/{name}"
        chunk = decode_document(fs.read(path), SnapshotDelta, DELTA_VERSION, "a snapshot delta", path)
        if chunk.bucket != bucket_snapshot.bucket or chunk.is_base != (index == 0):
            raise _corrupt_chain(
                path, f"{'the base' if index == 0 else 'a delta'} of bucket {bucket_snapshot.bucket}", "another delta"
            )
        datasets |= chunk.datasets
    if checksum_of(datasets) != bucket_snapshot.total:
        raise _corrupt_chain(
            f"{store_root}/{SNAPSHOT_DELTAS}",
            f"a total of {bucket_snapshot.total} in bucket {bucket_snapshot.bucket}",
            checksum_of(datasets),
        )
    return datasets


def _corrupt_chain(path: str, expected: str, actual: str) -> CorruptError:
    return CorruptError(
        "snapshot deltas differ from those that the manifest names",
        id="SNAPSHOT_CORRUPT",
        path=path,
        expected=expected,
        found=actual,
        todo=f"restore the store's folder {SNAPSHOT_DELTAS} from a backup, or read the snapshot of a later run that"
        " commits a dataset of this bucket; runs do not need the deltas",
    )


def write_snapshot_entry(
    store: JobStore, former: BucketSnapshot | None, bucket: int, log: CommitLog, decided: Collection[int]
) -> BatchedWork[BucketSnapshot]:
    """Return a bucket's durable entry in the next snapshot, with a delta if a dataset has changed.

    Args:
        former: the bucket's entry in the previous snapshot, if any.
        log: the bucket's log, fenced by the run and just refreshed.
        decided: epochs that have decided to publish their held sequences, read after the fence.

    Raises:
        OSError: if the delta cannot be put.
    """
    fold = log.latest()
    yield from log.make_durable()
    head, datasets = log.head(bucket), published_datasets(fold)
    sequences = [state.open for state in fold.datasets.values() if state.open is not None]
    total = checksum_of(datasets)
    chunks: tuple[str, ...] = ()
    if former is not None and former.total == total:
        chunks = former.deltas
    elif not datasets:
        pass  # nothing is published yet
    else:
        chunk, earlier = _next_delta(store, former, bucket, datasets)
        data = encode_document(chunk)
        name = snapshot_delta_name(log.epoch, bucket, head.number, f"{xxh3_64_intdigest(data):016x}")
        yield from _put_delta(store, name, data)
        chunks = (*earlier, name)
    return BucketSnapshot(
        bucket,
        head.number,
        head.checksum,
        chunks,
        total,
        open=len(sequences),
        decided_open=any(sequence.held and sequence.sequence.epoch in decided for sequence in sequences),
    )


def _next_delta(
    store: JobStore, former: BucketSnapshot | None, bucket: int, datasets: dict[str, DatasetSnapshot]
) -> tuple[SnapshotDelta, tuple[str, ...]]:
    """Return the next delta, and the names of the deltas before it. If the chain is full or cannot be continued, the
    delta is a base."""
    base = SnapshotDelta(DELTA_VERSION, bucket, True, datasets)
    if former is None or not former.deltas or len(former.deltas) >= _MAX_CHAIN:
        return base, ()
    try:
        earlier = read_chain(store.fs, store.roots.store, former)
    except (DistcommitError, OSError) as error:
        logger.warning("a delta chain starts again: %s", error, extra={"bucket": bucket})
        return base, ()
    if earlier.keys() - datasets.keys():
        return base, ()
    changed = {urn: snapshot for urn, snapshot in datasets.items() if earlier.get(urn) != snapshot}
    return SnapshotDelta(DELTA_VERSION, bucket, False, changed), former.deltas


def _put_delta(store: JobStore, name: str, data: bytes) -> BatchedWork[None]:
    fs, folder = store.fs, f"{store.roots.store}/{SNAPSHOT_DELTAS}"
    for tries_left in reversed(range(_TRIES)):
        try:
            won: bool = yield PutIfAbsent(fs, f"{folder}/{name}", data)
            if not won:  # put by this run, which missed the answer: the name is a checksum of the content
                fs.sync([folder], store.roots.store)
            return
        except OSError as error:
            if not tries_left:
                raise
            if isinstance(error, FileNotFoundError):
                fs.make_folders(folder)


def deltas_of(chains: Iterable[BucketSnapshot]) -> set[str]:
    return {name for snapshot in chains for name in snapshot.deltas}
