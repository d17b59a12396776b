"""Files with one micro-batch's rows, the *spool*. From its index a run learns the datasets of the micro-batch.

If Spark starts a task twice, both attempts write. Only the files of the attempt that Spark returns are read.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa

from distcommit.core.commit_groups import CommitGroups
from distcommit.core.dataset_urn import check_urn
from distcommit.core.errors import ConfigurationError, DistcommitError, plain_text
from distcommit.core.interfaces.file_system import FileSystem, StagedWriter
from distcommit.core.support.decoding import from_json
from distcommit.protocol.paths.staging import SPOOL_INDEX, rows_name

_NO_OWNER = -1


class SpoolIndex(msgspec.Struct, frozen=True):
    """Index of one task attempt's rows.

    Attributes:
        rows: number of rows by dataset.
        unnamed: errors by invalid dataset name. Rows with such a name are not spooled.
    """

    rows: dict[str, int]
    unnamed: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Spool:
    """The folder of one micro-batch's rows, and the function that writes them (for Spark's `mapInArrow`).

    Each task attempt writes one file for each Spark partition of the run that plans datasets of its rows.

    Attributes:
        fs: the file system.
        folder: the spool's folder.
        dataset_column: text column with each row's dataset.
        buckets: the job's number of buckets.
        partitions: number of Spark partitions of the run.
        groups: commit groups of datasets.
    """

    fs: FileSystem
    folder: str
    dataset_column: str
    buckets: int
    partitions: int
    groups: CommitGroups

    def owner_of(self, urn: str) -> int:
        """Return the run's Spark partition that plans the dataset."""
        return self.groups.planning_bucket(urn, self.buckets) % self.partitions

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write one partition's rows, and yield the attempt's name if there are any. Raises ConfigurationError if the
        dataset column is not text or has nulls."""
        attempt = _SpoolingAttempt(self)
        for batch in batches:
            attempt.write(batch)
        if attempt.finish():
            yield pa.RecordBatch.from_pydict({"attempt": [attempt.name]})

    def index_of(self, attempt: str) -> SpoolIndex:
        return from_json(self.fs.read(f"{self.folder}/{attempt}/{SPOOL_INDEX}"), SpoolIndex)

    def path_of(self, attempt: str, owner: int) -> str:
        """Return the path of an owner's rows, an Arrow stream with each batch grouped by dataset."""
        return f"{self.folder}/{attempt}/{rows_name(owner)}"


class _SpoolingAttempt:
    def __init__(self, spool: Spool) -> None:
        self._spool, self.name = spool, uuid.uuid4().hex
        self._files: dict[int, StagedWriter] = {}
        self._rows: dict[str, int] = {}
        self._unnamed: dict[str, str] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        column = batch.column(self._spool.dataset_column)
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)) or column.null_count:
            raise ConfigurationError(
                "the dataset column does not name each row's dataset",
                id="MICRO_BATCH_INVALID",
                column=self._spool.dataset_column,
                expected="text in every row",
                found=f"type {column.type} with {column.null_count} nulls",
                todo="correct source.dataset_column, or the streaming DataFrame",
            )
        coded = column.dictionary_encode()
        stored, codes = coded.dictionary.cast(pa.binary()).to_pylist(), coded.indices.to_numpy(zero_copy_only=False)
        names = [name.decode(errors="surrogateescape") for name in stored]  # Spark does not validate text
        is_valid = list(map(self._is_name, names))
        for name, count in zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True):
            if name not in self._unnamed:
                self._rows[name] = self._rows.get(name, 0) + count
        owners = np.array(
            [self._spool.owner_of(name) if valid else _NO_OWNER for name, valid in zip(names, is_valid, strict=True)]
        )
        order = np.argsort(codes, kind="stable")
        owner_of_row = owners[codes[order]]
        for owner in sorted({*np.unique(owners).tolist()} - {_NO_OWNER}):
            rows = batch.take(pa.array(order[owner_of_row == owner]))
            self._file(owner, rows.schema).write(memoryview(rows.serialize()))

    def finish(self) -> bool:
        for file in self._files.values():
            file.close_file(sync=False)
        if not (self._files or self._unnamed):
            return False
        self._spool.fs.make_folder(f"{self._spool.folder}/{self.name}")
        index = self._spool.fs.create(f"{self._spool.folder}/{self.name}/{SPOOL_INDEX}")
        unnamed = {plain_text(name, 300): error for name, error in self._unnamed.items()}
        index.write(msgspec.json.encode(SpoolIndex(self._rows, unnamed)))
        index.close_file(sync=False)
        return True

    def _is_name(self, name: str) -> bool:
        try:
            check_urn(name)
        except DistcommitError as error:
            self._unnamed[name] = plain_text(error)
            return False
        return True

    def _file(self, owner: int, schema: pa.Schema) -> StagedWriter:
        if not self._files:
            self._spool.fs.make_folder(f"{self._spool.folder}/{self.name}")
        if owner not in self._files:
            self._files[owner] = self._spool.fs.create(self._spool.path_of(self.name, owner))
            self._files[owner].write(memoryview(schema.serialize()))
        return self._files[owner]
