"""Fork operators that send records by conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from distcommit.constructs.conditions.condition import Condition
from distcommit.constructs.settings import ForkOperatorSettings
from distcommit.core.support.setting_errors import SettingError, rule
from distcommit.schemas.columns import Columns, named_schema


class ByCondition(ForkOperatorSettings):
    """Base of fork operators whose branches have conditions.

    A comparison with null is not met. A missing column is an error, because its condition has no answer.

    Attributes:
        when: `{BRANCH: CONDITION}`.
        otherwise: the branch of records that meet no condition. Without it they are rejected.
    """

    when: dict[str, Condition] = Field(min_length=1)
    otherwise: str | None = None

    @rule
    def _has_one_rule_for_each_branch(self) -> Iterator[SettingError]:
        if self.otherwise in self.when:
            yield SettingError("must not be a branch of when", "otherwise")

    def named_branches(self) -> frozenset[str] | None:
        return frozenset(self.when) | ({self.otherwise} if self.otherwise is not None else set())

    def accepts(self, branch: str, schema: pa.Schema) -> bool:
        """Return True.

        Raises:
            ConfigurationError: if the branch's condition can't be answered for such records.
        """
        if branch in self.when:
            self.when[branch].check_schema(schema, self.type)
        return True

    def may_accept(self, branch: str, columns: Columns) -> bool:
        condition = self.when.get(branch)
        existing = named_schema(columns, condition.columns(), self.type) if condition is not None else None
        return existing is None or self.accepts(branch, existing)

    def matching_rows(self, batch: pa.RecordBatch, branches: Sequence[str]) -> dict[str, pa.BooleanArray]:
        """Return by branch, in the order of `when`, the rows that meet its condition, as a mask without nulls."""
        return {
            branch: condition.is_true(batch, self.type) for branch, condition in self.when.items() if branch in branches
        }

    def with_otherwise(
        self, chosen: Mapping[str, pa.BooleanArray], unmatched: pa.BooleanArray, branches: Sequence[str]
    ) -> Mapping[str, pa.BooleanArray]:
        """Return the choice with the unmatched rows added to `otherwise`."""
        if self.otherwise is None or self.otherwise not in branches:
            return chosen
        return {**chosen, self.otherwise: unmatched}


class FirstMatch(ByCondition):
    """Fork that sends each record to the first branch in `when` whose condition it meets."""

    type: Literal["first_match"] = "first_match"

    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        unmatched, chosen = pa.repeat(True, batch.num_rows), {}
        for branch, meets in self.matching_rows(batch, branches).items():
            chosen[branch] = pc.and_(unmatched, meets)
            unmatched = pc.and_not(unmatched, meets)
        return self.with_otherwise(chosen, unmatched, branches)


class EveryMatch(ByCondition):
    """Fork that sends each record to every branch in `when` whose condition it meets."""

    type: Literal["every_match"] = "every_match"

    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        chosen = self.matching_rows(batch, branches)
        unmatched = reduce(pc.and_not, chosen.values(), pa.repeat(True, batch.num_rows))
        return self.with_otherwise(chosen, unmatched, branches)
