"""The plan of a run: Parquet tables, which become valid with the manifest, which is put last."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from threading import Lock

import msgspec

from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.work_units import DatasetPlan
from distcommit.protocol.paths.shared_names import bucket_of_work_unit
from distcommit.protocol.paths.store import MANIFEST, PLANS, run_name
from distcommit.stores.state.checksummed_json import decode_document, encode_document
from distcommit.stores.state.plan_and_task_state_encoding import check_table, decode_plan, encode_plan, table_name

MANIFEST_VERSION = 1


class LentUnits(msgspec.Struct, frozen=True, array_like=True):
    """A range of a bucket's plan that is read by another partition than the bucket's owner.

    Attributes:
        partition: the partition that reads the work units whose start is in the range.
        bucket: the bucket.
        begin: sum of the loads of all work units before the range in the bucket's plan, without large work units.
        end: the same sum at the end of the range.
    """

    partition: int
    bucket: int
    begin: int
    end: int


class Manifest(msgspec.Struct, frozen=True):
    """The manifest of a plan: the valid file of each bucket, and the distribution of work units over tasks.

    Attributes:
        version: format version.
        run_id: the run's id.
        epoch: the run's epoch.
        files: file name by bucket, for buckets with work; buckets that were planned together share a file.
        large_units: for each of the first tasks, the (bucket, work unit id) pairs of the large work units that it
            reads.
        lent_ranges: ranges of a bucket's work units that another partition reads for the owner of the bucket. The owner
            reads all other work units of its buckets, except large ones.
    """

    version: int
    run_id: str
    epoch: int
    files: dict[int, str]
    large_units: tuple[tuple[tuple[int, str], ...], ...] = ()
    lent_ranges: tuple[LentUnits, ...] = ()


def write_plans(
    fs: FileSystem, store_root: str, run_id: str, plans: Mapping[int, Sequence[DatasetPlan]]
) -> dict[int, str]:
    """Write buckets' plans as one file, durable but valid only in a manifest; return its name by bucket.

    Work unit ids must contain their bucket.
    """
    folder = _folder(store_root, run_id)
    fs.make_folders(folder)
    data = encode_plan([plan for listed in plans.values() for plan in listed])
    name = table_name(uuid.uuid4().hex, data)
    fs.put_if_absent(f"{folder}/{name}", data)
    fs.sync([folder], store_root)
    return dict.fromkeys(plans, name)


class PlanReader:
    """The reader of buckets' plans. Caches the last file, because neighbouring buckets mostly share it. Thread-safe.

    Args:
        manifest: manifest of the plan.
    """

    def __init__(self, fs: FileSystem, store_root: str, manifest: Manifest) -> None:
        self._fs, self._folder, self._files = fs, _folder(store_root, manifest.run_id), manifest.files
        self._reading, self._name = Lock(), ""
        self._read: dict[int | None, list[DatasetPlan]] = {}

    def of(self, bucket: int) -> list[DatasetPlan]:
        """Return the plans of a bucket's datasets. Raise UnknownVersionError, CorruptError or OSError."""
        name = self._files.get(bucket)
        if name is None:
            return []
        with self._reading:
            if name != self._name:
                self._read, self._name = self._by_bucket(f"{self._folder}/{name}"), name
            return self._read.get(bucket, [])

    def _by_bucket(self, path: str) -> dict[int | None, list[DatasetPlan]]:
        plans: dict[int | None, list[DatasetPlan]] = {}
        for plan in decode_plan(check_table(self._fs.read(path), path), path):
            plans.setdefault(bucket_of_work_unit(plan.work_units[0].work_unit_id), []).append(plan)
        return plans


def put_manifest(fs: FileSystem, store_root: str, manifest: Manifest) -> None:
    """Put the manifest, durably, before its datasets are sealed."""
    folder = _folder(store_root, manifest.run_id)
    fs.make_folders(folder)
    fs.put_if_absent(f"{folder}/{MANIFEST}", encode_document(manifest))
    fs.sync([folder], store_root)


def read_manifest(fs: FileSystem, store_root: str, run_id: str) -> Manifest:
    """Return a run's manifest. Raise FileNotFoundError, UnknownVersionError or CorruptError."""
    path = f"{_folder(store_root, run_id)}/{MANIFEST}"
    return decode_document(fs.read(path), Manifest, MANIFEST_VERSION, "a plan's manifest", path)


def _folder(store_root: str, run_id: str) -> str:
    return f"{store_root}/{PLANS}/{run_name(run_id)}"
