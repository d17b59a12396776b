"""The result of the check of a job, and the error of a failed check before a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from distcommit.app.checks.dry_run import DryRun
from distcommit.app.checks.flow_description import FlowDescription
from distcommit.core.errors import ConfigurationError
from distcommit.core.support.notebook_tables import NotebookTable


class CheckedPart(msgspec.Struct, frozen=True):
    """One check of a job.

    Attributes:
        name: subject of the check, such as `source`.
        outcome: `passed`, `failed` or `skipped`.
        found: details of a passed check, or the reason for skipping; for a failed check, a reference to its problem.
    """

    name: str
    outcome: str
    found: str = ""


class CheckProblem(msgspec.Struct, frozen=True):
    """A problem that a run would meet.

    Attributes:
        check: check that found it.
        text: the problem.
        remedy: remedy of the error, or else the action of its id in the catalogue; empty if the text has it.
        setting: the setting's dotted key; empty if none is known.
        file: job file.
        line: line of the setting or of the nearest section around it, from 1; 0 if unknown.
        exit_code: exit code of a run that meets this problem alone.
        column: column of the setting, from 1; 0 if the line is unknown.
        id: id of the error in the catalogue.
    """

    check: str
    text: str
    remedy: str = ""
    setting: str = ""
    file: str = ""
    line: int = 0
    exit_code: int = 2
    column: int = 0
    id: str = ""

    @property
    def position(self) -> str:
        """The position as `FILE:LINE:COLUMN`, or the file alone."""
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class CheckResult(NotebookTable, msgspec.Struct, frozen=True):
    """The result of `distcommit check`.

    Attributes:
        job: name of the job; empty if the job file can't be read.
        passed: whether no problem was found.
        checks: checks in order.
        problems: all problems.
        flow: task flow; None if it, or a setting, is invalid.
        plan: datasets that a run would read; None without `--plan`, or if the check failed.
        warnings: settings that are valid, but may not do what is intended. A run does not stop for them.
    """

    job: str
    passed: bool
    checks: list[CheckedPart]
    problems: list[CheckProblem]
    flow: FlowDescription | None = None
    plan: DryRun | None = None
    warnings: list[str] = []

    @property
    def exit_code(self) -> int:
        """The exit code of the command, see `exit_code_of`; 0 without problems."""
        return exit_code_of(self.problems) if self.problems else 0


def exit_code_of(problems: Sequence[CheckProblem]) -> int:
    """Return the exit code of a command that meets these problems: the smallest, so that a wrong setting (2) precedes
    an outage (4). At least one problem is needed.
    """
    return min(problem.exit_code for problem in problems)


class CheckFailedError(ConfigurationError):
    """The error of a run whose check failed in several places. `problems` has them with positions and remedies, and
    determines the exit code.
    """

    id = "CHECK_FAILED"

    problems: tuple[CheckProblem, ...] = ()

    def __init__(self, failure: str, *, problems: Sequence[CheckProblem] = (), **details: Any) -> None:
        super().__init__(failure, **details)
        self.problems = tuple(problems)
        self.exit_code = exit_code_of(problems) if problems else type(self).exit_code

    def __reduce__(self) -> tuple[Any, ...]:
        return *super().__reduce__(), {"problems": self.problems, "exit_code": self.exit_code}
