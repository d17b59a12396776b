"""Pieces of cuts: of a bucket, the datasets that differ from what the pieces before say.

<store>/cuts/pieces/<epoch>-<bucket>-<number>-<checksum>.json

Made by who owns the bucket, when it tells where its log is; immutable. A bucket's chain is a base, which has all of its
datasets, and at most eight more; then comes a new base. So a run that changes few datasets writes little, and nothing
if it changes none.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

import msgspec
from xxhash import xxh3_64_intdigest

from distcommit.core.errors import CorruptError, DistcommitError
from distcommit.core.ports import FileSystem
from distcommit.core.records.snapshot_names import SeenBucket, SeenDataset
from distcommit.core.support.io_batching import Work
from distcommit.protocol.fold import Fold
from distcommit.protocol.paths.store import PIECES, piece_name
from distcommit.stores.logs.log import CommitLog, PutIfAbsent
from distcommit.stores.state.documents import decode_document, encode_document
from distcommit.stores.state.job_store import JobStore

logger = logging.getLogger(__name__)

PIECE_VERSION = 1
_LONGEST = 9
_TRIES = 3
_ENCODER = msgspec.msgpack.Encoder(order="deterministic")


class Piece(msgspec.Struct, frozen=True):
    """Datasets of a bucket, by their URNs: all of it if `is_base`, else those that differ from what was before."""

    version: int
    bucket: int
    is_base: bool
    datasets: dict[str, SeenDataset]


def published(fold: Fold) -> dict[str, SeenDataset]:
    """The datasets of a bucket of which something is published."""
    return {
        state.dataset_urn: SeenDataset(state.done_epoch, state.watermark)
        for state in fold.datasets.values()
        if state.done_epoch
    }


def total_of(datasets: Mapping[str, SeenDataset]) -> str:
    """What these come to, whatever their order: 16 hexadecimal digits."""
    total = sum(xxh3_64_intdigest(_ENCODER.encode(each)) for each in datasets.items())
    return f"{total % 2**64:016x}"


def read_chain(fs: FileSystem, store_root: str, seen: SeenBucket) -> dict[str, SeenDataset]:
    """How far the datasets of a bucket are.

    Raises:
        FileNotFoundError: if a piece is gone.
        UnknownVersionError, CorruptError: if one can't be read, or they do not come to what they should.
    """
    found: dict[str, SeenDataset] = {}
    for index, name in enumerate(seen.pieces):
        path = f"{store_root}/{PIECES}/{name}"
        piece = decode_document(fs.read(path), Piece, PIECE_VERSION, "a piece of a cut", path)
        if piece.bucket != seen.bucket or piece.is_base != (index == 0):
            raise _wrong(path, f"bucket {seen.bucket}, {'a base' if index == 0 else 'what came after one'}", "another")
        found |= piece.datasets
    if total_of(found) != seen.total:
        raise _wrong(f"{store_root}/{PIECES}", f"a total of {seen.total} in bucket {seen.bucket}", total_of(found))
    return found


def _wrong(path: str, expected: str, found: str) -> CorruptError:
    return CorruptError(
        "pieces of a cut are not those that its root names",
        path=path,
        expected=expected,
        found=found,
        todo="restore the folder from a backup; the next run makes new ones for its own cuts",
    )


def seeing(
    store: JobStore, former: SeenBucket | None, bucket: int, log: CommitLog, decided: Collection[int]
) -> Work[SeenBucket]:
    """What a run tells of a bucket for its next cut; durable, with the piece that it puts if a dataset has moved.

    Args:
        store: the store.
        former: the bucket in the cut before, if it is in there.
        bucket: its number.
        log: its log, fenced by the run; it goes by the last look at it.
        decided: epochs of which whole jobs are to be published, as read after the log was fenced.

    Raises:
        OSError: if the piece can't be put.
    """
    fold = log.latest()
    yield from log.making_durable()
    head, datasets = log.head(bucket), published(fold)
    sequences = [state.open for state in fold.datasets.values() if state.open is not None]
    total = total_of(datasets)
    pieces: tuple[str, ...] = ()
    if former is not None and former.total == total:
        pieces = former.pieces
    elif not datasets:
        pass  # nothing is published yet
    else:
        piece, before = _next_piece(store, former, bucket, datasets)
        data = encode_document(piece)
        name = piece_name(log.epoch, bucket, head.number, f"{xxh3_64_intdigest(data):016x}")
        yield from _putting(store, name, data)
        pieces = (*before, name)
    return SeenBucket(
        bucket,
        head.number,
        head.checksum,
        pieces,
        total,
        open=len(sequences),
        decided_open=any(one.held and one.sequence.epoch in decided for one in sequences),
    )


def _next_piece(
    store: JobStore, former: SeenBucket | None, bucket: int, datasets: dict[str, SeenDataset]
) -> tuple[Piece, tuple[str, ...]]:
    """What is to be put, and what stays below it. What is there and can't be read is done without."""
    base = Piece(PIECE_VERSION, bucket, True, datasets)
    if former is None or not former.pieces or len(former.pieces) >= _LONGEST:
        return base, ()
    try:
        before = read_chain(store.fs, store.roots.store, former)
    except (DistcommitError, OSError) as error:
        logger.warning("a cut begins anew: %s", error, extra={"bucket": bucket})
        return base, ()
    if before.keys() - datasets.keys():
        return base, ()
    changed = {urn: seen for urn, seen in datasets.items() if before.get(urn) != seen}
    return Piece(PIECE_VERSION, bucket, False, changed), former.pieces


def _putting(store: JobStore, name: str, data: bytes) -> Work[None]:
    fs, folder = store.fs, f"{store.roots.store}/{PIECES}"
    for tries_left in reversed(range(_TRIES)):
        try:
            won: bool = yield PutIfAbsent(fs, f"{folder}/{name}", data)
            if not won:  # by this very run, which was not told: the name says what is in it
                fs.sync([folder], store.roots.store)
            return
        except OSError as error:
            if not tries_left:
                raise
            if isinstance(error, FileNotFoundError):
                fs.make_folders(folder)


def pieces_of(chains: Iterable[SeenBucket]) -> set[str]:
    """The names of all pieces of these."""
    return {name for seen in chains for name in seen.pieces}
