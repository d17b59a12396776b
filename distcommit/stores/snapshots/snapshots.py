"""Cuts: what readers go by, so that they see whole commits only, of one dataset or of all at one point.

<store>/cuts/<epoch>-<phase>.json     the root of a cut: where each bucket's log was, and the pieces that say how far
                                      its datasets are (`stores.snapshots.snapshot_deltas`)

A run puts a root before it says CUT in the job log. It counts if that CUT is the newest which the fold of the job log
knows, or if it is the parent of one that counts: what a fenced run has put is in nobody's chain. What a reader of a
kept root needs is deleted only after the root, durably. `tests/spec/cut_model.py` is the model of it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from distcommit.core.errors import CorruptError, DistcommitError, StaleStoreError, UnknownVersionError, storage_error
from distcommit.core.ports import FileSystem
from distcommit.core.records.job_records import CutPhase
from distcommit.core.records.snapshot_names import CutName, SeenBucket
from distcommit.protocol.fold import Fold
from distcommit.protocol.paths.store import CUTS, PIECES, cut_name, cut_of, piece_epoch
from distcommit.protocol.paths.temporary import is_temporary
from distcommit.stores.folders.deletion import delete_tree
from distcommit.stores.snapshots.snapshot_deltas import pieces_of, read_chain
from distcommit.stores.state.documents import decode_document, encode_document
from distcommit.stores.state.job_store import JobStore

logger = logging.getLogger(__name__)

CUT_VERSION = 1
KEPT_CUTS = 20
"""How many cuts a job keeps if it does not say."""
_TRIES = 3


class BucketInCut(msgspec.Struct, frozen=True):
    """A bucket in a cut: as the run of that epoch has `seen` it, this one or one before."""

    epoch: int
    seen: SeenBucket


class CutRoot(msgspec.Struct, frozen=True):
    """A cut as its root has it. `parent`: the one before; none if nobody goes on with what was before.

    `time_ms`: when it was made, milliseconds since 1970, and never before its parent. `repeats`: whether it says the
    same as its parent, since of a whole job that is to be published not all is, or may not be. `settled`: whether
    nothing was left open in any bucket.
    """

    version: int
    epoch: int
    phase: CutPhase
    run_id: str
    time_ms: int
    generation: int
    parent: CutName | None
    repeats: bool
    settled: bool
    buckets: dict[int, BucketInCut]

    @property
    def name(self) -> CutName:
        """Its epoch and phase."""
        return self.epoch, self.phase


def newest_cut(fold: Fold) -> CutName | None:
    """The newest CUT that the fold of the job log knows."""
    cuts = ((fold.began_epoch, CutPhase.BEGAN), (fold.ended_epoch, CutPhase.ENDED))
    return max(((epoch, int(phase)) for epoch, phase in cuts if epoch), default=None)


def root_path(store_root: str, name: CutName) -> str:
    """Where the root of a cut is."""
    return f"{store_root}/{CUTS}/{cut_name(*name)}"


def read_root(fs: FileSystem, store_root: str, name: CutName) -> CutRoot | None:
    """A root; None if it is not there.

    Raises:
        UnknownVersionError, CorruptError: if it can't be read.
    """
    path = root_path(store_root, name)
    try:
        root = decode_document(fs.read(path), CutRoot, CUT_VERSION, "the root of a cut", path)
    except FileNotFoundError:
        return None
    if root.name != name:
        raise CorruptError("the root of a cut is another one", path=path, expected=str(name), found=str(root.name))
    return root


def counted_roots(fs: FileSystem, store_root: str, fold: Fold) -> Iterator[CutRoot]:
    """The roots that count, the newest first, as far as they are kept. Raises as `read_root`."""
    name = newest_cut(fold)
    while name is not None and (root := read_root(fs, store_root, name)) is not None:
        yield root
        name = root.parent


def root_to_go_on(store: JobStore, fold: Fold) -> CutRoot | None:
    """The root that the next one comes upon: of this generation, and one that can be read; else it begins anew."""
    try:
        name = newest_cut(fold)
        root = read_root(store.fs, store.roots.store, name) if name else None
    except DistcommitError as error:
        logger.warning("cuts begin anew: %s", error, extra={"store": store.roots.store})
        return None
    return root if root is not None and root.generation == store.generation else None


def prepare_cuts(store: JobStore) -> None:
    """Makes the folders, durably, if they are not there."""
    folder = f"{store.roots.store}/{PIECES}"
    if store.fs.has_folders and store.fs.status(folder) is None:
        store.fs.make_folders(folder)
        store.fs.sync([folder], store.roots.store)


def put_cut(store: JobStore, epoch: int, run_id: str, phase: CutPhase, seen: Iterable[SeenBucket], now_ms: int) -> None:
    """Puts the root of the run's next cut, durably, unless the run is fenced. To be called before it says CUT.

    Args:
        store: the store.
        epoch: the run's, and
        run_id: its id.
        phase: which cut.
        seen: the buckets as their owners have seen them since the run has fenced them. A bucket that is not among them
            stays as the cut before has it.
        now_ms: milliseconds since 1970.

    Raises:
        DistcommitError: if it can't be put.
    """
    fold = store.job_log(epoch).refresh()
    if fold.fence_epoch != epoch:
        return
    before = root_to_go_on(store, fold)
    told = {each.bucket: each for each in seen}
    buckets, repeats = _next_buckets(store, fold, epoch, before, told)
    root = CutRoot(
        version=CUT_VERSION,
        epoch=epoch,
        phase=phase,
        run_id=run_id,
        time_ms=max(now_ms, before.time_ms if before else 0),
        generation=store.generation,
        parent=before.name if before else None,
        repeats=repeats,
        settled=len(told) == store.buckets and not repeats and not any(each.open for each in told.values()),
        buckets=buckets,
    )
    _put(store, root)


def _next_buckets(
    store: JobStore, fold: Fold, epoch: int, before: CutRoot | None, seen: Mapping[int, SeenBucket]
) -> tuple[dict[int, BucketInCut], bool]:
    """The buckets of the next cut, and whether they are those of the cut before, as half a job would be seen else."""
    former = before.buckets if before else {}
    missing = [bucket for bucket in range(store.buckets) if bucket not in seen]
    repeats = any(each.decided_open for each in seen.values())
    if missing:  # nobody knows whether they have what was decided
        behind = min(former[bucket].epoch if bucket in former else 0 for bucket in missing)
        unsure = any(decided >= behind for decided in fold.decided_epochs)
        repeats = repeats or unsure or (before is not None and before.repeats)
    now = {bucket: BucketInCut(epoch, each) for bucket, each in sorted(seen.items())}
    return (dict(former) if repeats else {**former, **now}), repeats


def _put(store: JobStore, root: CutRoot) -> None:
    fs, folder = store.fs, f"{store.roots.store}/{CUTS}"
    path, data = root_path(store.roots.store, root.name), encode_document(root)
    for tries_left in reversed(range(_TRIES)):
        try:
            if not fs.put_if_absent(path, data):
                if fs.read(path) != data:  # of a history that was undone: nobody else has this epoch
                    fs.delete(path)
                    continue
                fs.sync([folder], store.roots.store)
            return
        except OSError as error:
            if not tries_left:
                raise storage_error(error, "the root of a cut can't be written", path=path) from error
            if isinstance(error, FileNotFoundError):
                fs.make_folders(folder)
    raise StaleStoreError("the root of a cut is another run's", path=path, found="one that comes back when deleted")


def forget_cuts(store: JobStore, epoch: int, keep: int, *, is_to_come: bool = False) -> None:
    """Deletes all roots but the newest `keep`, durably, then pieces that none of these names. For a run of that epoch,
    after a CUT of its own: what newer runs have put stays. All do if one that counts can't be read: of what it needs
    nothing is known, and only readers need it.

    Args:
        store: the job's.
        epoch: the run's.
        keep: how many.
        is_to_come: whether the run has put none yet, so that one less stays of those that are there.

    Raises:
        DistcommitError, OSError: if that can't be done; nothing that a kept root needs was deleted.
    """
    fs, root_folder = store.fs, store.roots.store
    kept: list[CutRoot] = []
    stay = keep - 1 if is_to_come else keep
    fold = store.job_log(epoch).refresh()
    try:
        for root in counted_roots(fs, root_folder, fold):
            kept.append(root)
            if len(kept) == stay:
                break
    except (CorruptError, UnknownVersionError) as error:
        logger.warning("older cuts stay: %s", error)
        return
    if not is_to_come and (not kept or kept[0].epoch != epoch):
        return  # fenced
    names = {root.name for root in kept}
    entries = fs.list_folder(f"{root_folder}/{CUTS}")
    there = sorted(name for entry in entries if (name := cut_of(entry.name)) is not None)
    gone = [name for name in there if name not in names and name[0] < epoch]
    for name in gone:
        fs.delete(root_path(root_folder, name))
    if gone:
        fs.sync([f"{root_folder}/{CUTS}"], root_folder)
    needed = pieces_of(each.seen for root in kept for each in root.buckets.values())
    for entry in fs.list_folder(f"{root_folder}/{PIECES}"):
        made = piece_epoch(entry.name)
        if is_temporary(entry.name) or (made is not None and made < epoch and entry.name not in needed):
            fs.delete(f"{root_folder}/{PIECES}/{entry.name}")
    for entry in entries:
        if is_temporary(entry.name):
            fs.delete(f"{root_folder}/{CUTS}/{entry.name}")


def end_cuts(store: JobStore) -> None:
    """Takes all cuts away, durably: what they need is about to go. The next run begins anew."""
    delete_tree(store.fs, f"{store.roots.store}/{CUTS}")
    store.fs.sync([store.roots.store], store.roots.store)


@dataclass(frozen=True, slots=True)
class OldestCut:
    """The oldest cut that is kept, as what its datasets' files are held for. Looks when it is asked first."""

    store: JobStore
    _known: dict[int, Mapping[str, int]] = field(default_factory=dict)
    _root: list[CutRoot | None] = field(default_factory=list)

    def done_epoch(self, bucket: int, urn: str) -> int:
        """The dataset's there; 0 if that is not known."""
        if bucket not in self._known:
            self._known[bucket] = self._read(bucket)
        return self._known[bucket].get(urn, 0)

    def _read(self, bucket: int) -> Mapping[str, int]:
        fs, store_root = self.store.fs, self.store.roots.store
        try:
            if not self._root:
                names = (cut_of(entry.name) for entry in fs.list_folder(f"{store_root}/{CUTS}"))
                oldest = min((name for name in names if name is not None), default=None)
                self._root.append(read_root(fs, store_root, oldest) if oldest else None)
            root = self._root[0]
            if root is None or root.generation != self.store.generation or bucket not in root.buckets:
                return {}
            chain = read_chain(fs, store_root, root.buckets[bucket].seen)
        except (DistcommitError, OSError) as error:
            logger.warning("retired files stay: %s", error, extra={"bucket": bucket})
            return {}
        return {urn: seen.done_epoch for urn, seen in chain.items()}
