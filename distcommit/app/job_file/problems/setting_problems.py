"""Problems of a job file, and the error that reports them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from distcommit.core.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class SettingProblem:
    """A problem of one setting.

    Attributes:
        key: the setting's dotted key; empty if the file as a whole is invalid.
        required: the requirement, as a predicate of the key: `must be at most 3`.
        found: actual value; empty if it is not shown.
        remedy: one imperative clause; empty if `required` suffices.
        file: job file.
        line: line of the key, or of the nearest section around it, from 1; 0 if the key is not in the file.
        column: column of the key, from 1; 0 if `line` is 0.
        override: the `--set` option that gave the value; empty if the file did.
    """

    key: str
    required: str
    found: str = ""
    remedy: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    override: str = ""

    @property
    def origin(self) -> str:
        """The position in the file as `FILE:LINE:COLUMN`, or the option `--set` if it gave the value."""
        if self.override:
            return "--set"
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file

    @property
    def text(self) -> str:
        """The problem without its origin."""
        actual = f"; found {self.found}" if self.found else ""
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.key} {self.required}".lstrip() + actual + remedy

    def __str__(self) -> str:
        return f"{self.origin}: {self.text}"


class JobFileError(ConfigurationError):
    """The error of an invalid job file.

    Args:
        problems: the problems; at least one.
    """

    id = "JOB_FILE_INVALID"

    def __init__(self, problems: Sequence[SettingProblem]) -> None:
        self.problems = tuple(problems)
        if len(self.problems) == 1:
            text = f"is invalid: {self.problems[0]}"
        else:
            listed = "; ".join(f"({number}) {problem}" for number, problem in enumerate(self.problems, 1))
            text = f"has {len(self.problems)} problems: {listed}"
        super().__init__(f"the job file {text}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, ([asdict(problem) for problem in self.problems],)


def _rebuilt(problems: Sequence[dict[str, Any]]) -> JobFileError:
    return JobFileError([SettingProblem(**problem) for problem in problems])
