"""Errors of datasets that can't be planned."""

from __future__ import annotations

import json
from typing import Any

from distcommit.core.errors import SourceError
from distcommit.core.watermark import Position
from distcommit.sources.watermark_column import PARTITION


class PlanError(SourceError):
    """Error of a dataset that can't be planned. `remedy` is a command, as in `DatasetProblem`."""

    id = "DATASET_NOT_PLANNED"

    remedy: tuple[str, ...] = ()

    def __init__(self, failure: str, *, remedy: tuple[str, ...] = (), **details: Any) -> None:
        super().__init__(failure, **details)
        self.remedy = remedy

    def __reduce__(self) -> tuple[Any, ...]:
        return *super().__reduce__(), {"remedy": self.remedy}


def column_end_error(urn: str, stored: Position, end: Position | None) -> PlanError:
    """Return the error of a column that ends below the stored position.

    Args:
        end: position where the column ends; None if there is no value at or after `stored`.
    """
    end_note = "" if end is None else f", or to {json.dumps({PARTITION: end})} to continue at its present end"
    return PlanError(
        "the watermark column ends before the stored position",
        id="WATERMARK_COLUMN_ENDED",
        remedy=("dataset set-watermark", urn, "null"),
        dataset=urn,
        expected=f"values up to {stored!r}",
        found="no value at or past it" if end is None else f"nothing past {end!r}",
        todo="if only its newest rows were deleted, wait: it continues once there are newer ones. If it was truncated,"
        " restored or filled again, set the dataset's watermark (distcommit dataset set-watermark): to null to read"
        f" it again from the start (its remaining rows are published again){end_note}",
    )
