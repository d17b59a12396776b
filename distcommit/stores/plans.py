"""The plan of a run: work units as Parquet tables by bucket, which count once one manifest is put, last."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec

from distcommit.model.ports import FileSystem
from distcommit.model.work import DatasetPlan
from distcommit.protocol.paths import MANIFEST, bucket_name, run_name
from distcommit.stores.documents import decode_document, encode_document
from distcommit.stores.tables import check_table, decode_plan, encode_plan, table_name

MANIFEST_VERSION = 2


class Lent(msgspec.Struct, frozen=True, array_like=True):
    """A part of a bucket's plan that `partition` reads instead of the bucket's owner: the work units that begin in it.
    `begin` and `end` (exclusive) are loads: how much is before them in the bucket's plan, large work units left out."""

    partition: int
    bucket: int
    begin: int
    end: int


class Manifest(msgspec.Struct, frozen=True):
    """The plan as a whole: which file counts for each bucket, and how work units are shared out.

    `files` has one name for each bucket that has work. Work units named in `large` are read by tasks of their own, task
    i reading `large[i]`, pairs of bucket and work unit id. All others are read by the partition that owns their bucket,
    or by the one that they were `lent` to.
    """

    version: int
    run_id: str
    epoch: int
    files: dict[int, str]
    large: tuple[tuple[tuple[int, str], ...], ...] = ()
    lent: tuple[Lent, ...] = ()


def write_bucket_plan(fs: FileSystem, store_root: str, run_id: str, bucket: int, plans: Sequence[DatasetPlan]) -> str:
    """Writes one bucket's plan under a name of its own, durably; it counts once a manifest names it."""
    folder = f"{_folder(store_root, run_id)}/{bucket_name(bucket)}"
    fs.make_folders(folder)
    data = encode_plan(plans)
    name = table_name(uuid.uuid4().hex, data)
    fs.put_if_absent(f"{folder}/{name}", data)
    fs.sync([folder], store_root)
    return name


def read_bucket_plan(fs: FileSystem, store_root: str, manifest: Manifest, bucket: int) -> list[DatasetPlan]:
    """The plans of a bucket; empty if it has no work.

    Raises:
        CorruptError: if the file is not what was written.
    """
    name = manifest.files.get(bucket)
    if name is None:
        return []
    path = f"{_folder(store_root, manifest.run_id)}/{bucket_name(bucket)}/{name}"
    return decode_plan(check_table(fs.read(path), path), path)


def put_manifest(fs: FileSystem, store_root: str, manifest: Manifest) -> None:
    """Publishes the plan, durably. From here on its datasets may be sealed."""
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
    return f"{store_root}/plans/{run_name(run_id)}"
