"""A row checker of the user's own."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import pyarrow as pa

from distcommit.constructs.custom_class import OwnClass
from distcommit.constructs.settings import RowCheckerSettings
from distcommit.core.interfaces.constructs import RowChecker
from distcommit.core.interfaces.custom_class import custom_code, make_named


class PythonRowChecker(OwnClass, RowCheckerSettings, frozen=True, extra="forbid"):
    """Names a subclass of `RowChecker`."""

    type: Literal["python"] = "python"

    @cached_property
    def made(self) -> RowChecker:
        """The checker itself.

        Raises:
            ConfigurationError: if the class can't be imported or made, or is no `RowChecker`.
        """
        return make_named(RowChecker, "row checker", self.class_name, self.given)  # type: ignore[type-abstract]

    @property
    def groups_schemas(self) -> bool:  # type: ignore[override]
        return self.made.groups_schemas

    def check_schema(self, schema: pa.Schema) -> None:
        with custom_code("row checker", self.class_name):
            self.made.check_schema(schema)

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        return self.made.check(batch)

    def describe(self) -> str:
        with custom_code("row checker", self.class_name):
            return self.made.describe()


SETTINGS = PythonRowChecker
