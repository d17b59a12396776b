"""Records that meet a condition, without a query engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from distcommit.constructs.columns import Columns, fields_of
from distcommit.constructs.conditions.arrow_conditions import Condition
from distcommit.constructs.settings import ConverterSettings
from distcommit.core.interfaces.constructs import Converted


class Filter(ConverterSettings, frozen=True, extra="forbid"):
    """Keeps the records that meet a condition, as a fork's branches have them; the others are filtered.

    Attributes:
        when: the condition. It is not met by a null that is compared. A column that the records do not have is an
            error.
    """

    type: Literal["filter"]
    when: Condition

    def convert_columns(self, columns: Columns) -> Columns:
        asked = fields_of(columns, sorted(self.when.columns()), self.type)
        if asked is not None:
            self.when.check_schema(asked, self.type)
        return columns

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        self.when.check_schema(batch.schema, self.type)
        rows = pc.indices_nonzero(pc.fill_null(self.when.answers(batch, self.type), False))
        yield Converted(batch if len(rows) == batch.num_rows else batch.take(rows), rows)


SETTINGS = Filter
