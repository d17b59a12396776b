"""Extractor of lists of records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from distcommit.core.errors import SourceError
from distcommit.core.interfaces.source import Extraction, Extractor
from distcommit.core.watermark import Position, Watermark, as_offset, at_or_past
from distcommit.core.work_units import WorkUnit
from distcommit.sources.rest.pages import Pages, RecordList, RepeatDetector
from distcommit.sources.rest.responses import Answer, value_at
from distcommit.sources.rest.watermark_field import ROWS
from distcommit.sources.watermark_column import PARTITION, OrderedRows

if TYPE_CHECKING:
    from distcommit.sources.rest.client import RestClient

VALUE, PARTITION_COLUMN, OFFSET_COLUMN = "value", "_partition", "_offset"
RECORD_SCHEMA = pa.schema([(VALUE, pa.binary()), (PARTITION_COLUMN, pa.string()), (OFFSET_COLUMN, pa.int64())])
"""The record's JSON as received, its partition, and its number in the dataset."""


class RestExtractor(Extractor):
    """Extractor of one task attempt. Its work units share connections.

    Args:
        lists: the list of each dataset, by URN.
    """

    def __init__(self, client: RestClient, lists: dict[str, RecordList]) -> None:
        self.client, self.lists = client, lists

    def extract(self, unit: WorkUnit) -> Extraction:
        return RestExtraction(self.client, self.lists[unit.dataset_urn], unit)

    def close(self) -> None:
        self.client.close()


class RestExtraction(Extraction):
    """The records of a range. Records with one watermark value are in one batch: reading can stop after any batch."""

    def __init__(self, client: RestClient, of: RecordList, unit: WorkUnit) -> None:
        self._list, self._unit = of, unit
        self._low = unit.low.positions[PARTITION]
        self._high = unit.expected_high.positions.get(PARTITION)
        self._reached = unit.low
        self._pages = Pages(client, of, unit.dataset_urn)
        self._repeats = RepeatDetector(unit.dataset_urn, is_unique=of.watermark.unique)
        self._bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        field, pending = self._list.watermark, OrderedRows[bytes](self._low, None, self._out_of_order)
        for answer in self._answers(self._low):
            self._add(answer, pending)
            if self._is_behind(pending.newest):
                break
            end = field.end_of_read(pending.newest, is_last=False)
            if complete := pending.pop_below(end):
                yield self._batch(complete, end)
        else:
            self._check_complete(pending)
        end = field.end_of_read(pending.newest, is_last=True) if self._high is None else self._high
        if remainder := pending.pop_below(end):
            yield self._batch(remainder, end)
        if self._high is not None:
            self._reached = self._reached.advanced({PARTITION: self._high})

    def actual_high(self) -> Watermark:
        return self._reached

    def bytes_read(self) -> int:
        return self._bytes

    def _add(self, answer: Answer, buffered: OrderedRows[bytes]) -> None:
        positions = [self._position(record) for record in answer.records]
        below = 0 if len(buffered) else len([at for at in positions if at < self._low])  # type: ignore[operator]
        buffered.add(*self._repeats.dropped(answer.records[below:], positions[below:]))

    def _is_behind(self, position: Position) -> bool:
        return self._high is not None and at_or_past(position, self._high)

    def _answers(self, low: Position) -> Iterator[Answer]:
        return self._pages.read(self._list.watermark.range_params(low, self._high))

    def _check_complete(self, buffered: OrderedRows[bytes]) -> None:
        """If the range has a planned end, request the records from the newest one on again, and count them. Raises
        SourceError if there are more than were read, because pages were missing."""
        if self._high is None or not len(buffered):
            return
        count = 0
        for answer in self._answers(buffered.newest):
            reread = [self._position(record) for record in answer.records]
            count += len([at for at in reread if at_or_past(at, buffered.newest) and not self._is_behind(at)])
            if count > len(buffered) or (reread and self._is_behind(reread[-1])):
                break
        if count > len(buffered):
            raise SourceError(
                "the pages ended although the server has more records",
                id="REST_PAGING_INVALID",
                dataset=self._unit.dataset_urn,
                expected=f"nothing behind {buffered.newest!r} and below {self._high!r}",
                found=f"{count - len(buffered)} records in a request from there on",
                todo="correct source.paging; if the records were late, set a longer source.watermark.lookback",
            )

    def _position(self, record: bytes) -> Position:
        field = self._list.watermark
        try:
            value = value_at(record, field.field)
            position = field.position(value)
        except ValueError as error:
            raise SourceError(
                "a record has no position",
                id="WATERMARK_VALUE_INVALID",
                dataset=self._unit.dataset_urn,
                field=field.field,
                expected=f"{field.kind}",
                found=f"{error}; in {record[:200]!r}",
                todo="correct the record at its source, or name another field: source.watermark.field",
            ) from None
        if lookback_s := field.missing_lookback_s(value):
            raise SourceError(
                "a time is too coarse: later records of the same time would be lost",
                id="SOURCE_SETTINGS_INVALID",
                dataset=self._unit.dataset_urn,
                field=field.field,
                expected=f"a time with seconds, or a lookback of at least {lookback_s}",
                found=f"{value!r}, and source.watermark.lookback: {field.lookback}",
                todo=f"set source.watermark.lookback to {lookback_s}, or name another field",
            )
        return position

    def _batch(self, records: list[bytes], reached: Position) -> pa.RecordBatch:
        row = as_offset(self._reached.positions[ROWS])
        self._reached = self._reached.advanced({PARTITION: reached, ROWS: row + len(records)})
        self._bytes += sum(map(len, records))
        numbers = pa.array(np.arange(row, row + len(records)))
        columns = [pa.array(records, pa.binary()), pa.repeat(pa.scalar(ROWS), len(records)), numbers]
        return pa.record_batch(columns, schema=RECORD_SCHEMA)

    def _out_of_order(self, least: Position, result: Position) -> SourceError:
        return SourceError(
            "the server returned records in another order than that of their watermark field",
            id="SOURCE_ORDER_WRONG",
            dataset=self._unit.dataset_urn,
            field=self._list.watermark.field,
            expected=f"a value from {least!r} on",
            found=repr(result),
            todo="request ascending order by source.params; nothing of it is published",
        )
