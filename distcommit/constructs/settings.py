"""What the sections of all constructs have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel

from distcommit.model.constructs import ForkOperator, RowChecker, TaskChecker
from distcommit.model.errors import ConfigurationError

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


class ForkSettings(ConstructSettings, ForkOperator, frozen=True, extra="forbid"):
    """The section of a fork operator, without its branches."""

    @abstractmethod
    def named_branches(self) -> frozenset[str] | None:
        """The branches that the section names; None: it takes any."""

    def check_branches(self, branches: Iterable[str]) -> None:
        """Makes sure that the job's branches are those that the section names.

        Raises:
            ConfigurationError: naming those that are not there, or that nothing would ever go to.
        """
        named, there = self.named_branches(), frozenset(branches)
        if named is None or named == there:
            return
        raise ConfigurationError(
            "a fork names other branches than it has",
            construct=self.type,
            expected=f"each of the branches {', '.join(sorted(there)) or '(none)'}, and no other",
            found=", ".join(
                [f"{branch} is no branch" for branch in sorted(named - there)]
                + [f"{branch} is sent nothing" for branch in sorted(there - named)]
            ),
            todo="correct the fork's settings, or its branches",
        )
