"""The effect of a watermark that an operator sets on what the audit expects: `tests/spec/set_model.py` is the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from distcommit.core.records.log_records import DatasetState, EarlierReading
from distcommit.core.watermark import Position, Watermark, at_or_past
from distcommit.core.work import SkippedRange, merged

Reach = tuple[dict[str, Position], tuple[SkippedRange, ...]]
"""Where each partition of a dataset begins, and the ranges that are skipped from there on."""


def reach_after(state: DatasetState, watermark: Watermark, why: str) -> Reach:
    """Return the beginnings and skipped ranges of a dataset whose watermark jumps to `watermark`.

    A position that moves forward skips the range between. One that moves back makes ranges behind it read again: they
    are skipped no more. Positions of another incarnation, or of a partition without one, begin there.

    Args:
        state: the dataset's, before.
        watermark: the new one, in the incarnation that it counts in.
        why: the reason of what is skipped.
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
                skipped.append(SkippedRange(partition, was, at, why, incarnation=incarnation))
        elif was is not None and at_or_past(was, at):
            skipped = [each for skip in skipped for each in _up_to(skip, partition, at, incarnation)]
            first = origin.get(partition)
            origin |= {partition: at} if first is not None and at_or_past(first, at) else {}
        else:
            origin[partition] = at
    return origin, merged(skipped)


def _up_to(skip: SkippedRange, partition: str, at: Position, incarnation: str) -> Iterator[SkippedRange]:
    """Yield the part of a skipped range that lies before a position of that partition and incarnation."""
    is_other = bool(skip.incarnation and incarnation) and skip.incarnation != incarnation
    if is_other or skip.partition != partition or at_or_past(at, skip.high):
        yield skip
    elif not at_or_past(skip.low, at):
        yield replace(skip, high=at)


def readings_after(state: DatasetState, watermark: Watermark | None) -> tuple[EarlierReading, ...]:
    """Return the incarnations that were read before, once the watermark is another one. The newest reading of each
    counts."""
    before = state.reached
    if before is None or watermark is None or before.incarnation in ("", watermark.incarnation):
        return state.earlier
    others = (each for each in state.earlier if each.watermark.incarnation != before.incarnation)
    return (*others, EarlierReading(before, state.origin))


def reach_after_start(
    state: DatasetState, start: Mapping[str, Position], incarnation: str, ranges: tuple[SkippedRange, ...]
) -> Reach:
    """Return the beginnings and skipped ranges of a dataset once a sequence is done.

    Args:
        state: the dataset's, before.
        start: where its sequence began partitions that had no position.
        incarnation: what these positions count in.
        ranges: those that the sequence skips.
    """
    if state.watermark is None and state.forgotten is not None:
        why = "not read again: the watermark was set to null by hand, and the source begins later"
        counted_in = incarnation or state.forgotten.incarnation
        origin, skipped = reach_after(state, Watermark(dict(start), counted_in), why)
        return origin, merged((*skipped, *ranges))
    return {**start, **state.origin}, merged((*state.skipped, *ranges))
