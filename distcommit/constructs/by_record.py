"""Converters that take records one at a time, as dicts: for who prefers that to Arrow, at its price."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import pyarrow as pa

from distcommit.model.constructs import Converted, Converter
from distcommit.model.errors import RecordError

Record = dict[str, Any]


class RecordConverter(Converter):
    """A converter that is given one record at a time."""

    makes_several: ClassVar[bool] = True

    @abstractmethod
    def schema_of(self, schema: pa.Schema) -> pa.Schema:
        """The schema of what `convert_record` returns for records of that schema. Raises as `convert_schema`."""

    @abstractmethod
    def convert_record(self, record: Record) -> Record | Iterable[Record] | None:
        """What comes of a record: one, several, or None for nothing.

        Raises:
            RecordError, ValueError: with the reason for which it can't be converted.
        """

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        return self.schema_of(schema)

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        schema = self.schema_of(batch.schema)
        made: list[Record] = []
        rows: list[int] = []
        rejected: dict[int, str] = {}
        for row, record in enumerate(batch.to_pylist()):
            try:
                found = self.convert_record(record)
                new = [] if found is None else [found] if isinstance(found, dict) else list(found)
                pa.RecordBatch.from_pylist(new, schema=schema)
            except (RecordError, pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                rejected[row] = str(error)
                continue
            made += new
            rows += [row] * len(new)
        yield Converted(pa.RecordBatch.from_pylist(made, schema=schema), pa.array(rows, pa.int64()), rejected)
