"""Fork operators that send records by conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from distcommit.constructs.construct_settings import ForkOperatorSettings
from distcommit.constructs.expressions.condition import Condition
from distcommit.schemas.known_columns import Columns, named_schema


class ByCondition(ForkOperatorSettings):
    """Base of fork operators with conditions, which null does not meet.

    A missing column is an error, because its condition has no answer.

    Attributes:
        when: `{BRANCH: CONDITION}`.
    """

    when: dict[str, Condition] = Field(min_length=1)

    def named_branches(self) -> frozenset[str] | None:
        return frozenset(self.when)

    def accepts(self, branch: str, schema: pa.Schema) -> bool:
        """Return True; raises ConfigurationError if the schema does not suit the branch's condition."""
        if branch in self.when:
            self.when[branch].check_schema(schema, self.type)
        return True

    def may_accept(self, branch: str, columns: Columns) -> bool:
        condition = self.when.get(branch)
        existing = named_schema(columns, condition.columns(), self.type) if condition is not None else None
        return existing is None or self.accepts(branch, existing)

    def matching_rows(self, batch: pa.RecordBatch, branches: Sequence[str]) -> dict[str, pa.BooleanArray]:
        """Return the matching rows of each branch as a mask without nulls, in the order of `when`."""
        return {
            branch: condition.is_true(batch, self.type) for branch, condition in self.when.items() if branch in branches
        }


class FirstMatch(ByCondition):
    """Fork that sends each record to the first branch in `when` whose condition it meets."""

    type: Literal["first_match"] = "first_match"

    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        unmatched, chosen = pa.repeat(True, batch.num_rows), {}
        for branch, meets in self.matching_rows(batch, branches).items():
            chosen[branch] = pc.and_(unmatched, meets)
            unmatched = pc.and_not(unmatched, meets)
        return chosen


class EveryMatch(ByCondition):
    """Fork that sends each record to every branch in `when` whose condition it meets."""

    type: Literal["every_match"] = "every_match"

    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        return self.matching_rows(batch, branches)
