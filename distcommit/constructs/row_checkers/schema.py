"""Records whose schema is compatible with a declared one."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from distcommit.constructs.schemas.declared import DeclaredColumns, ExtraColumns, in_words, misfits
from distcommit.constructs.settings import RowCheckerSettings


class Schema(RowCheckerSettings, frozen=True, extra="forbid"):
    """Passes records of schemas that have the declared columns, with these types or narrower ones.

    For records that name their schemas themselves: those of one schema pass, or do not, together. No schema is an error
    of the job file.

    Attributes:
        columns: `{NAME: TYPE}`.
        extra: whether there may be other columns.
    """

    type: Literal["schema"] = "schema"
    columns: DeclaredColumns
    extra: ExtraColumns = "allowed"

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        return pa.repeat(not any(misfits(batch.schema, self.columns, self.extra)), batch.num_rows)

    def describe(self) -> str:
        return f"the schema has {in_words(self.columns)}" + (", and no other column" if self.extra == "refused" else "")


SETTINGS = Schema
