"""Files of staged rows, written by Spark's tasks.

If Spark starts a task twice, both attempts write. Only the files of the attempt that Spark returns are read.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from distcommit.core.errors import SourceError
from distcommit.core.interfaces.file_system import FileSystem, StagedWriter
from distcommit.core.interfaces.source import DatasetProblem, Extraction, Extractor, Planned, Source, SourceState
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.support.counts import count_of
from distcommit.core.support.decoding import from_json
from distcommit.core.watermark import Position, Watermark, at_or_past
from distcommit.core.work_units import DatasetPlan, WorkUnit
from distcommit.protocol.paths.staging import SPOOL_INDEX, rows_name, spooled_dataset
from distcommit.sources.plan_error import PlanError, column_end_error
from distcommit.sources.plan_snapshot import plan_snapshot, stored_position
from distcommit.sources.watermark_column import (
    BEGINNINGS,
    PARTITION,
    Kind,
    end_of_retry,
    is_position,
    position_of,
    time_at,
)

__all__ = ["FrameSpool", "StagedFrame", "StagedFrames", "StagedPart", "end_of", "stored_in"]

_FILE_BYTES = 64 << 20
_OF_READER = " of reader "
"""Between column and reader in an incarnation."""


class StagedPart(msgspec.Struct, frozen=True):
    """Rows that one attempt at a Spark task has staged.

    Attributes:
        attempt: the attempt's name.
        files: number of files.
        rows: number of rows.
        nulls: number of rows without a value in the watermark column.
        newest: greatest value of the watermark column; None for a snapshot, or if all rows have null.
    """

    attempt: str
    files: int
    rows: int
    nulls: int = 0
    newest: Position | None = None


class StagedFrame(msgspec.Struct, frozen=True):
    """The index of one dataset's staged rows, or the error.

    Attributes:
        parts: the staged rows by task attempt.
        column: the watermark column; empty for a snapshot.
        kind: type of the column.
        bound: stored position from which on Spark was asked for rows; None for all rows.
        end: end of the range that may be published; None if there is none.
        error: why nothing is staged; empty if rows are staged.
        remedy: command for an operator, as in `DatasetProblem.remedy`.
        reader: digest of the reader and its options; empty for a snapshot.
        greatest: with a transform, the greatest value of the watermark column among the rows that it is applied to.
    """

    parts: tuple[StagedPart, ...] = ()
    column: str = ""
    kind: Kind = Kind.INTEGER
    bound: Position | None = None
    end: Position | None = None
    error: str = ""
    remedy: tuple[str, ...] = ()
    reader: str = ""
    greatest: Position | None = None

    @property
    def counted(self) -> str:
        return f"{self.column}:{self.kind}"

    @property
    def incarnation(self) -> str:
        return f"{self.counted}{_OF_READER}{self.reader}" if self.reader else self.counted

    @property
    def newest(self) -> Position | None:
        """The greatest watermark value before a transform, or None."""
        if self.greatest is not None:
            return self.greatest
        return max((part.newest for part in self.parts if part.newest is not None), default=None)

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)


def end_of(kind: Kind, parts: Iterable[StagedPart], lookback: int, before: Position | None) -> Position | None:
    """Return the end of the range that may be published; None if there are no values.

    The end is the lower one of the greatest value and `before`, less `lookback`. It is exclusive, because more rows
    with the greatest value may follow.

    Args:
        lookback: seconds for times, a number for integers.
        before: upper limit of the end, determined before Spark reads: the present second for times, the greatest value
            for integers. Spark's tasks read at different moments: one may return a row, another miss an earlier one.
    """
    newest = [part.newest for part in parts if part.newest is not None]
    if not newest or before is None:
        return None
    if isinstance(before, int):
        greatest = min(before, max(position for position in newest if isinstance(position, int)))
        return max(greatest - lookback, -(1 << 63))
    greatest_time, present = time_at(max(map(str, newest))), time_at(before).replace(microsecond=0)
    return position_of(Kind.TIME, min(greatest_time, present) - timedelta(seconds=lookback))


@dataclass(frozen=True, slots=True)
class FrameSpool:
    """Function that stages one partition of a DataFrame, and yields its `StagedPart` (for `mapInArrow`).

    Attributes:
        fs: the file system.
        folder: the dataset's staging folder.
        column: the watermark column; empty for a snapshot.
        kind: type of the column.
    """

    fs: FileSystem
    folder: str
    column: str
    kind: Kind

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt = _Attempt(self)
        for batch in batches:
            attempt.write(batch)
        if part := attempt.finish():
            yield pa.RecordBatch.from_pydict({"part": [msgspec.json.encode(part).decode()]})


class _Attempt:
    def __init__(self, spool: FrameSpool) -> None:
        self._spool, self._name = spool, uuid.uuid4().hex
        self._file: StagedWriter | None = None
        self._files = self._rows = self._nulls = 0
        self._newest: Position | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if self._spool.column:
            self._update_newest(batch.column(self._spool.column))
        if self._file is None:
            self._file = self._spool.fs.create(f"{self._spool.folder}/{rows_name(self._files, self._name)}")
            self._file.write(memoryview(batch.schema.serialize()))
            self._files += 1
        self._file.write(memoryview(batch.serialize()))
        self._rows += batch.num_rows
        if self._file.size_bytes >= _FILE_BYTES:
            self._close()

    def finish(self) -> StagedPart | None:
        self._close()
        return StagedPart(self._name, self._files, self._rows, self._nulls, self._newest) if self._rows else None

    def _update_newest(self, column: pa.Array) -> None:
        self._nulls += column.null_count
        if column.null_count == len(column):
            return
        try:
            position = position_of(self._spool.kind, pc.max(column).as_py())
        except (ValueError, OverflowError) as error:  # such as a year beyond 9999
            raise SourceError(
                f"a value of the watermark column can't be a position of kind {self._spool.kind}",
                id="WATERMARK_VALUE_INVALID",
                column=self._spool.column,
                found=str(error),
                todo="correct the row, exclude it with the reader's options, or set another watermark column",
            ) from error
        if self._newest is None or at_or_past(position, self._newest):
            self._newest = position

    def _close(self) -> None:
        if self._file is not None:
            self._file.close_file(sync=False)
            self._file = None


@dataclass(frozen=True, slots=True)
class StagedFrames(Source):
    """The source of all staged datasets of a job. Each dataset is one work unit.

    Attributes:
        fs: the file system.
        folder: the staging folder.
        datasets: URNs of the datasets.
    """

    fs: FileSystem
    folder: str
    datasets: tuple[str, ...]

    def folder_of(self, urn: str) -> str:
        return f"{self.folder}/{spooled_dataset(self.datasets.index(urn))}"

    def put(self, urn: str, frame: StagedFrame) -> None:
        index = self.fs.create(f"{self.folder_of(urn)}/{SPOOL_INDEX}")
        index.write(msgspec.json.encode(frame))
        index.close_file(sync=False)

    def get(self, urn: str) -> StagedFrame:
        return from_json(self.fs.read(f"{self.folder_of(urn)}/{SPOOL_INDEX}"), StagedFrame)

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        for urn in filter(owned, self.datasets):
            state = states.get(urn)
            if state is None or state.status is DatasetStatus.IDLE:
                try:
                    yield from self._plan(urn, state, states.to_read_again(urn))
                except SourceError as error:
                    yield DatasetProblem(urn, str(error), error.remedy if isinstance(error, PlanError) else ())

    def open(self) -> Extractor:
        return _FrameExtractor(self)

    def _plan(self, urn: str, state: DatasetState | None, retried_end: Watermark | None) -> Iterator[Planned]:
        frame = self.get(urn)
        if frame.error:
            yield DatasetProblem(urn, frame.error, frame.remedy)
        elif not frame.column:
            yield plan_snapshot(urn, state, frame.rows)
        else:
            if nulls := sum(part.nulls for part in frame.parts):
                yield DatasetProblem(urn, str(_without_value(urn, frame, nulls)))
            if planned := _plan_range(urn, frame, state, retried_end):
                yield planned


def _plan_range(
    urn: str, frame: StagedFrame, state: DatasetState | None, retried_end: Watermark | None
) -> DatasetPlan | None:
    stored = stored_in(urn, frame, state)
    if frame.bound is not None and (stored is None or not at_or_past(stored, frame.bound)):
        raise SourceError(
            "the dataset's watermark went back while Spark was reading",
            id="SOURCE_READ_INCOMPLETE",
            dataset=urn,
            expected=f"{frame.bound!r} or later",
            found=repr(stored),
        )
    newest, beginning = frame.newest, BEGINNINGS[frame.kind]
    if stored not in (None, beginning) and (newest is None or not at_or_past(newest, stored)):
        raise column_end_error(urn, stored, newest)
    low = beginning if stored is None else stored
    if frame.end is None or at_or_past(low, frame.end):
        return None
    end = end_of_retry(retried_end, frame.incarnation, low, frame.end)
    low_mark, high_mark = (Watermark({PARTITION: position}, frame.incarnation) for position in (low, end))
    start = Watermark({PARTITION: low} if stored is None else {}, frame.incarnation)
    unit = WorkUnit("0", urn, low_mark, high_mark, frame.rows)
    return DatasetPlan(urn, state.watermark if state else None, start, (unit,))


def stored_in(urn: str, frame: StagedFrame, state: DatasetState | None) -> Position | None:
    """Return the stored position, or None. A position that an operator set may have no digest.

    Raises:
        PlanError: if reader or options have changed.
        SourceError: if the position is not valid.
    """
    mark = state.watermark if state else None
    counted, _, reader = (mark.incarnation if mark else "").partition(_OF_READER)
    if mark is not None and counted == frame.counted and reader and reader != frame.reader:
        positions = json.dumps(mark.positions)
        raise PlanError(
            "rows below the watermark would be left out, as the dataset was read by another reader or other options",
            id="SOURCE_READER_CHANGED",
            remedy=("dataset set-watermark", urn, positions),
            dataset=urn,
            expected=f"format and options of reader {reader}",
            found=f"format and options of reader {frame.reader}",
            todo="restore them, or set the watermark (distcommit dataset set-watermark)."
            f" Its present value, {positions}, continues with the current ones; null reads all rows again",
        )
    existing = frame.incarnation if reader else frame.counted
    return stored_position(urn, state, existing, lambda position: is_position(frame.kind, position))


def _without_value(urn: str, frame: StagedFrame, nulls: int) -> SourceError:
    return SourceError(
        "rows without a value in the watermark column are never read",
        id="WATERMARK_VALUE_INVALID",
        dataset=urn,
        column=frame.column,
        found=f"NULL in {count_of(nulls, 'row')}",
        todo="set a value, or exclude the rows with the reader's options",
    )


@dataclass(slots=True)
class _FrameExtractor(Extractor):
    staged: StagedFrames

    def extract(self, unit: WorkUnit) -> Extraction:
        return _FrameExtraction(self.staged, unit)

    def close(self) -> None:
        """Do nothing: no file is open between work units."""


class _FrameExtraction(Extraction):
    """A dataset's staged rows in the range, unordered and without positions between them."""

    def __init__(self, staged: StagedFrames, unit: WorkUnit) -> None:
        self._staged, self._unit = staged, unit
        self._bytes = 0
        self._is_whole = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        frame, rows = self._staged.get(self._unit.dataset_urn), 0
        folder = self._staged.folder_of(self._unit.dataset_urn)
        for path in _paths(folder, frame.parts):
            with pa.ipc.open_stream(self._staged.fs.read(path)) as stream:
                for batch in stream:
                    rows += batch.num_rows
                    within = self._within(batch, frame) if frame.column else batch
                    self._bytes += within.nbytes
                    if within.num_rows:
                        yield within
        self._is_whole = rows == frame.rows

    def actual_high(self) -> Watermark:
        """Return the end; raises SourceError if not all rows were read."""
        if not self._is_whole:
            raise SourceError(
                "the rows that Spark staged were not read as a whole: the staging folder may have been emptied",
                id="SOURCE_READ_INCOMPLETE",
                dataset=self._unit.dataset_urn,
            )
        return self._unit.expected_high

    def bytes_read(self) -> int:
        return self._bytes

    def _within(self, batch: pa.RecordBatch, frame: StagedFrame) -> pa.RecordBatch:
        column = batch.column(frame.column)
        low, high = self._unit.low.positions[PARTITION], self._unit.expected_high.positions[PARTITION]
        above = pc.greater_equal(column, _scalar(low, column.type))
        return batch.filter(pc.and_(above, pc.less(column, _scalar(high, column.type))))


def _paths(folder: str, parts: Sequence[StagedPart]) -> Iterator[str]:
    for part in parts:
        yield from (f"{folder}/{rows_name(number, part.attempt)}" for number in range(part.files))


def _scalar(position: Position, column: pa.DataType) -> pa.Scalar:
    if isinstance(position, int):
        return pa.scalar(position, pa.int64())
    time = time_at(position)
    return pa.scalar(time if column.tz else time.replace(tzinfo=None), column)
