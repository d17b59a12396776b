"""Each record to all branches whose condition it meets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from distcommit.constructs.conditions.fork_by_condition import ByCondition


class EveryMatch(ByCondition, frozen=True, extra="forbid"):
    """Sends each record to all branches in `when` whose condition it meets; if there is none, `otherwise`."""

    type: Literal["every_match"] = "every_match"

    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        chosen = self.met(batch, branches)
        left = reduce(pc.and_not, chosen.values(), pa.repeat(True, batch.num_rows))
        return self.with_the_rest(chosen, left, branches)


SETTINGS = EveryMatch
