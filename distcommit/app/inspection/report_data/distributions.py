"""Percentiles, histograms and skew of numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

_UP_TO_MS = (50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000)


class Bin(msgspec.Struct, frozen=True):
    """A histogram bin.

    Attributes:
        up_to_ms: upper limit in milliseconds (inclusive); None for the last bin, which has no limit.
        count: number of values up to `up_to_ms` and above the previous bin.
    """

    up_to_ms: int | None
    count: int


class Spread(msgspec.Struct, frozen=True):
    """Percentiles and a histogram of durations.

    Attributes:
        count: number of durations.
        p50_ms: median in milliseconds.
        p90_ms: 90th percentile in milliseconds.
        p99_ms: 99th percentile in milliseconds.
        max_ms: longest duration in milliseconds.
        bins: histogram from the shortest durations, without empty bins at the end.
    """

    count: int
    p50_ms: int
    p90_ms: int
    p99_ms: int
    max_ms: int
    bins: list[Bin]


class Skew(msgspec.Struct, frozen=True):
    """The largest of several values beside their median.

    Attributes:
        measure: kind of subject, such as `a task`.
        unit: unit of the values, such as `ms busy` or `records`.
        count: number of values.
        median: median of the values.
        max: largest value.
        subject: name of the task, executor or dataset with the largest value.
    """

    measure: str
    unit: str
    count: int
    median: int
    max: int
    subject: str


def spread_of(values_ms: Iterable[int]) -> Spread | None:
    """Return the distribution of durations in milliseconds; None without durations."""
    values = sorted(values_ms)
    if not values:
        return None
    bins, below = [], 0
    for up_to_ms in _UP_TO_MS:
        count = sum(1 for value in values if value <= up_to_ms) - below
        bins.append(Bin(up_to_ms, count))
        below += count
    bins.append(Bin(None, len(values) - below))
    while len(bins) > 1 and not bins[-1].count:
        bins.pop()
    p50, p90, p99 = (percentile(values, share) for share in (50, 90, 99))
    return Spread(len(values), p50, p90, p99, values[-1], bins)


def percentile(ordered: Sequence[int], share: int) -> int:
    """Return the nearest-rank percentile of ascending values."""
    return ordered[max(0, math.ceil(len(ordered) * share / 100) - 1)]


def skew_of(measure: str, unit: str, values: Iterable[tuple[str, int]]) -> Skew | None:
    """Return the largest of named values beside their median; None for fewer than two values."""
    ordered = sorted(values, key=lambda pair: pair[1])
    if len(ordered) < 2:
        return None
    subject, most = ordered[-1]
    return Skew(measure, unit, len(ordered), percentile([value for _, value in ordered], 50), most, subject)
