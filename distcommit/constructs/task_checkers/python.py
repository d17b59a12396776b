"""A task checker of the user's own."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import pyarrow as pa

from distcommit.constructs.custom_class import OwnClass
from distcommit.constructs.settings import TaskCheckerSettings
from distcommit.core.interfaces.constructs import TaskCheck, TaskChecker
from distcommit.core.interfaces.custom_class import custom_code, make_named


class PythonTaskChecker(OwnClass, TaskCheckerSettings, frozen=True, extra="forbid"):
    """Names a subclass of `TaskChecker`."""

    type: Literal["python"] = "python"

    @cached_property
    def made(self) -> TaskChecker:
        """The checker itself.

        Raises:
            ConfigurationError: if the class can't be imported or made, or is no `TaskChecker`.
        """
        return make_named(TaskChecker, "task checker", self.class_name, self.given)  # type: ignore[type-abstract]

    @property
    def groups_schemas(self) -> bool:  # type: ignore[override]
        return self.made.groups_schemas

    def check_schema(self, schema: pa.Schema) -> None:
        with custom_code("task checker", self.class_name):
            self.made.check_schema(schema)

    def begin(self) -> TaskCheck:
        with custom_code("task checker", self.class_name):
            return self.made.begin()


SETTINGS = PythonTaskChecker
