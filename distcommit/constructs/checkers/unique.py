"""The task checker `unique`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from distcommit.constructs.construct_settings import TaskCheckerSettings
from distcommit.constructs.expressions.comparable_columns import check_comparable, comparable_column
from distcommit.core.interfaces.constructs import BranchCounts, TaskCheck
from distcommit.schemas.evolution import is_narrower

_SHOWN = 60
"""Maximum length of a value in an example key, in characters."""


class Unique(TaskCheckerSettings):
    """Check that no two records of a work unit have the same key.

    As in SQL, a key that contains null is equal to no other key. The check needs memory for the keys of all records of
    the work unit.

    Attributes:
        columns: the columns of the key.
    """

    type: Literal["unique"] = "unique"
    columns: tuple[str, ...] = Field(min_length=1)

    def required_columns(self) -> Sequence[str]:
        return self.columns

    def check_schema(self, schema: pa.Schema) -> None:
        for column in self.columns:
            check_comparable(schema, column, self.type)

    def begin(self) -> TaskCheck:
        return UniqueCheck(self.columns)


class UniqueCheck(TaskCheck):
    """State of the check in one attempt: how often each key occurred."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._seen: list[pa.Table] = []

    def inspect(self, batch: pa.RecordBatch) -> None:
        columns = [comparable_column(batch, column, "unique") for column in self._columns]
        names = [str(number) for number in range(len(columns))]
        keys = pa.table(columns, names).filter(reduce(pc.and_, map(pc.is_valid, columns)))
        self._seen.append(keys.group_by(names).aggregate([([], "count_all")]))

    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        key = ", ".join(self._columns)
        if not self._seen:
            return True, f"expected each {key} once, found no records"
        names = [str(number) for number in range(len(self._columns))]
        types = [_widest([keys.schema.field(name).type for keys in self._seen]) for name in names]
        if None in types:
            return False, f"expected {key} of one type in all records, found several"
        schema = pa.schema([*zip(names, types, strict=True), ("count_all", pa.int64())])
        observed = pa.concat_tables([keys.select(schema.names).cast(schema) for keys in self._seen])
        totals = observed.group_by(names).aggregate([("count_all", "sum")])
        twice = totals.filter(pc.greater(totals["count_all_sum"], 1))
        if not twice.num_rows:
            return True, f"expected each {key} once, found {totals.num_rows:,} different ones"
        example = ", ".join(_shown(twice[name][0]) for name in names)
        return False, (
            f"expected each {key} once, found {twice.num_rows:,} of {totals.num_rows:,} more than once,"
            f" such as {example} ({twice['count_all_sum'][0]} times)"
        )


def _widest(types: Sequence[pa.DataType]) -> pa.DataType | None:
    widest = reduce(lambda existing, kind: kind if is_narrower(existing, kind) else existing, types)
    return widest if all(is_narrower(kind, widest) for kind in types) else None


def _shown(value: pa.Scalar) -> str:
    text = ascii(str(value))[1:-1]
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
