"""A spooled micro-batch as source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from distcommit.core.errors import SourceError
from distcommit.core.interfaces.source import DatasetProblem, Extraction, Extractor, Source, SourceState
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import DatasetPlan, WorkUnit
from distcommit.sources.micro_batch.spool import Spool

_ATTEMPTS, _ROWS = "attempts", "rows"
"""Work unit properties: ordinals of attempts with rows of the dataset, and number of rows."""


@dataclass(frozen=True, slots=True)
class SpooledBatch(Source):
    """The source of one spooled micro-batch.

    A dataset's position in a query is the number of the next micro-batch. So a committed micro-batch that Spark
    delivers again is not planned.

    Attributes:
        spool: the files with its rows.
        attempts: names of the task attempts whose files are read.
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
    """Extractor that reads each file once, and keeps its other datasets' rows in memory."""

    batch: SpooledBatch
    _read: dict[tuple[int, int], dict[str, list[pa.RecordBatch]]] = field(default_factory=dict)

    def extract(self, unit: WorkUnit) -> Extraction:
        return _SpoolExtraction(self, unit)

    def close(self) -> None:
        self._read.clear()

    def rows(self, ordinal: int, urn: str) -> list[pa.RecordBatch]:
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
        """Return the end; raises SourceError if not all rows were read."""
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
