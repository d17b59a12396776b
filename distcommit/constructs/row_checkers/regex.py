"""Text that a regular expression is found in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import field_validator

from distcommit.constructs.columns import field_of
from distcommit.constructs.conditions.literals import is_text, plain, plain_type
from distcommit.constructs.settings import RowCheckerSettings


class Regex(RowCheckerSettings, frozen=True, extra="forbid"):
    """Passes records with text in which `pattern` is found, or null. The pattern is one of RE2, which takes linear
    time; it is found anywhere, unless it begins with `^` and ends with `$`. Bytes are taken for UTF-8."""

    type: Literal["regex"] = "regex"
    column: str
    pattern: str

    @field_validator("pattern")
    @classmethod
    def _is_one(cls, pattern: str) -> str:
        try:
            pc.match_substring_regex(pa.array([""]), pattern)
        except pa.ArrowInvalid as error:
            raise ValueError(f"no regular expression of RE2: {error}") from error
        return pattern

    def asked_columns(self) -> Sequence[str]:
        return (self.column,)

    def check_schema(self, schema: pa.Schema) -> None:
        field_of(schema, self.column, self.type, lambda kind: is_text(plain_type(kind)), "text or bytes")

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        self.check_schema(batch.schema)
        return pc.fill_null(pc.match_substring_regex(plain(batch.column(self.column)), self.pattern), True)

    def describe(self) -> str:
        return f"{self.column} matches {self.pattern}"


SETTINGS = Regex
