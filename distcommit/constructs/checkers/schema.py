"""Row and task checkers of the columns that a job file declares."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from distcommit.constructs.construct_settings import RowCheckerSettings, TaskCheckerSettings
from distcommit.core.interfaces.constructs import BranchCounts, TaskCheck
from distcommit.core.support.settings_model import SettingsModel
from distcommit.schemas.check_declared_columns import DeclaredColumns, ExtraColumns, describe_columns, misfits


class _Declared(SettingsModel):
    """Columns that a job file declares for a checker.

    Attributes:
        columns: `{NAME: TYPE}`. A column may also have a narrower type.
        extra: whether other columns are allowed.
    """

    columns: DeclaredColumns
    extra: ExtraColumns = "allowed"

    def misfits(self, schema: pa.Schema) -> list[str]:
        """Return the differences between a schema and the declared columns; empty if it fits."""
        return list(misfits(schema, self.columns, self.extra))


class SchemaRowChecker(_Declared, RowCheckerSettings):
    """Check that records have the declared columns.

    Records of one schema pass or fail together. The checker is meant for messages that each name their own schema: an
    unexpected schema then rejects records, and is not an error of the job file.
    """

    type: Literal["schema"] = "schema"

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        return pa.repeat(not self.misfits(batch.schema), batch.num_rows)

    def describe(self) -> str:
        note = ", and no other column" if self.extra == "refused" else ""
        return f"the schema has {describe_columns(self.columns)}{note}"


class SchemaTaskChecker(_Declared, TaskCheckerSettings):
    """Check that all records of a work unit have the declared columns."""

    type: Literal["schema"] = "schema"

    def begin(self) -> TaskCheck:
        return SchemaCheck(self)


class SchemaCheck(TaskCheck):
    """State of the check in one attempt: the differences so far."""

    def __init__(self, settings: SchemaTaskChecker) -> None:
        self._settings = settings
        self._checked: pa.Schema | None = None
        self._misfits: dict[str, None] = {}

    def inspect(self, batch: pa.RecordBatch) -> None:
        if self._checked is None or not self._checked.equals(batch.schema):
            self._checked = batch.schema
            self._misfits.update(dict.fromkeys(self._settings.misfits(batch.schema)))

    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        misfits = "; ".join(self._misfits) or ("just that" if self._checked is not None else "no records")
        return not self._misfits, f"expected columns {describe_columns(self._settings.columns)}, found {misfits}"
