"""Moving a dataset's watermark as a commit step."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, Self

import msgspec

from distcommit.model.errors import ConflictError
from distcommit.model.steps import CommitStep, StepContext, Verdict, Verification
from distcommit.model.watermark import Watermark
from distcommit.steps.registry import register


class WatermarkStore(Protocol):
    """Where watermarks are kept."""

    def watermark(self, urn: str) -> Watermark | None:
        """The dataset's stored watermark; None if there is none yet."""
        ...

    def compare_and_set(self, urn: str, low: Watermark | None, high: Watermark) -> bool:
        """Sets `high` if the stored watermark is `low`, durably; False if it is another."""
        ...


@register
class HighWatermarkCommitStep(CommitStep):
    """Moves a dataset's watermark from `low`, on which the work was planned, to `high`.

    Proof: the stored watermark is at or past `high`, partition by partition. In a store that keeps watermarks itself
    (`LogCommitStepStore`) the step is checked at the seal and rides in the record that closes the sequence; elsewhere
    it needs a `WatermarkStore`.
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

    def verify(self) -> Verification:
        stored = self._store().watermark(self.dataset_urn)
        return Verdict.DONE if stored is not None and stored.covers(self.high) else Verdict.PENDING

    def execute(self) -> None:
        """Compares and sets.

        Raises:
            ConflictError: if the stored watermark is neither `low` nor at or past `high`.
        """
        store = self._store()
        if store.compare_and_set(self.dataset_urn, self.low, self.high) or self.verify() is Verdict.DONE:
            return
        raise ConflictError(
            "a watermark was moved by somebody else",
            dataset=self.dataset_urn,
            expected=str(self.low),
            found=str(store.watermark(self.dataset_urn)),
            todo="find out who moved it; this sequence was planned on other data",
        )

    def to_row(self) -> list[Any]:
        return [self.dataset_urn, msgspec.to_builtins(self.low), msgspec.to_builtins(self.high)]

    @classmethod
    def from_row(cls, row: list[Any], version: int, context: StepContext) -> Self:
        urn, low, high = row
        return cls(urn, msgspec.convert(low, Watermark | None), msgspec.convert(high, Watermark))

    def _store(self) -> WatermarkStore:
        if self.watermarks is None:
            raise ConflictError("this watermark step is not bound to a store", dataset=self.dataset_urn)
        return self.watermarks
