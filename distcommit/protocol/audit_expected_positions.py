"""The positions that the audit expects after an operator has set a watermark (model: `tests/spec/set_model.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from distcommit.core.records.log_records import DatasetState, EarlierReading
from distcommit.core.watermark import Position, Watermark, at_or_past
from distcommit.core.work_units import SkippedRange, merge_ranges

Reach = tuple[dict[str, Position], tuple[SkippedRange, ...]]
"""First position of each partition, and the skipped ranges behind it."""


def reach_after_setting(state: DatasetState, watermark: Watermark, reason: str) -> Reach:
    """Return the first positions and skipped ranges of a dataset whose watermark is set to `watermark`.

    If a position moves forward, the range in between is skipped. If a position moves back, the range in between is read
    again and is no longer skipped. A position of another incarnation, or of a partition that had none, becomes a first
    position.

    Args:
        state: the dataset's state before.
        watermark: the new watermark with its incarnation.
        reason: the reason recorded for the skipped ranges.
    """
    before = state.reached
    if before is None or before.incarnation not in ("", watermark.incarnation):
        return dict(watermark.positions), state.skipped
    incarnation = watermark.incarnation
    origin, skipped = dict(state.origin), list(state.skipped)
    for partition, at in watermark.positions.items():
        was = before.positions.get(partition)
        if was is not None and at_or_past(at, was):
            if at != was:
                skipped.append(SkippedRange(partition, was, at, reason, incarnation=incarnation))
        elif was is not None and at_or_past(was, at):
            skipped = [part for skip in skipped for part in _part_before(skip, partition, at, incarnation)]
            first = origin.get(partition)
            origin |= {partition: at} if first is not None and at_or_past(first, at) else {}
        else:
            origin[partition] = at
    return origin, merge_ranges(skipped)


def _part_before(skip: SkippedRange, partition: str, at: Position, incarnation: str) -> Iterator[SkippedRange]:
    is_other = bool(skip.incarnation and incarnation) and skip.incarnation != incarnation
    if is_other or skip.partition != partition or at_or_past(at, skip.high):
        yield skip
    elif not at_or_past(skip.low, at):
        yield replace(skip, high=at)


def earlier_readings_after(state: DatasetState, watermark: Watermark | None) -> tuple[EarlierReading, ...]:
    """Return the newest range read of each earlier incarnation, once the watermark is set to `watermark`."""
    before = state.reached
    if before is None or watermark is None or before.incarnation in ("", watermark.incarnation):
        return state.earlier_readings
    other_readings = (
        reading for reading in state.earlier_readings if reading.watermark.incarnation != before.incarnation
    )
    return (*other_readings, EarlierReading(before, state.origin))


def reach_after_start(
    state: DatasetState, start: Mapping[str, Position], incarnation: str, ranges: tuple[SkippedRange, ...]
) -> Reach:
    """Return the first positions and skipped ranges of a dataset once a sequence is done.

    Args:
        state: the dataset's state before.
        start: the first positions of partitions that had none.
        incarnation: the incarnation of these positions.
        ranges: the ranges that the sequence skips.
    """
    if state.watermark is None and state.unset_watermark is not None:
        reason = "not read again: the watermark was set to null by hand, and the source begins later"
        counted_in = incarnation or state.unset_watermark.incarnation
        origin, skipped = reach_after_setting(state, Watermark(dict(start), counted_in), reason)
        return origin, merge_ranges((*skipped, *ranges))
    return {**start, **state.origin}, merge_ranges((*state.skipped, *ranges))
