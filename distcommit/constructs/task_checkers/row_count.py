"""How many records are written."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from distcommit.constructs.settings import TaskCheckerSettings
from distcommit.core.interfaces.constructs import BranchCounts, TaskCheck


class RowCount(TaskCheckerSettings, TaskCheck, frozen=True, extra="forbid"):
    """Passes a work unit of which at least `min` and at most `max` records were written."""

    type: Literal["row_count"] = "row_count"
    at_least: int = Field(default=0, ge=0, alias="min")
    at_most: int | None = Field(default=None, ge=0, alias="max")

    @model_validator(mode="after")
    def _has_a_limit(self) -> RowCount:
        if not self.model_fields_set & {"at_least", "at_most"}:
            raise ValueError("a row_count has a min, a max, or both")
        if self.at_most is not None and self.at_most < self.at_least:
            raise ValueError("max is less than min")
        return self

    def begin(self) -> TaskCheck:
        return self

    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        most = "" if self.at_most is None else f" to {self.at_most:,}"
        passed = self.at_least <= counts.written and (self.at_most is None or counts.written <= self.at_most)
        return passed, f"expected {self.at_least:,}{most or ' or more'} records, found {counts.written:,}"


SETTINGS = RowCount
