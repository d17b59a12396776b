"""Null values as delete markers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from distcommit.constructs.columns import Columns, field_of, unique_names
from distcommit.constructs.settings import ConverterSettings
from distcommit.core.interfaces.constructs import Converted


class Tombstones(ConverterSettings, frozen=True, extra="forbid"):
    """Adds a column that says whether `column` is null, which deletes what its key names: true or false, never null.

    It goes before a converter that drops `column`. All converters take null for a value like others and give null for
    it; so a tombstone comes through with its key and this column, unless a `where` filters it.

    Attributes:
        column: the one that is null in a tombstone.
        marker: the column that is added.
    """

    type: Literal["tombstones"]
    column: str = "value"
    marker: str = "is_deleted"

    def convert_columns(self, columns: Columns) -> Columns:
        field_of(columns, self.column, "tombstones")
        marker = pa.field(self.marker, pa.bool_(), nullable=False)
        return unique_names(columns.with_known([*columns.known, marker]), "tombstones")

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        schema = self.made_of(batch.schema)
        marked = pc.is_null(batch.column(self.column))
        yield Converted(pa.RecordBatch.from_arrays([*batch.columns, marked], schema=schema))


SETTINGS = Tombstones
