"""Every record to every branch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import pyarrow as pa

from distcommit.constructs.settings import ForkOperatorSettings


class AllBranches(ForkOperatorSettings, frozen=True, extra="forbid"):
    """Sends every record to every branch."""

    type: Literal["all"] = "all"

    def named_branches(self) -> frozenset[str] | None:
        return None

    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        return dict.fromkeys(branches)


SETTINGS = AllBranches
