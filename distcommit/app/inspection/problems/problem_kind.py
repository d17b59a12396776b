"""A kind of problem in the catalogue, and a problem of a job."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from distcommit.app.inspection.problems.recommended_commands import Command
from distcommit.core.errors import shortened_cause, split_remedy

_REASON = 300
"""The most characters of a quoted reason. Its remedy is never shortened."""


class Severity(StrEnum):
    """The severity of a problem.

    CRITICAL: no run can begin, or the next run publishes nothing. ERROR: a run failed, or datasets do not progress.
    WARNING: the job progresses.
    """

    CRITICAL = "critical"
    ERROR = "error"
    WARNING = "warning"


class Problem(msgspec.Struct, frozen=True):
    """A problem of a job.

    Attributes:
        id: stable id of the kind, such as `RUN_STALLED`.
        finding: observed facts, with the names and numbers of this job.
        command: command that resolves the problem. If an operator must decide, the command that shows more.
        datasets: number of affected datasets; 0 if the job as a whole is affected.
        repair: action of `distcommit store repair` (records, rebucket, rebuild, abandon, recover) with its words; empty
            if an operator or the next run must act.
        severity: severity of the problem.
        title: name of the kind, in at most eight words.
        impact: effect on the job and its readers.
        action: remedy of the quoted reason if it has one, otherwise that of the kind.
    """

    id: str
    finding: str
    command: str
    datasets: int = 0
    repair: tuple[str, ...] = ()
    severity: Severity = Severity.ERROR
    title: str = ""
    impact: str = ""
    action: str = ""

    @property
    def line(self) -> str:
        """Id, finding and action on one line."""
        return f"{self.id}: {self.finding}. {self.action}"


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """A catalogue entry. `status`, `--json`, alerts and the reference page are generated from the entries.

    Attributes:
        id: stable id, such as `RUN_STALLED`.
        severity: severity of each problem of the kind.
        title: name of the kind, in at most eight words.
        finding: template of the observed facts.
        cause: why the problem occurs.
        impact: effect on the job and its readers.
        action: the remedy, unless a quoted reason has a remedy.
        command: template of the command, without the job file.
        more: template of the finding that counts the datasets beyond those that are reported one by one.
        more_command: template of the command for `more`, without the job file.
    """

    id: str
    severity: Severity
    title: str
    finding: str
    cause: str
    impact: str
    action: str
    command: str
    more: str = ""
    more_command: str = ""

    def report(
        self,
        command: Command,
        *,
        reason: str = "",
        instead: str = "",
        datasets: int = 0,
        repair: tuple[str, ...] = (),
        **values: object,
    ) -> Problem:
        """Return a problem of this kind.

        Args:
            reason: a stored reason for the field `{reason}`. If it ends in a remedy, the remedy becomes the action.
            instead: a template of the command that replaces the kind's template.
        """
        cause, remedy = split_remedy(reason)
        fields = {**values, "reason": shortened_cause(cause, _REASON)}
        finding = " ".join(self.finding.format_map(fields).split()).rstrip(":. ")
        return self._problem(finding, remedy, _filled(command, instead or self.command, values), datasets, repair)

    def report_more(self, command: Command, count: int, **values: object) -> Problem:
        """Return the problem that counts the datasets beyond those that are reported one by one."""
        return self._problem(self.more.format(count=count), "", _filled(command, self.more_command, values), count, ())

    def _problem(self, finding: str, remedy: str, command: str, datasets: int, repair: tuple[str, ...]) -> Problem:
        action = remedy or self.action
        return Problem(self.id, finding, command, datasets, repair, self.severity, self.title, self.impact, action)


def _filled(command: Command, template: str, values: dict[str, object]) -> str:
    """Fill the template word by word, because a name may contain spaces or look like an option."""
    words = template.split()
    has_options = any(word.startswith("--") for word in words)
    return command(*(word.format_map(values) for word in words), named=not has_options)
