"""What the sections of all constructs have in common."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from distcommit.model.constructs import RowChecker, TaskChecker

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
