"""Micro-batches of a streaming query as a source.

Spark hands over a micro-batch as a DataFrame. The tasks that compute it spool its rows, and tasks of a run read the
spool: only then is it known, from a plan, which datasets it has. A task that is started twice spools twice; what counts
is the attempt whose name Spark returns to the driver.
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
from pydantic import BaseModel, ConfigDict, Field

from distcommit.core.commit_groups import CommitGroups
from distcommit.core.errors import ConfigurationError, DistcommitError, SourceError, plain_text
from distcommit.core.interfaces.source import DatasetProblem, Extraction, Extractor, Source, SourceSettings, SourceState
from distcommit.core.ports import FileSystem, StagedWriter
from distcommit.core.records.fixed_settings import Pin
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.urn import check_urn
from distcommit.core.watermark import Position, Watermark
from distcommit.core.work import DatasetPlan, WorkUnit
from distcommit.decoding import from_json
from distcommit.protocol.paths.staging import SPOOL_INDEX, rows_name

_ATTEMPTS, _ROWS = "attempts", "rows"
"""Properties of a work unit: the attempts that have rows of its dataset, by ordinal, and how many rows in all."""

_NOBODY = -1


class MicroBatchSource(BaseModel, SourceSettings):
    """What a streaming query hands to `Job.on_batch`; a run by itself replays, and reads nothing.

    Attributes:
        type: `micro_batch`.
        dataset_column: the text column that names each row's dataset.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["micro_batch"]
    dataset_column: str = Field(min_length=1)

    @property
    def reads_whole(self) -> bool:
        return True

    @property
    def reads_again(self) -> bool:
        return False

    @property
    def batch_column(self) -> str:
        return self.dataset_column

    def pins(self) -> Mapping[str, Pin]:
        return {"dataset_column": Pin(self.dataset_column)}

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[DatasetPlan | DatasetProblem]:
        return iter(())

    def position_problems(self, datasets: Mapping[str, Mapping[str, Position]]) -> Iterator[str]:
        """Positions are numbers of micro-batches, by query."""
        for urn, positions in datasets.items():
            for query_id, number in positions.items():
                if type(number) is not int or number < 0:
                    yield f"{urn!r}: {number!r}, for query {query_id!r}, is no micro-batch's number"

    def open(self) -> Extractor:
        raise SourceError(
            "there is no micro-batch to read", todo="give Job.on_batch to a streaming query's foreachBatch"
        )


class SpoolIndex(msgspec.Struct, frozen=True):
    """How many rows of each dataset one attempt has spooled; and why others are not, by the text that they have where a
    dataset's name should be."""

    rows: dict[str, int]
    unnamed: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Spool:
    """A folder for one micro-batch, for one run: rows are in files by attempt and by the partition that owns them."""

    fs: FileSystem
    folder: str
    dataset_column: str
    buckets: int
    partitions: int
    groups: CommitGroups

    def owner_of(self, urn: str) -> int:
        """The Spark partition that owns the dataset's bucket."""
        return self.groups.planning_bucket(urn, self.buckets) % self.partitions

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Spools one partition of the micro-batch, and yields the attempt's name if it has rows (for `mapInArrow`)."""
        attempt = _SpoolingAttempt(self)
        for batch in batches:
            attempt.write(batch)
        if attempt.finish():
            yield pa.RecordBatch.from_pydict({"attempt": [attempt.name]})

    def index_of(self, attempt: str) -> SpoolIndex:
        """What an attempt has spooled."""
        return from_json(self.fs.read(f"{self.folder}/{attempt}/{SPOOL_INDEX}"), SpoolIndex)

    def path_of(self, attempt: str, owner: int) -> str:
        """The file of an attempt's rows for one owner: an Arrow stream, each batch in the order of its datasets."""
        return f"{self.folder}/{attempt}/{rows_name(owner)}"


class _SpoolingAttempt:
    """One attempt at one partition of a micro-batch. Files that nobody names in the end are removed with the spool."""

    def __init__(self, spool: Spool) -> None:
        self._spool, self.name = spool, uuid.uuid4().hex
        self._files: dict[int, StagedWriter] = {}
        self._rows: dict[str, int] = {}
        self._unnamed: dict[str, str] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        column = batch.column(self._spool.dataset_column)
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)) or column.null_count:
            raise ConfigurationError(
                "this column does not name each row's dataset",
                column=self._spool.dataset_column,
                expected="text in every row",
                found=f"{column.type}, with {column.null_count} nulls",
                todo="correct source.dataset_column, or the streaming DataFrame",
            )
        coded = column.dictionary_encode()
        stored, codes = coded.dictionary.cast(pa.binary()).to_pylist(), coded.indices.to_numpy(zero_copy_only=False)
        names = [name.decode(errors="surrogateescape") for name in stored]  # Spark does not look at what it calls text
        named = list(map(self._is_name, names))
        for name, count in zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True):
            if name not in self._unnamed:
                self._rows[name] = self._rows.get(name, 0) + count
        owners = np.array(
            [self._spool.owner_of(name) if known else _NOBODY for name, known in zip(names, named, strict=True)]
        )
        order = np.argsort(codes, kind="stable")
        owner_of_row = owners[codes[order]]
        for owner in sorted({*np.unique(owners).tolist()} - {_NOBODY}):
            rows = batch.take(pa.array(order[owner_of_row == owner]))
            self._file(owner, rows.schema).write(memoryview(rows.serialize()))

    def finish(self) -> bool:
        """Closes the files; False if there were no rows."""
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
    """One micro-batch of one streaming query, spooled. A dataset's position by query is the next micro-batch's number,
    so that one which was committed is not planned again."""

    spool: Spool
    attempts: tuple[str, ...]
    query_id: str
    batch_id: int

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[DatasetPlan | DatasetProblem]:
        found: dict[str, dict[int, int]] = {}
        unnamed: dict[str, str] = {}
        for ordinal, attempt in enumerate(self.attempts):
            index = self.spool.index_of(attempt)
            unnamed.update((name, error) for name, error in index.unnamed.items() if owned(name))
            for urn, rows in index.rows.items():
                if owned(urn):
                    found.setdefault(urn, {})[ordinal] = rows
        yield from (DatasetProblem(name, error) for name, error in unnamed.items())
        for urn, by_attempt in found.items():
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
            return DatasetProblem(urn, f"its position for query {self.query_id} is no micro-batch's number: {reached}")
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
    """Keeps what it has read of the spool until it is asked for: datasets of one owner share files."""

    batch: SpooledBatch
    _read: dict[tuple[int, int], dict[str, list[pa.RecordBatch]]] = field(default_factory=dict)

    def extract(self, unit: WorkUnit) -> Extraction:
        return _SpoolExtraction(self, unit)

    def close(self) -> None:
        self._read.clear()

    def rows(self, ordinal: int, urn: str) -> list[pa.RecordBatch]:
        """A dataset's rows of one attempt; they are not kept any longer."""
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
    """The datasets of a batch that is in their order."""
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
        """The whole micro-batch; there is no position inside of it.

        Raises:
            SourceError: if not all of its rows were read.
        """
        if self._rows != (expected := int(self._unit.properties[_ROWS])):
            raise SourceError(
                "a micro-batch was not read as a whole",
                dataset=self._unit.dataset_urn,
                expected=f"{expected} rows",
                found=f"{self._rows} rows",
                todo="start the query again from its checkpoint",
            )
        return self._unit.expected_high

    def bytes_read(self) -> int:
        return self._bytes
