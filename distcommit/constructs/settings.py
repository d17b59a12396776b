"""What the sections of all constructs have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel

from distcommit.model.constructs import ForkOperator, RowChecker, TaskChecker

Level = Literal["mandatory", "optional"]
OnFailure = Literal["divert", "drop", "fail"]


class ConstructSettings(BaseModel, frozen=True, extra="forbid"):
    """The section of a construct."""

    type: str


class RowCheckerSettings(ConstructSettings, RowChecker, frozen=True, extra="forbid"):
    """The section of a row checker.

    A record that does not pass a mandatory one goes to the error branch (`divert`), is dropped and counted (`drop`), or
    fails its work unit (`fail`); an optional one only counts.
    """

    level: Level = "mandatory"
    on_failure: OnFailure = "divert"


class TaskCheckerSettings(ConstructSettings, TaskChecker, frozen=True, extra="forbid"):
    """The section of a task checker. A mandatory one that does not pass fails the attempt; an optional one is told."""

    level: Level = "mandatory"


class ForkOperatorSettings(ConstructSettings, ForkOperator, frozen=True, extra="forbid"):
    """The section of a fork operator, without its branches."""

    @abstractmethod
    def named_branches(self) -> frozenset[str] | None:
        """The branches that the section names; None: it takes any."""

    def check_branches(self, branches: Sequence[str]) -> None:
        named, there = self.named_branches(), frozenset(branches)
        if named is None or named == there:
            return
        wrong = [f"{branch} is no branch" for branch in sorted(named - there)]
        wrong += [f"{branch} is sent nothing" for branch in sorted(there - named)]
        raise ValueError(f"{self.type} names each branch, and no other: {', '.join(wrong)}")
