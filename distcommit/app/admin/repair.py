"""Repair: apply each repair that is safe to automate, and list the problems that need an operator's decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from distcommit.app.inspection.job_status import StatusResult
from distcommit.app.inspection.problems.kinds import Problem
from distcommit.app.inspection.verify_store import VerifyResult
from distcommit.core.errors import DistcommitError, error_text

Repairs = Mapping[str, Callable[[Sequence[str]], str]]
"""Actions by name. Each takes its words, and returns why it failed, or an empty text."""

ORDER = ("records", "rebucket", "rebuild", "abandon", "recover")
"""The order of actions: an unfinished move blocks all others, and datasets of a damaged log are left alone."""


class RepairRow(msgspec.Struct, frozen=True):
    """A problem, and what was done about it."""

    finding: str
    command: str
    outcome: str = ""
    """`done`, `would be` (with a dry run), or `failed: ...` with the reason. Empty if an operator or the next run must
    act."""
    id: str = ""
    """Of the problem's kind."""


class RepairResult(msgspec.Struct):
    """The result of a repair."""

    job: str
    dry_run: bool
    rows: list[RepairRow]
    """The problems that were found."""
    remaining: list[Problem]
    """The problems after the repair."""
    problems: list[str]
    """Violations that `distcommit store verify` reports after the repair: the first hundred."""
    problems_count: int

    @property
    def is_well(self) -> bool:
        """Whether no problem is left."""
        return not self.remaining and not self.problems_count


def repair_job(
    look: Callable[[], StatusResult], verify: Callable[[], VerifyResult], repairs: Repairs, *, dry_run: bool
) -> RepairResult:
    """Finish what was decided and not finished, and restore what published files prove.

    Quarantined datasets are never retried, accepted or abandoned. No gap is accepted, no published file is deleted, and
    no run is ended. Each action is the command of its name: after a crash the same command resumes.

    Args:
        look: `distcommit status`.
        verify: `distcommit store verify`.
        repairs: actions, by the names of `ORDER`.
        dry_run: only report.
    """
    status = look()
    rows: dict[str, RepairRow] = {}
    before = {problem.finding: problem for problem in status.problems}
    for name in ORDER if not dry_run else ():
        # an action may have resolved problems of the next one
        repairable = [problem for problem in look().problems if problem.repair[:1] == (name,)]
        before |= {problem.finding: problem for problem in repairable}
        for words in dict.fromkeys(problem.repair for problem in repairable):
            outcome = _outcome(repairs[name], words[1:])
            rows |= {problem.finding: _row(problem, outcome) for problem in repairable if problem.repair == words}
    for finding, problem in before.items():
        rows.setdefault(finding, _row(problem, "would be" if dry_run and problem.repair else ""))
    after_repair, verified = look() if not dry_run else status, verify()
    return RepairResult(
        job=status.job,
        dry_run=dry_run,
        rows=list(rows.values()),
        remaining=after_repair.problems,
        problems=[f"{problem.location}: {problem.finding}" for problem in verified.problems],
        problems_count=verified.problems_count,
    )


def _outcome(repair: Callable[[Sequence[str]], str], words: Sequence[str]) -> str:
    try:
        reason = repair(words)
    except (DistcommitError, OSError) as error:
        reason = error_text(error)
    return f"failed: {reason}" if reason else "done"


def _row(problem: Problem, outcome: str) -> RepairRow:
    return RepairRow(problem.finding, problem.command, outcome, problem.id)
