"""Ranges that could not be read and are read again on their own, before newer rows."""

from __future__ import annotations

from distcommit.core.watermark import Position, Watermark, at_or_past
from distcommit.sources.watermark_column import PARTITION


def end_by_itself(again: Watermark | None, incarnation: str, low: Position, end: Position) -> Position:
    """Return the end of the next range of a watermark column: the end of the failed range, if it lies between `low`
    and `end`, else `end`.

    Args:
        again: the failed end, by `SourceState.to_read_again`.
        incarnation: incarnation of the column's positions.
        low: the stored position.
        end: end of the values that can be read.
    """
    failed = again.positions.get(PARTITION) if again is not None and again.incarnation in ("", incarnation) else None
    return failed if failed is not None and at_or_past(end, failed) and not at_or_past(low, failed) else end
