"""Fork operators that send whole batches: to every branch, or to those whose required columns they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import pyarrow as pa
from pydantic import Field

from distcommit.constructs.construct_settings import ForkOperatorSettings
from distcommit.schemas.known_columns import Columns


class AllBranches(ForkOperatorSettings):
    """Fork that sends every record to every branch."""

    type: Literal["all"] = "all"

    def named_branches(self) -> frozenset[str] | None:
        return None

    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        return dict.fromkeys(branches)


class BySchema(ForkOperatorSettings):
    """Fork that sends records to each branch whose required columns they have.

    Attributes:
        requires: `{BRANCH: [COLUMN, ...]}`, the required columns. A branch that requires none takes all records.
    """

    type: Literal["by_schema"] = "by_schema"
    requires: dict[str, frozenset[str]] = Field(min_length=1)

    def named_branches(self) -> frozenset[str] | None:
        return frozenset(self.requires)

    def accepts(self, branch: str, schema: pa.Schema) -> bool:
        return self.requires[branch] <= set(schema.names)

    def may_accept(self, branch: str, columns: Columns) -> bool:
        return all(map(columns.may_have, self.requires[branch]))

    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        return dict.fromkeys(branches)
