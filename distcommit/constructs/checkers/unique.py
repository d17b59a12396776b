"""Keys that are there once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from distcommit.constructs.conditions.literals import check_comparable, comparable_column
from distcommit.constructs.schemas.declared import is_narrower
from distcommit.constructs.settings import TaskCheckerSettings
from distcommit.core.interfaces.constructs import BranchCounts, TaskCheck

_SHOWN = 60
"""Characters of a key, in details."""


class Unique(TaskCheckerSettings, frozen=True, extra="forbid"):
    """Passes a work unit in which no two records have the same values in `columns`. A record with a null in one of them
    is like no other, as in SQL. Costs the memory of these columns of all records of the work unit."""

    type: Literal["unique"] = "unique"
    columns: tuple[str, ...] = Field(min_length=1)

    def asked_columns(self) -> Sequence[str]:
        return self.columns

    def check_schema(self, schema: pa.Schema) -> None:
        for column in self.columns:
            check_comparable(schema, column, self.type)

    def begin(self) -> TaskCheck:
        return UniqueCheck(self.columns)


class UniqueCheck(TaskCheck):
    """The keys of one attempt, and how often each was there."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._seen: list[pa.Table] = []

    def see(self, batch: pa.RecordBatch) -> None:
        """Takes note of a batch's keys.

        Raises:
            ConfigurationError: if a column is missing, or nested.
        """
        found = [comparable_column(batch, column, "unique") for column in self._columns]
        names = [str(number) for number in range(len(found))]
        keys = pa.table(found, names).filter(reduce(pc.and_, map(pc.is_valid, found)))
        self._seen.append(keys.group_by(names).aggregate([([], "count_all")]))

    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        what = ", ".join(self._columns)
        if not self._seen:
            return True, f"expected each {what} once, found no records"
        names = [str(number) for number in range(len(self._columns))]
        types = [_widest([keys.schema.field(name).type for keys in self._seen]) for name in names]
        if None in types:
            return False, f"expected {what} of one type in all records, found several"
        schema = pa.schema([*zip(names, types, strict=True), ("count_all", pa.int64())])
        seen = pa.concat_tables([keys.select(schema.names).cast(schema) for keys in self._seen])
        totals = seen.group_by(names).aggregate([("count_all", "sum")])
        twice = totals.filter(pc.greater(totals["count_all_sum"], 1))
        if not twice.num_rows:
            return True, f"expected each {what} once, found {totals.num_rows:,} different ones"
        example = ", ".join(_shown(twice[name][0]) for name in names)
        return False, (
            f"expected each {what} once, found {twice.num_rows:,} of {totals.num_rows:,} more than once,"
            f" such as {example} ({twice['count_all_sum'][0]} times)"
        )


def _widest(types: Sequence[pa.DataType]) -> pa.DataType | None:
    """The one that has all values of the others; None if there is none."""
    widest = reduce(lambda known, kind: kind if is_narrower(known, kind) else known, types)
    return widest if all(is_narrower(kind, widest) for kind in types) else None


def _shown(value: pa.Scalar) -> str:
    text = ascii(str(value))[1:-1]
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
