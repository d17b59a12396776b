"""A custom fork operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from distcommit.core.interfaces.constructs import ForkOperator


class ByAmount(ForkOperator):
    """Route deletions to the first branch, amounts from the limit up to the second, and all other records to the
    third."""

    def __init__(self, least: int) -> None:
        self.least = least

    def check_branches(self, branches: Sequence[str]) -> None:
        if len(branches) != 3:
            raise ValueError(f"three branches, found {len(branches)}")

    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        deleted = batch.column("is_deleted")
        large = pc.fill_null(pc.greater_equal(batch.column("amount"), self.least), False)
        chosen = (deleted, large, pc.invert(pc.or_(deleted, large)))
        return dict(zip(branches, chosen, strict=True))
