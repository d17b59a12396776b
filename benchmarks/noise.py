"""Conclusions from samples, and their limits: intervals that assume no distribution, and a bound on their width.

The interval is that of the sign test: the median of any distribution lies between the k-th smallest and the k-th
largest of n values with a probability that depends on n and k alone. Pairs are taken one right after the other, so that
a machine that slows down affects both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb, exp, log, nan
from statistics import median

from benchmarks.results import Sample

CONFIDENCE = 0.95
"""Required confidence of an interval. With fewer than six values it is the whole range, and its confidence is less."""
FEWEST = 3
"""With fewer values the result is inconclusive."""
WIDEST = 1.5
"""The bound: an interval whose upper end exceeds its lower one by this factor is noise, and gives no ratio."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The median of values, and its interval at that confidence."""

    centre: float
    low: float
    high: float
    confidence: float

    @property
    def width(self) -> float:
        """Return the quotient of the upper and the lower end; infinite if the lower one is not above 0."""
        return self.high / self.low if self.low > 0 else float("inf")


def interval_of(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the narrowest interval between two order statistics that has the confidence, or else the whole range."""
    ordered, number = sorted(values), len(values)
    cut = max((k for k in range(1, number // 2 + 1) if _covered(number, k) >= confidence), default=1)
    return Interval(median(ordered), ordered[cut - 1], ordered[number - cut], _covered(number, cut))


def _covered(number: int, cut: int) -> float:
    """Return the probability that the median is between the `cut`-th smallest and the `cut`-th largest of that many
    values."""
    return max(0.0, 1 - 2 * sum(comb(number, k) for k in range(cut)) / float(2**number))


@dataclass(frozen=True, slots=True)
class Compared:
    """Result of pairs: the interval of a quotient, or the reason why they are inconclusive (`noise`)."""

    interval: Interval
    noise: str = ""


def compare(above: Sequence[float], below: Sequence[float], widest: float = WIDEST) -> Compared:
    """Return the quotient of two sides that were measured in turns, by the quotients of the pairs.

    Args:
        above: the numerator, in order of time.
        below: the denominator, as many.
        widest: the bound on the interval's width.
    """
    if min(*above, *below) <= 0:
        return Compared(Interval(nan, nan, nan, 0.0), "too small: what is taken off took longer than the rest")
    quotients = [log(a / b) for a, b in zip(above, below, strict=True)]
    logs = interval_of(quotients)
    interval = Interval(exp(logs.centre), exp(logs.low), exp(logs.high), logs.confidence)
    return Compared(interval, noise_of(interval, len(quotients), widest))


def noise_of(found: Interval, number: int, widest: float = WIDEST) -> str:
    """Return why that many values are inconclusive; empty if they are not."""
    if number < FEWEST:
        return f"{number} samples are too few: {FEWEST} at least"
    if found.width > widest:
        return f"noise: {found.low:.3g} to {found.high:.3g} is wider than {widest} times"
    return ""


class Ratios:
    """Collected ratios.

    `found` has None for inconclusive ones, `reasons` the reason, and `noisy` records that some were measured and
    drowned in noise.
    """

    def __init__(self, widest: float = WIDEST) -> None:
        self.found: dict[str, float | None] = {}
        self.reasons: dict[str, str] = {}
        self.noisy, self._widest = False, widest

    def leave_out(self, name: str, reason: str) -> None:
        """Record a ratio that was not requested, or is unavailable here."""
        self.found[name], self.reasons[name] = None, reason

    def count(self, name: str, value: float) -> None:
        """Record a figure that does not depend on the machine's speed."""
        self.found[name] = value

    def spread(self, name: str, values: Sequence[float]) -> None:
        """Record a figure that does: the median of its values, unless they differ too much."""
        interval = interval_of(values)
        self._tell(name, interval, noise_of(interval, len(values), self._widest))

    def pairs(self, name: str, above: Sequence[float], below: Sequence[float]) -> None:
        """Record a quotient of two sides that were measured in turns; leave it out if a side was not measured."""
        if not above or not below:
            self.leave_out(name, "not measured")
            return
        compared = compare(above, below, self._widest)
        self._tell(name, compared.interval, compared.noise)

    def _tell(self, name: str, found: Interval, noise: str) -> None:
        if noise:
            self.leave_out(name, noise)
            self.noisy = True
            return
        self.found[name] = found.centre
        self.found[f"{name}_low"], self.found[f"{name}_high"] = found.low, found.high


def seconds_of(samples: Sequence[Sample], arm: str, part: str = "") -> list[float]:
    """Return an arm's seconds, or that part of them, by repeat."""
    own = sorted((sample for sample in samples if sample.arm == arm), key=lambda sample: sample.repeat)
    return [_part(sample, part) for sample in own]


def _part(sample: Sample, part: str) -> float:
    parts: Mapping[str, float] = sample.parts
    return parts[part] if part else sample.seconds
