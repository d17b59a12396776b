"""Why a dataset can't be planned as it stands, with what lets it go on."""

from __future__ import annotations

import json
from typing import Any

from distcommit.core.errors import SourceError
from distcommit.core.watermark import Position
from distcommit.sources.watermark_column import PARTITION


class PlanError(SourceError):
    """A dataset that can't be planned as it stands. `remedy`: as of a `DatasetProblem`."""

    def __init__(self, what: str, *, remedy: tuple[str, ...] = (), **told: Any) -> None:
        super().__init__(what, **told)
        self.remedy = remedy


def went_back(urn: str, stored: Position, end: Position | None) -> PlanError:
    """The error for a watermark column that ends before what was read of it.

    Args:
        urn: the dataset.
        stored: where reading was to go on.
        end: where the column ends now; None if there is no value, at all or at or past `stored`.
    """
    there = "" if end is None else f", or to {json.dumps({PARTITION: end})} to go on where it ends now"
    return PlanError(
        "the watermark column ends before what was read already",
        remedy=("dataset set-watermark", urn, "null"),
        dataset=urn,
        expected=f"values up to {stored!r}",
        found="no value at or past it" if end is None else f"nothing past {end!r}",
        todo="if only its newest rows were deleted, it goes on by itself once there are newer ones. If it was"
        " truncated, restored or filled anew: set the dataset's watermark by hand (distcommit dataset set-watermark),"
        f" to null to begin anew (rows that are still there are published once more){there}",
    )
