"""What could not be read, and is read again by itself before anything newer: where that ends."""

from __future__ import annotations

from collections.abc import Mapping

from distcommit.model.log_records import DatasetState
from distcommit.model.source import SourceState
from distcommit.model.watermark import Position, Watermark, at_or_past
from distcommit.sources.watermark_column import PARTITION


def to_read_again(states: Mapping[str, DatasetState], urn: str) -> Watermark | None:
    """As `SourceState.to_read_again`; None from states that are no run's."""
    return states.to_read_again(urn) if isinstance(states, SourceState) else None


def end_by_itself(again: Watermark | None, incarnation: str, low: Position, end: Position) -> Position:
    """Where a range of a watermark column that begins at `low` is to end: where that was to end which could not be
    read, if it lies between `low` and `end`, and else at `end`.

    Args:
        again: what `to_read_again` says of the dataset.
        incarnation: what positions of the column count in.
        low: the stored position.
        end: up to where there is something to read.
    """
    failed = again.positions.get(PARTITION) if again is not None and again.incarnation in ("", incarnation) else None
    return failed if failed is not None and at_or_past(end, failed) and not at_or_past(low, failed) else end
