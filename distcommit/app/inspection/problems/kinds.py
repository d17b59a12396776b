"""A kind of problem, and a problem of a job."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from distcommit.app.inspection.problems.commands import Command
from distcommit.core.errors import shortened_cause, split_remedy

_REASON = 300
"""Characters of a quoted reason, at most. Its remedy is never cut."""


class Severity(StrEnum):
    """How much a problem stops.

    CRITICAL: no run can begin, or the next run publishes nothing. ERROR: a run failed, or datasets do not progress.
    WARNING: the job progresses.
    """

    CRITICAL = "critical"
    ERROR = "error"
    WARNING = "warning"


class Problem(msgspec.Struct, frozen=True):
    """A problem that a job has."""

    id: str
    """Of its kind: stable, such as `RUN_STALLED`."""
    finding: str
    """The finding, with the names and numbers of this job."""
    command: str
    """The command that resolves it. If an operator must decide, the command that shows more."""
    datasets: int = 0
    """How many datasets it is about; 0 if it is about the job."""
    repair: tuple[str, ...] = ()
    """The action of `distcommit store repair` (records, rebucket, rebuild, abandon, recover) and its words. Empty if an
    operator or the next run must act."""
    severity: Severity = Severity.ERROR
    title: str = ""
    impact: str = ""
    action: str = ""
    """The remedy: that of the quoted reason if it has one, otherwise that of the kind."""

    @property
    def line(self) -> str:
        """The id, the finding and the action."""
        return f"{self.id}: {self.finding}. {self.action}"


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """An entry of the catalogue, from which `status`, `--json`, alerts and the reference page are made."""

    id: str
    severity: Severity
    title: str
    """At most eight words."""
    finding: str
    """Template of `Problem.finding`."""
    cause: str
    """Why it happens, and how it is detected."""
    impact: str
    action: str
    command: str
    """Template of the command: its name and words, without the job file."""
    more: str = ""
    """Template of the finding that counts the datasets which are not reported one by one."""
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
            command: makes commands on the job.
            reason: a stored reason, `{reason}` in the template. If it ends in a remedy, that one is the action.
            instead: template of the command, if it is not the kind's.
            datasets: how many it is about.
            repair: as `Problem.repair`.
            **values: of the templates' fields.
        """
        cause, remedy = split_remedy(reason)
        fields = {**values, "reason": shortened_cause(cause, _REASON)}
        finding = " ".join(self.finding.format_map(fields).split()).rstrip(":. ")
        return self._problem(finding, remedy, _filled(command, instead or self.command, values), datasets, repair)

    def report_more(self, command: Command, count: int, **values: object) -> Problem:
        """Return the problem that counts the datasets which are not reported one by one."""
        return self._problem(self.more.format(count=count), "", _filled(command, self.more_command, values), count, ())

    def _problem(self, finding: str, remedy: str, command: str, datasets: int, repair: tuple[str, ...]) -> Problem:
        action = remedy or self.action
        return Problem(self.id, finding, command, datasets, repair, self.severity, self.title, self.impact, action)


def _filled(command: Command, template: str, values: dict[str, object]) -> str:
    """Fill each word by itself: names may have spaces, or look like options."""
    words = template.split()
    has_options = any(word.startswith("--") for word in words)
    return command(*(word.format_map(values) for word in words), named=not has_options)
