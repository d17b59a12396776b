"""A tree of staged files: D datasets with F files each, with equal names and bytes for equal seeds.

Names are those of the product: `<epoch>-<work unit>-<attempt>-<number>.parquet`, staged in `<epoch>/<bucket>/<work
unit>.<attempt>/` and published in the dataset's folder.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from xxhash import xxh3_64, xxh3_64_intdigest

from distcommit.core.commit_groups import bucket_of
from distcommit.core.dataset_urn import folder_of
from distcommit.core.work_units import StagedFile
from distcommit.protocol.paths.staging import attempt_folder

EPOCH = 2
"""The epoch of a new store's first run."""
SCHEMA = pa.schema([pa.field("number", pa.int64(), nullable=False)])
_SENTINEL = b"\x01\x23\x45\x67\x89\xab\xcd\xef"


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of a tree, and the seed of its names and bytes."""

    datasets: int
    files: int
    buckets: int = 64
    seed: int = 1

    @property
    def files_in_all(self) -> int:
        """Return the number of files of all datasets."""
        return self.datasets * self.files


@dataclass(frozen=True, slots=True)
class TreeDataset:
    """One dataset of a tree. `number` counts datasets; `staged` is relative to the staging root."""

    number: int
    urn: str
    bucket: int
    work_unit_id: str
    attempt: str
    folder: str
    staged: str

    def names(self, files: int) -> list[str]:
        """Return the names of the files, in the staged folder and in the dataset's."""
        stem = f"{EPOCH:010d}-{self.work_unit_id}-{self.attempt}"
        return [f"{stem}-{place:04d}.parquet" for place in range(1, files + 1)]


def dataset_urn(number: int) -> str:
    """Return the URN of the dataset with that number."""
    return f"orders.region-{number:06d}.v1"


def tree_datasets(shape: Shape) -> Iterator[TreeDataset]:
    """Return the datasets of a tree, with the planner's work unit ids."""
    chance = random.Random(shape.seed)
    ordinals = [count() for _ in range(shape.buckets)]
    for number in range(shape.datasets):
        urn = dataset_urn(number)
        bucket = bucket_of(urn, shape.buckets)
        unit, attempt = f"{bucket:05d}_{next(ordinals[bucket]):06d}", f"{chance.getrandbits(128):032x}"
        staged = attempt_folder(EPOCH, bucket, unit, attempt)
        yield TreeDataset(number, urn, bucket, unit, attempt, folder_of(urn), staged)


def file_bytes(number: int) -> bytes:
    """Return a Parquet file with one row that holds `number`; different numbers have different bytes."""
    return _template().replace(_SENTINEL, number.to_bytes(8, "little"))


def write_dataset(dataset: TreeDataset, shape: Shape, folder: str) -> list[StagedFile]:
    """Write a dataset's files into that folder and identify them."""
    os.makedirs(folder, exist_ok=True)
    written: list[StagedFile] = []
    for place, name in enumerate(dataset.names(shape.files)):
        data = file_bytes(dataset.number * shape.files + place)
        fd = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        os.write(fd, data)
        status = os.fstat(fd)
        os.close(fd)
        written.append(
            StagedFile(
                staged_path=f"{dataset.staged}/{name}",
                final_path=f"{dataset.folder}/{name}",
                size_bytes=len(data),
                checksum=xxh3_64_intdigest(data),
                file_id=status.st_ino,
                mtime_ns=status.st_mtime_ns,
                records=1,
            )
        )
    return written


def make_folders(shape: Shape, root: Path) -> None:
    """Create the datasets' folders in `root/output`, as after an earlier run; the caller syncs."""
    for dataset in tree_datasets(shape):
        os.makedirs(f"{root}/output/{dataset.folder}", exist_ok=True)


def write_staged(shape: Shape, root: Path) -> None:
    """Write the plain tree durably: all files staged below `root/staging`, nothing in `root/output`."""
    os.makedirs(root / "output", exist_ok=True)
    for dataset in tree_datasets(shape):
        write_dataset(dataset, shape, f"{root}/staging/{dataset.staged}")
    os.sync()


@cache
def expected_digest(shape: Shape, *, empty: bool = False) -> str:
    """Return the required digest of every arm's output; `empty`: of files without bytes."""
    names = {
        f"{dataset.folder}/{name}": dataset.number * shape.files + place
        for dataset in tree_datasets(shape)
        for place, name in enumerate(dataset.names(shape.files))
    }
    digest = xxh3_64()
    for name in sorted(names):
        digest.update(name.encode() + b"\0" + (b"" if empty else file_bytes(names[name])))
    return f"{len(names)} files, xxh3 {digest.hexdigest()}"


def digest_of(output: Path) -> str:
    """Return the digest of the data files below a folder: names and bytes, without files that readers treat as
    hidden."""
    names: list[str] = []
    for folder in sorted(os.listdir(output)):
        if not folder.startswith(("_", ".")):
            names += [f"{folder}/{name}" for name in os.listdir(output / folder) if not name.startswith(("_", "."))]
    digest = xxh3_64()
    for name in sorted(names):
        with open(f"{output}/{name}", "rb") as file:
            digest.update(name.encode() + b"\0" + file.read())
    return f"{len(names)} files, xxh3 {digest.hexdigest()}"


def files_left(staging: Path) -> int:
    """Return the number of files and folders below a staging root."""
    return sum(len(folders) + len(files) for _, folders, files in os.walk(staging))


@cache
def _template() -> bytes:
    """Return a file whose only value is the sentinel, in the page and in the statistics."""
    sink = pa.BufferOutputStream()
    value = int.from_bytes(_SENTINEL, "little", signed=True)
    table = pa.table([pa.array([value], pa.int64())], schema=SCHEMA)
    pq.write_table(table, sink, compression="none", use_dictionary=False, store_schema=False)
    return bytes(sink.getvalue().to_pybytes())
