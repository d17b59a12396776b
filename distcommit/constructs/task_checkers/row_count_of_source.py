"""As many records as the source gave."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from pydantic import Field

from distcommit.constructs.settings import TaskCheckerSettings
from distcommit.core.interfaces.constructs import BranchCounts, TaskCheck


class RowCountOfSource(TaskCheckerSettings, TaskCheck, frozen=True, extra="forbid"):
    """Passes a work unit if what was written, rejected and filtered is together what was read, up to a fraction
    `tolerance` of it. For branches whose converters make no more than one record of one."""

    type: Literal["row_count_of_source"] = "row_count_of_source"
    tolerance: float = Field(default=0, ge=0, allow_inf_nan=False)

    def begin(self) -> TaskCheck:
        return self

    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        found = counts.written + counts.rejected + counts.filtered
        about = f" within {self.tolerance:.4g} of it" if self.tolerance else ""
        return abs(found - counts.read) <= Fraction(str(self.tolerance)) * counts.read, (
            f"expected {counts.read:,} records as read{about}, found {found:,}:"
            f" {counts.written:,} written, {counts.rejected:,} rejected, {counts.filtered:,} filtered"
        )


SETTINGS = RowCountOfSource
