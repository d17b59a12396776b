"""The plan of a run: work units as Parquet tables, one by each partition for all buckets that it owns, which count once
one manifest is put, last."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from threading import Lock

import msgspec

from distcommit.core.ports import FileSystem
from distcommit.core.work import DatasetPlan
from distcommit.protocol.paths.parts import bucket_of_work_unit
from distcommit.protocol.paths.store import MANIFEST, PLANS, run_name
from distcommit.stores.state.documents import decode_document, encode_document
from distcommit.stores.state.stored_tables import check_table, decode_plan, encode_plan, table_name

MANIFEST_VERSION = 1


class Lent(msgspec.Struct, frozen=True, array_like=True):
    """A part of a bucket's plan that `partition` reads instead of the bucket's owner: the work units that begin in it.
    `begin` and `end` (exclusive) are loads: how much is before them in the bucket's plan, large work units left out."""

    partition: int
    bucket: int
    begin: int
    end: int


class Manifest(msgspec.Struct, frozen=True):
    """The plan as a whole: which file counts for each bucket, and how work units are shared out.

    `files` has a name for each bucket that has work; buckets that were planned together share it. Work units named in
    `large` are read by tasks of their own, task i reading `large[i]`, pairs of bucket and work unit id. All others are
    read by the partition that owns their bucket, or by the one that they were `lent` to.
    """

    version: int
    run_id: str
    epoch: int
    files: dict[int, str]
    large: tuple[tuple[tuple[int, str], ...], ...] = ()
    lent: tuple[Lent, ...] = ()


def write_plans(
    fs: FileSystem, store_root: str, run_id: str, plans: Mapping[int, Sequence[DatasetPlan]]
) -> dict[int, str]:
    """Writes the plans of these buckets, at least one, as one file under a name of its own, durably. It counts once a
    manifest names it. Returns that name for each bucket. Ids of work units tell their buckets."""
    folder = _folder(store_root, run_id)
    fs.make_folders(folder)
    data = encode_plan([plan for listed in plans.values() for plan in listed])
    name = table_name(uuid.uuid4().hex, data)
    fs.put_if_absent(f"{folder}/{name}", data)
    fs.sync([folder], store_root)
    return dict.fromkeys(plans, name)


class PlanReader:
    """Reads the plans of buckets; the last file stays in memory, as buckets that follow are mostly in it. Threads may
    share it.

    Args:
        fs: where the store is.
        store_root: its folder.
        manifest: the plan that counts.
    """

    def __init__(self, fs: FileSystem, store_root: str, manifest: Manifest) -> None:
        self._fs, self._folder, self._files = fs, _folder(store_root, manifest.run_id), manifest.files
        self._reading, self._name = Lock(), ""
        self._read: dict[int | None, list[DatasetPlan]] = {}

    def of(self, bucket: int) -> list[DatasetPlan]:
        """The plans of a bucket; empty if it has no work.

        Raises:
            CorruptError: if the file is not what was written.
            OSError: if it can't be read.
        """
        name = self._files.get(bucket)
        if name is None:
            return []
        with self._reading:
            if name != self._name:
                self._read, self._name = self._by_bucket(f"{self._folder}/{name}"), name
            return self._read.get(bucket, [])

    def _by_bucket(self, path: str) -> dict[int | None, list[DatasetPlan]]:
        found: dict[int | None, list[DatasetPlan]] = {}
        for plan in decode_plan(check_table(self._fs.read(path), path), path):
            found.setdefault(bucket_of_work_unit(plan.work_units[0].work_unit_id), []).append(plan)
        return found


def put_manifest(fs: FileSystem, store_root: str, manifest: Manifest) -> None:
    """Puts the manifest, durably. From here on its datasets may be sealed."""
    folder = _folder(store_root, manifest.run_id)
    fs.make_folders(folder)
    fs.put_if_absent(f"{folder}/{MANIFEST}", encode_document(manifest))
    fs.sync([folder], store_root)


def read_manifest(fs: FileSystem, store_root: str, run_id: str) -> Manifest:
    """The plan of a run that counts.

    Raises:
        FileNotFoundError: if none was put.
        UnknownVersionError, CorruptError: if it is not what this version writes.
    """
    path = f"{_folder(store_root, run_id)}/{MANIFEST}"
    return decode_document(fs.read(path), Manifest, MANIFEST_VERSION, "a plan's manifest", path)


def _folder(store_root: str, run_id: str) -> str:
    return f"{store_root}/{PLANS}/{run_name(run_id)}"
