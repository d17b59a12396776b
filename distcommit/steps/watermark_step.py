"""The commit step that moves a watermark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, Self

import msgspec

from distcommit.core.errors import ConfigurationError, ConflictError
from distcommit.core.interfaces.commit_step import CommitStep, StepContext, Verdict, Verification, WatermarkMove
from distcommit.core.support.decoding import converted
from distcommit.core.watermark import Watermark
from distcommit.steps.step_registry import register


class WatermarkStore(Protocol):
    def watermark(self, urn: str) -> Watermark | None: ...

    def compare_and_set(self, urn: str, low: Watermark | None, high: Watermark) -> bool:
        """Set the watermark to `high`, durably, if `low` is stored; otherwise return False."""
        ...


@register
class HighWatermarkCommitStep(CommitStep):
    """Step that moves a dataset's watermark from `low`, on which the work was planned, to `high`.

    The step is done if each partition is at or past `high`. `LogCommitStepStore` joins moves (`as_one_move`), compares
    them with the stored watermark at the seal, and applies them at the close. Other stores provide a `WatermarkStore`.
    """

    type_name: ClassVar[str] = "high-watermark"
    __slots__ = ("dataset_urn", "high", "low", "watermarks")

    def __init__(
        self, dataset_urn: str, low: Watermark | None, high: Watermark, watermarks: WatermarkStore | None = None
    ) -> None:
        if low is not None and not high.covers(low):
            raise ValueError(f"the watermark of {dataset_urn!r} would go back: {low} to {high}")
        self.dataset_urn, self.low, self.high, self.watermarks = dataset_urn, low, high, watermarks

    def __repr__(self) -> str:
        return f"HighWatermarkCommitStep({self.dataset_urn!r}, {self.low} -> {self.high})"

    @property
    def move(self) -> WatermarkMove:
        return WatermarkMove(self.dataset_urn, self.low, self.high)

    def verify(self) -> Verification:
        stored = self._store().watermark(self.dataset_urn)
        return Verdict.DONE if stored is not None and stored.covers(self.high) else Verdict.PENDING

    def execute(self) -> None:
        """Move the watermark by compare-and-set.

        Raises:
            ConflictError: if the stored watermark is neither `low` nor at or past `high`, or the step has no
                `WatermarkStore`.
        """
        store = self._store()
        if store.compare_and_set(self.dataset_urn, self.low, self.high) or self.verify() is Verdict.DONE:
            return
        raise ConflictError(
            "a watermark was moved by another process",
            dataset=self.dataset_urn,
            expected=str(self.low),
            found=str(store.watermark(self.dataset_urn)),
            todo="find the process that moved it; this sequence was planned on other data",
        )

    def to_row(self) -> list[Any]:
        return [self.dataset_urn, msgspec.to_builtins(self.low), msgspec.to_builtins(self.high)]

    @classmethod
    def from_row(cls, row: list[Any], version: int, context: StepContext) -> Self:
        urn, low, high = row
        return cls(urn, converted(low, Watermark | None), converted(high, Watermark))

    def _store(self) -> WatermarkStore:
        if self.watermarks is None:
            raise ConflictError("a watermark step has no watermark store", dataset=self.dataset_urn)
        return self.watermarks


def as_one_move(
    urn: str, moves: Sequence[WatermarkMove], stored: Watermark | None
) -> tuple[Watermark | None, Watermark | None]:
    """Join the moves of one dataset's partitions into one move: return the watermarks before and after.

    Partitions without a move keep their positions. If all moves were planned on `stored` in their own partitions, the
    watermark before is `stored`. Otherwise it is the one that they were planned on, so that the comparison with the
    stored watermark fails.

    Raises:
        ConfigurationError: if a move belongs to another dataset, two moves concern one partition, or incarnations
            differ.
    """
    if not moves:
        return stored, stored
    lows = [move.low.positions for move in moves if move.low is not None]
    twice = [name for name, count in Counter(p for move in moves for p in move.high.positions).items() if count > 1]
    incarnations = {move.high.incarnation for move in moves}
    if twice or len(incarnations) > 1 or any(move.dataset_urn != urn for move in moves):
        raise ConfigurationError(
            "watermark steps cannot be joined into one move",
            dataset=urn,
            expected="steps of this dataset, each for partitions of its own, all of one incarnation of the source",
            found=", ".join(map(repr, moves)) + (f"; more than once: partition {', '.join(twice)}" if twice else ""),
            todo="call remove(store, urn) to delete the steps, then put one step for each partition",
        )
    low = Watermark({p: position for positions in lows for p, position in positions.items()}, *incarnations)
    high = {p: position for move in moves for p, position in move.high.positions.items()}
    before = stored or Watermark({}, *incarnations)
    of_these = {p: position for p, position in before.positions.items() if p in high}
    if Watermark(of_these, before.incarnation) != low:
        return (low if low.positions else None), low.advanced(high)
    return stored, before.advanced(high)
