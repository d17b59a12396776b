"""A fork operator of the user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal

import pyarrow as pa

from distcommit.constructs.custom_class import OwnClass
from distcommit.constructs.settings import ForkOperatorSettings
from distcommit.core.interfaces.constructs import ForkOperator
from distcommit.core.interfaces.custom_class import custom_code, make_named


class PythonFork(OwnClass, ForkOperatorSettings, frozen=True, extra="forbid"):
    """Names a subclass of `ForkOperator`."""

    type: Literal["python"] = "python"

    @cached_property
    def made(self) -> ForkOperator:
        """The fork operator itself.

        Raises:
            ConfigurationError: if the class can't be imported or made, or is no `ForkOperator`.
        """
        return make_named(ForkOperator, "fork", self.class_name, self.given)  # type: ignore[type-abstract]

    @property
    def groups_schemas(self) -> bool:  # type: ignore[override]
        return self.made.groups_schemas

    def named_branches(self) -> frozenset[str] | None:
        return None

    def check_branches(self, branches: Sequence[str]) -> None:
        with custom_code("fork", self.class_name, ValueError):
            self.made.check_branches(branches)

    def accepts(self, branch: str, schema: pa.Schema) -> bool:
        with custom_code("fork", self.class_name):
            return self.made.accepts(branch, schema)

    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        return self.made.choose(batch, branches)


SETTINGS = PythonFork
