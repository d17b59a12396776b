"""Work units whose records have a declared schema."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from distcommit.constructs.schemas.declared import DeclaredColumns, ExtraColumns, in_words, misfits
from distcommit.constructs.settings import TaskCheckerSettings
from distcommit.core.interfaces.constructs import BranchCounts, TaskCheck


class Schema(TaskCheckerSettings, frozen=True, extra="forbid"):
    """Passes a work unit whose records all have the declared columns, with these types or narrower ones.

    Attributes:
        columns: `{NAME: TYPE}`.
        extra: whether there may be other columns.
    """

    type: Literal["schema"] = "schema"
    columns: DeclaredColumns
    extra: ExtraColumns = "allowed"

    def begin(self) -> TaskCheck:
        return SchemaCheck(self)


class SchemaCheck(TaskCheck):
    """What was not as declared in one attempt."""

    def __init__(self, settings: Schema) -> None:
        self._settings = settings
        self._checked: pa.Schema | None = None
        self._misfits: dict[str, None] = {}

    def see(self, batch: pa.RecordBatch) -> None:
        if self._checked is None or not self._checked.equals(batch.schema):
            self._checked = batch.schema
            self._misfits.update(dict.fromkeys(misfits(batch.schema, self._settings.columns, self._settings.extra)))

    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        found = "; ".join(self._misfits) or ("just that" if self._checked is not None else "no records")
        return not self._misfits, f"expected columns {in_words(self._settings.columns)}, found {found}"


SETTINGS = Schema
