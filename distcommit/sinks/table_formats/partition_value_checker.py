"""A row checker of partition values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from distcommit.core.interfaces.constructs import RowChecker
from distcommit.schemas.storable_types import is_string

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""Folder name of a null partition value. Readers decode a text with this content as null."""


@dataclass(frozen=True, slots=True)
class PartitionValues(RowChecker):
    """Row checker that rejects texts that can't be partition values.

    Attributes:
        fields: the partition columns. Missing columns are skipped.
        is_possible: takes column and text; returns whether the column can have the text.
        rule: the requirement in a few words, for messages.
    """

    fields: tuple[str, ...]
    is_possible: Callable[[str, str], bool]
    rule: str

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        passes = pa.repeat(pa.scalar(True), batch.num_rows)
        for field in self.fields:
            index = batch.schema.get_field_index(field)
            if index < 0 or not _is_text(batch.schema.field(index).type):
                continue
            column = batch.column(index)
            values = column.dictionary if pa.types.is_dictionary(column.type) else pc.unique(column)
            texts = [value for value in values.to_pylist() if value is not None]
            wrong = [value for value in texts if not self.is_possible(field, value)]
            if wrong:
                plain = column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
                passes = pc.and_(passes, pc.invert(pc.is_in(plain, pa.array(wrong, plain.type))))
        return passes

    def describe(self) -> str:
        return f"{', '.join(self.fields)}: {self.rule}"


def _is_text(kind: pa.DataType) -> bool:
    return is_string(kind.value_type if pa.types.is_dictionary(kind) else kind)
