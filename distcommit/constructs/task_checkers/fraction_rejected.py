"""Not too many records rejected."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from pydantic import Field

from distcommit.constructs.settings import TaskCheckerSettings
from distcommit.core.interfaces.constructs import BranchCounts, TaskCheck


class FractionRejected(TaskCheckerSettings, TaskCheck, frozen=True, extra="forbid"):
    """Passes a work unit of which at most a fraction `max` of the records read were rejected: 0.01 is one in a
    hundred."""

    type: Literal["fraction_rejected"] = "fraction_rejected"
    at_most: float = Field(ge=0, le=1, alias="max")

    def begin(self) -> TaskCheck:
        return self

    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        fraction = counts.rejected / counts.read if counts.read else 0.0
        return counts.rejected <= Fraction(str(self.at_most)) * counts.read, (
            f"expected at most {self.at_most:.4g} rejected, found {fraction:.4g}:"
            f" {counts.rejected:,} of {counts.read:,} records"
        )


SETTINGS = FractionRejected
