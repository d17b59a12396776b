"""The converter `filter`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from distcommit.constructs.construct_settings import ConverterSettings
from distcommit.constructs.expressions.condition import Condition
from distcommit.core.interfaces.constructs import Converted
from distcommit.core.work_units import WorkUnit
from distcommit.schemas.known_columns import Columns, named_schema


class Filter(ConverterSettings):
    """Converter that keeps the records that meet a condition. All other records are filtered.

    Attributes:
        when: the condition, in the form of a fork's. A comparison with null is not met. A missing column is an error.
    """

    type: Literal["filter"]
    when: Condition

    def convert_columns(self, columns: Columns) -> Columns:
        compared = named_schema(columns, sorted(self.when.columns()), self.type)
        if compared is not None:
            self.when.check_schema(compared, self.type)
        return columns

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        self.when.check_schema(batch.schema, self.type)
        rows = pc.indices_nonzero(self.when.is_true(batch, self.type))
        yield Converted(batch if len(rows) == batch.num_rows else batch.take(rows), rows)
