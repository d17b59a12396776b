"""Plans of snapshots, each of which reads a whole dataset. Positions count published snapshots."""

from __future__ import annotations

from collections.abc import Callable

from distcommit.core.errors import SourceError
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Position, Watermark
from distcommit.core.work_units import DatasetPlan, WorkUnit
from distcommit.sources.watermark_column import PARTITION

SNAPSHOT = "snapshot"
"""Incarnation of positions that count snapshots."""


def plan_snapshot(urn: str, state: DatasetState | None, size: int) -> DatasetPlan:
    """Return the plan of the next snapshot. Raises SourceError if the stored position does not count snapshots."""
    stored = stored_position(urn, state, SNAPSHOT, is_count)
    low = stored if isinstance(stored, int) else 0
    unit = WorkUnit("0", urn, Watermark({PARTITION: low}, SNAPSHOT), Watermark({PARTITION: low + 1}, SNAPSHOT), size)
    start = Watermark({PARTITION: low} if stored is None else {}, SNAPSHOT)
    return DatasetPlan(urn, state.watermark if state else None, start, (unit,))


def is_count(position: Position) -> bool:
    return type(position) is int and 0 <= position < 1 << 62


def stored_position(
    urn: str, state: DatasetState | None, incarnation: str, fits: Callable[[Position], bool]
) -> Position | None:
    """Return the position of a dataset's only partition; None if it was never read.

    Args:
        incarnation: the required incarnation. A watermark that an operator set may have none.
        fits: returns whether a position is valid for the incarnation.

    Raises:
        SourceError: if incarnation, partition or position is not valid.
    """
    mark = state.watermark if state else None
    if mark is None or not mark.positions:
        return None
    position = mark.positions.get(PARTITION)
    is_known = position is not None and fits(position) and len(mark.positions) == 1
    if not is_known or mark.incarnation not in ("", incarnation):
        raise SourceError(
            "the stored position is not one of the watermark column",
            id="STORED_POSITION_FOREIGN",
            dataset=urn,
            expected=f"a position of {incarnation}",
            found=f"{mark.positions} of {mark.incarnation or 'an unnamed column'}",
            todo="set the watermark column that the dataset was read by (none for snapshots), or set its watermark"
            " (distcommit dataset set-watermark; null reads the dataset again from the start)",
        )
    return position
