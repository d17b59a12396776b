"""Fork operators whose branches have conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from distcommit.constructs.columns import Columns, fields_of
from distcommit.constructs.conditions.arrow_conditions import Condition
from distcommit.constructs.settings import ForkOperatorSettings


class ByCondition(ForkOperatorSettings, frozen=True, extra="forbid"):
    """A fork operator whose branches have conditions: `when: {BRANCH: CONDITION, ...}`, and `otherwise: BRANCH`.

    A record that meets none is rejected if there is no `otherwise`. A condition on a null is not met. A column that the
    records do not have is an error: whether it would be met is not guessed.
    """

    when: dict[str, Condition] = Field(min_length=1)
    otherwise: str | None = None

    @model_validator(mode="after")
    def _has_one_rule_a_branch(self) -> ByCondition:
        if self.otherwise in self.when:
            raise ValueError(f"{self.otherwise} has a condition, and is `otherwise` too")
        return self

    def named_branches(self) -> frozenset[str] | None:
        return frozenset(self.when) | ({self.otherwise} if self.otherwise is not None else set())

    def accepts(self, branch: str, schema: pa.Schema) -> bool:
        """Always.

        Raises:
            ConfigurationError: if the branch's condition can't be answered for such records.
        """
        if branch in self.when:
            self.when[branch].check_schema(schema, self.type)
        return True

    def may_accept(self, branch: str, columns: Columns) -> bool:
        condition = self.when.get(branch)
        asked = fields_of(columns, condition.columns(), self.type) if condition is not None else None
        return asked is None or self.accepts(branch, asked)

    def met(self, batch: pa.RecordBatch, branches: Sequence[str]) -> dict[str, pa.BooleanArray]:
        """By branch, in the order of `when`, by row whether its condition is met: without nulls."""
        return {
            branch: pc.fill_null(condition.answers(batch, self.type), False)
            for branch, condition in self.when.items()
            if branch in branches
        }

    def with_the_rest(
        self, chosen: Mapping[str, pa.BooleanArray], left: pa.BooleanArray, branches: Sequence[str]
    ) -> Mapping[str, pa.BooleanArray]:
        """The choice, where rows that are left go to `otherwise`."""
        if self.otherwise is None or self.otherwise not in branches:
            return chosen
        return {**chosen, self.otherwise: left}
