"""The sections of type `python`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from distcommit.constructs.construct_settings import (
    ForkOperatorSettings,
    RowCheckerSettings,
    StageSettings,
    TaskCheckerSettings,
)
from distcommit.core.interfaces.constructs import Converter, ForkOperator, RowChecker, TaskChecker
from distcommit.custom_class import CustomClass


class PythonConverter(
    CustomClass,
    StageSettings,
    Converter,
    interface=Converter,
    section="converter",
    unguarded=frozenset({"convert"}),
):
    """A custom converter: a subclass of `Converter`."""

    type: Literal["python"]

    def close(self) -> None:
        if "instance" in self.__dict__:
            self.instance.close()


class PythonRowChecker(
    CustomClass,
    RowCheckerSettings,
    interface=RowChecker,
    section="row checker",
    unguarded=frozenset({"check"}),
):
    """A custom row checker: a subclass of `RowChecker`."""

    type: Literal["python"] = "python"


class PythonTaskChecker(CustomClass, TaskCheckerSettings, interface=TaskChecker, section="task checker"):
    """A custom task checker: a subclass of `TaskChecker`."""

    type: Literal["python"] = "python"


class PythonFork(
    CustomClass,
    ForkOperatorSettings,
    interface=ForkOperator,
    section="fork",
    unguarded=frozenset({"choose"}),
):
    """A custom fork operator: a subclass of `ForkOperator`."""

    type: Literal["python"] = "python"

    def named_branches(self) -> frozenset[str] | None:
        return None

    def check_branches(self, branches: Sequence[str]) -> None:
        with self.guard(ValueError):
            self.instance.check_branches(branches)
