"""What could not be read, and is read again by itself before anything newer: where that ends."""

from __future__ import annotations

from distcommit.core.watermark import Position, Watermark, at_or_past
from distcommit.sources.watermark_column import PARTITION


def end_by_itself(again: Watermark | None, incarnation: str, low: Position, end: Position) -> Position:
    """Where a range of a watermark column that begins at `low` is to end: where that was to end which could not be
    read, if it lies between `low` and `end`, and else at `end`.

    Args:
        again: what `SourceState.to_read_again` says of the dataset.
        incarnation: what positions of the column count in.
        low: the stored position.
        end: up to where there is something to read.
    """
    failed = again.positions.get(PARTITION) if again is not None and again.incarnation in ("", incarnation) else None
    return failed if failed is not None and at_or_past(end, failed) and not at_or_past(low, failed) else end
