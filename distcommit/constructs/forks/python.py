"""A fork operator of the user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal

import pyarrow as pa

from distcommit.constructs.masks import checked_mask
from distcommit.constructs.own_class import OwnClass
from distcommit.constructs.settings import ForkSettings
from distcommit.model.constructs import ForkOperator
from distcommit.model.errors import ConfigurationError
from distcommit.model.user_class import make_named


class PythonFork(OwnClass, ForkSettings, frozen=True, extra="forbid"):
    """Names a subclass of `ForkOperator`."""

    type: Literal["python"] = "python"

    @cached_property
    def made(self) -> ForkOperator:
        """The fork operator itself.

        Raises:
            ConfigurationError: if the class can't be imported or made, or is no `ForkOperator`.
        """
        return make_named(ForkOperator, "fork", self.class_name, self.options)  # type: ignore[type-abstract]

    def named_branches(self) -> frozenset[str] | None:
        return None

    def accepts(self, branch: str, schema: pa.Schema) -> bool:
        return bool(self.made.accepts(branch, schema))

    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        chosen = self.made.choose(batch, branches)
        if not isinstance(chosen, Mapping) or not set(chosen) <= set(branches):
            raise ConfigurationError(
                "a fork's class does not answer by branch",
                class_name=self.class_name,
                expected=f"a mapping of {', '.join(branches) or 'no branches'}",
                found=f"one of {', '.join(map(str, chosen))}" if isinstance(chosen, Mapping) else type(chosen).__name__,
                todo="correct the class",
            )
        return {
            branch: None if mask is None else checked_mask(mask, batch, self.class_name)
            for branch, mask in chosen.items()
        }


SETTINGS = PythonFork
