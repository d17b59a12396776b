"""Task checkers of record counts."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Literal

from pydantic import Field

from distcommit.constructs.construct_settings import TaskCheckerSettings
from distcommit.core.interfaces.constructs import BranchCounts, TaskCheck
from distcommit.core.support.settings_model import SettingError, rule


class _CountChecker(TaskCheckerSettings, TaskCheck):
    """Base of task checkers that need only the final record counts."""

    def begin(self) -> TaskCheck:
        return self


class RowCount(_CountChecker):
    """Check how many records a work unit writes.

    Attributes:
        min: the least count that passes.
        max: the greatest count that passes.
    """

    type: Literal["row_count"] = "row_count"
    at_least: int = Field(default=0, ge=0, alias="min")
    at_most: int | None = Field(default=None, ge=0, alias="max")

    @rule
    def _has_limit(self) -> Iterator[SettingError]:
        if not self.model_fields_set & {"at_least", "at_most"}:
            yield SettingError("must have min, max, or both")
        if self.at_most is not None and self.at_most < self.at_least:
            yield SettingError(f"must not be less than min ({self.at_least})", "max")

    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        most = "" if self.at_most is None else f" to {self.at_most:,}"
        passed = self.at_least <= counts.written and (self.at_most is None or counts.written <= self.at_most)
        return passed, f"expected {self.at_least:,}{most or ' or more'} records, found {counts.written:,}"


class RowCountOfSource(_CountChecker):
    """Check that the records written, rejected and filtered add up to the records read.

    Only for branches whose converters make at most one record from each record.

    Attributes:
        tolerance: the deviation that passes, as a fraction of the records read.
    """

    type: Literal["row_count_of_source"] = "row_count_of_source"
    tolerance: float = Field(default=0, ge=0, allow_inf_nan=False)

    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        total = counts.written + counts.rejected + counts.filtered
        about = f" within {self.tolerance:.4g} of it" if self.tolerance else ""
        return abs(total - counts.read) <= Fraction(str(self.tolerance)) * counts.read, (
            f"expected {counts.read:,} records as read{about}, found {total:,}:"
            f" {counts.written:,} written, {counts.rejected:,} rejected, {counts.filtered:,} filtered"
        )


class FractionRejected(_CountChecker):
    """Check that few of the records read were rejected.

    Attributes:
        max: the greatest fraction that passes; 0.01 is one in a hundred.
    """

    type: Literal["fraction_rejected"] = "fraction_rejected"
    at_most: float = Field(ge=0, le=1, alias="max")

    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        fraction = counts.rejected / counts.read if counts.read else 0.0
        return counts.rejected <= Fraction(str(self.at_most)) * counts.read, (
            f"expected at most {self.at_most:.4g} rejected, found {fraction:.4g}:"
            f" {counts.rejected:,} of {counts.read:,} records"
        )
