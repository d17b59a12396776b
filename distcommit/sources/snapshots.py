"""Snapshots: the whole of a dataset, read anew by each run. Its position is how many were published."""

from __future__ import annotations

from collections.abc import Callable

from distcommit.core.errors import SourceError
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Position, Watermark
from distcommit.core.work import DatasetPlan, WorkUnit
from distcommit.sources.watermark_column import PARTITION

SNAPSHOT = "snapshot"
"""The incarnation of positions that count snapshots."""


def plan_snapshot(urn: str, state: DatasetState | None, size: int) -> DatasetPlan:
    """The plan of the next snapshot: one work unit, whatever there is.

    Raises:
        SourceError: if the stored position is no number of snapshots.
    """
    stored = stored_position(urn, state, SNAPSHOT, is_count)
    low = stored if isinstance(stored, int) else 0
    unit = WorkUnit("0", urn, Watermark({PARTITION: low}, SNAPSHOT), Watermark({PARTITION: low + 1}, SNAPSHOT), size)
    start = Watermark({PARTITION: low} if stored is None else {}, SNAPSHOT)
    return DatasetPlan(urn, state.watermark if state else None, start, (unit,))


def is_count(position: Position) -> bool:
    """Whether it can be a number of snapshots."""
    return type(position) is int and 0 <= position < 1 << 62


def stored_position(
    urn: str, state: DatasetState | None, incarnation: str, fits: Callable[[Position], bool]
) -> Position | None:
    """Where reading of a dataset with one partition goes on; None for one that was never read.

    Args:
        urn: the dataset.
        state: what is stored of it.
        incarnation: what its positions count in. A stored one that names nothing, as one set by hand, counts as it.
        fits: whether something can be a position of it.

    Raises:
        SourceError: if what is stored is no such position.
    """
    mark = state.watermark if state else None
    if mark is None or not mark.positions:
        return None
    position = mark.positions.get(PARTITION)
    known = position is not None and fits(position) and len(mark.positions) == 1
    if not known or mark.incarnation not in ("", incarnation):
        raise SourceError(
            "the stored position is not one of the watermark column",
            dataset=urn,
            expected=f"a position of {incarnation}",
            found=f"{mark.positions} of {mark.incarnation or 'an unnamed column'}",
            todo="name the column that the dataset was read by (or none, for snapshots), or set its watermark by hand"
            " (distcommit dataset set-watermark), to null to begin anew",
        )
    return position
