"""Each record to the first branch whose condition it meets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from distcommit.constructs.conditions.fork_by_condition import ByCondition


class FirstMatch(ByCondition, frozen=True, extra="forbid"):
    """Sends each record to the first branch in `when` whose condition it meets, or `otherwise`."""

    type: Literal["first_match"] = "first_match"

    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        left, chosen = pa.repeat(True, batch.num_rows), {}
        for branch, meets in self.met(batch, branches).items():
            chosen[branch] = pc.and_(left, meets)
            left = pc.and_not(left, meets)
        return self.with_the_rest(chosen, left, branches)


SETTINGS = FirstMatch
