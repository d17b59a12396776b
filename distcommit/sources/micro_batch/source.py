"""Micro-batches of a streaming query as a source.

Spark passes a micro-batch as a DataFrame. The tasks that compute it spool its rows, and tasks of a run read the spool,
because its datasets are known only once it was computed. A task that is started twice spools twice; only the attempt
whose name Spark returns to the driver counts.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import msgspec
import numpy as np
import pyarrow as pa
from pydantic import Field

from distcommit.core.commit_groups import CommitGroups
from distcommit.core.errors import ConfigurationError, DistcommitError, SourceError, plain_text
from distcommit.core.interfaces.source import DatasetProblem, Extraction, Extractor, Source, SourceSettings, SourceState
from distcommit.core.ports import FileSystem, StagedWriter
from distcommit.core.records.fixed_settings import FixedSetting
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.support.decoding import from_json
from distcommit.core.support.setting_errors import SettingsModel
from distcommit.core.urn import check_urn
from distcommit.core.watermark import Position, Watermark
from distcommit.core.work import DatasetPlan, WorkUnit
from distcommit.protocol.paths.staging import SPOOL_INDEX, rows_name

_ATTEMPTS, _ROWS = "attempts", "rows"
"""Work unit properties: the attempts, by ordinal, that have rows of its dataset, and its number of rows."""

_NO_OWNER = -1


class MicroBatchSource(SettingsModel, SourceSettings):
    """Micro-batches that a streaming query passes to `Job.on_batch`. A run outside a query only replays.

    Attributes:
        type: `micro_batch`.
        dataset_column: text column with each row's dataset.
    """

    type: Literal["micro_batch"]
    dataset_column: str = Field(min_length=1)

    @property
    def reads_whole_units(self) -> bool:
        return True

    @property
    def supports_retry_ranges(self) -> bool:
        return False

    @property
    def batch_column(self) -> str:
        return self.dataset_column

    def fixed_settings(self) -> Mapping[str, FixedSetting]:
        return {"dataset_column": FixedSetting(self.dataset_column)}

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[DatasetPlan | DatasetProblem]:
        return iter(())

    def position_problems(self, datasets: Mapping[str, Mapping[str, Position]]) -> Iterator[str]:
        """Check positions, which are numbers of micro-batches by query."""
        for urn, positions in datasets.items():
            for query_id, number in positions.items():
                if type(number) is not int or number < 0:
                    yield f"{urn!r}: position {number!r} of query {query_id!r} is not the number of a micro-batch"

    def open(self) -> Extractor:
        raise SourceError(
            "no micro-batch to read",
            id="SOURCE_READ_INCOMPLETE",
            todo="pass Job.on_batch to foreachBatch of a streaming query",
        )


class SpoolIndex(msgspec.Struct, frozen=True):
    """The contents of one attempt's spool.

    Attributes:
        rows: number of rows by dataset.
        unnamed: texts that are not valid dataset names, each with the error. Their rows are not spooled.
    """

    rows: dict[str, int]
    unnamed: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Spool:
    """A folder for one micro-batch and run. Rows are in files by attempt and owning partition.

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
        """Return the Spark partition that owns the dataset's bucket."""
        return self.groups.planning_bucket(urn, self.buckets) % self.partitions

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Spool one partition of the micro-batch. Yield the attempt's name if it has rows (for `mapInArrow`)."""
        attempt = _SpoolingAttempt(self)
        for batch in batches:
            attempt.write(batch)
        if attempt.finish():
            yield pa.RecordBatch.from_pydict({"attempt": [attempt.name]})

    def index_of(self, attempt: str) -> SpoolIndex:
        """Return the index of an attempt."""
        return from_json(self.fs.read(f"{self.folder}/{attempt}/{SPOOL_INDEX}"), SpoolIndex)

    def path_of(self, attempt: str, owner: int) -> str:
        """Return the file of an attempt's rows for one owner: an Arrow stream with each batch sorted by dataset."""
        return f"{self.folder}/{attempt}/{rows_name(owner)}"


class _SpoolingAttempt:
    """One attempt at one partition of a micro-batch. Files of attempts that do not count are removed with the spool."""

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
        """Close the files and write the index. Return False if there were no rows."""
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


@dataclass(frozen=True, slots=True)
class SpooledBatch(Source):
    """One spooled micro-batch of a query.

    A dataset's position by query is the number of the next micro-batch, so that a committed one is not planned again.

    Attributes:
        spool: its rows.
        attempts: names of the attempts that count.
        query_id: id of the streaming query.
        batch_id: number of the micro-batch.
    """

    spool: Spool
    attempts: tuple[str, ...]
    query_id: str
    batch_id: int

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[DatasetPlan | DatasetProblem]:
        rows_by_urn: dict[str, dict[int, int]] = {}
        unnamed: dict[str, str] = {}
        for ordinal, attempt in enumerate(self.attempts):
            index = self.spool.index_of(attempt)
            unnamed.update((name, error) for name, error in index.unnamed.items() if owned(name))
            for urn, rows in index.rows.items():
                if owned(urn):
                    rows_by_urn.setdefault(urn, {})[ordinal] = rows
        yield from (DatasetProblem(name, error) for name, error in unnamed.items())
        for urn, by_attempt in rows_by_urn.items():
            state = states.get(urn) or DatasetState(urn)
            if state.status is DatasetStatus.IDLE and (plan := self._plan(urn, by_attempt, state.watermark)):
                yield plan

    def open(self) -> Extractor:
        return _SpoolExtractor(self)

    def _plan(
        self, urn: str, by_attempt: Mapping[int, int], stored: Watermark | None
    ) -> DatasetPlan | DatasetProblem | None:
        positions = stored.positions if stored else {}
        incarnation = stored.incarnation if stored else ""
        reached = positions.get(self.query_id, 0)
        if not isinstance(reached, int):
            return DatasetProblem(
                urn, f"its position of query {self.query_id} is not the number of a micro-batch: {reached}"
            )
        if reached > self.batch_id:
            return None
        rows = sum(by_attempt.values())
        unit = WorkUnit(
            "",
            urn,
            Watermark({self.query_id: reached}, incarnation),
            Watermark({self.query_id: self.batch_id + 1}, incarnation),
            rows,
            {_ATTEMPTS: " ".join(map(str, by_attempt)), _ROWS: str(rows)},
        )
        start = Watermark({} if self.query_id in positions else {self.query_id: 0}, incarnation)
        return DatasetPlan(urn, stored, start, (unit,))


@dataclass(slots=True)
class _SpoolExtractor(Extractor):
    """Keeps rows that it has read until they are extracted, because datasets of one owner share files."""

    batch: SpooledBatch
    _read: dict[tuple[int, int], dict[str, list[pa.RecordBatch]]] = field(default_factory=dict)

    def extract(self, unit: WorkUnit) -> Extraction:
        return _SpoolExtraction(self, unit)

    def close(self) -> None:
        self._read.clear()

    def rows(self, ordinal: int, urn: str) -> list[pa.RecordBatch]:
        """Return and release a dataset's rows of one attempt."""
        spool = self.batch.spool
        owner = spool.owner_of(urn)
        if (ordinal, owner) not in self._read:
            data = spool.fs.read(spool.path_of(self.batch.attempts[ordinal], owner))
            by_dataset = self._read[ordinal, owner] = {}
            with pa.ipc.open_stream(data) as stream:
                for batch in stream:
                    for name, rows in _runs_of(batch, spool.dataset_column):
                        by_dataset.setdefault(name, []).append(rows)
        return self._read[ordinal, owner].pop(urn, [])


def _runs_of(batch: pa.RecordBatch, column: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the datasets of a batch that is sorted by dataset."""
    coded = batch.column(column).dictionary_encode()
    codes = coded.indices.to_numpy(zero_copy_only=False)
    begins = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    for begin, end in pairwise(begins):
        yield coded.dictionary[int(codes[begin])].as_py(), batch.slice(begin, end - begin)


class _SpoolExtraction(Extraction):
    def __init__(self, extractor: _SpoolExtractor, unit: WorkUnit) -> None:
        self._extractor, self._unit = extractor, unit
        self._rows = self._bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for ordinal in map(int, self._unit.properties[_ATTEMPTS].split()):
            for rows in self._extractor.rows(ordinal, self._unit.dataset_urn):
                self._rows += rows.num_rows
                self._bytes += rows.nbytes
                yield rows

    def actual_high(self) -> Watermark:
        """Return the position after the micro-batch. There is no position inside of it.

        Raises:
            SourceError: if not all of its rows were read.
        """
        if self._rows != (expected := int(self._unit.properties[_ROWS])):
            raise SourceError(
                "a micro-batch was not read as a whole",
                id="SOURCE_READ_INCOMPLETE",
                dataset=self._unit.dataset_urn,
                expected=f"{expected} rows",
                found=f"{self._rows} rows",
                todo="restart the query from its checkpoint",
            )
        return self._unit.expected_high

    def bytes_read(self) -> int:
        return self._bytes
