"""Repair: apply each repair that is safe to automate, and list the problems that need an operator's decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from distcommit.app.inspection.job_status import StatusResult
from distcommit.app.inspection.problems.problem_kind import Problem
from distcommit.app.inspection.verify_store import VerifyResult
from distcommit.core.errors import DistcommitError, error_text

Repairs = Mapping[str, Callable[[Sequence[str]], str]]
"""Actions by name. Each takes the words of `Problem.repair` after the name, and returns the reason for a failure, or an
empty text.
"""

ORDER = ("records", "rebucket", "rebuild", "abandon", "recover")
"""The order of actions. `rebucket` precedes others because an unfinished move blocks them; `rebuild` restores
damaged logs.
"""


class RepairRow(msgspec.Struct, frozen=True):
    """A problem and its repair.

    Attributes:
        finding: observed facts, as in `Problem.finding`.
        command: command that resolves the problem, or shows more if an operator must decide.
        outcome: `done`, `would be` (dry run) or `failed: REASON`; empty if an operator or the next run must act.
        id: id of the problem.
    """

    finding: str
    command: str
    outcome: str = ""
    id: str = ""


class RepairResult(msgspec.Struct):
    """The result of a repair.

    Attributes:
        job: name of the job.
        dry_run: whether nothing was changed.
        rows: problems before the repair.
        remaining: problems after the repair; in a dry run, the same problems.
        problems: violations that `distcommit store verify` reports after the repair; at most 100.
        problems_count: number of all violations.
    """

    job: str
    dry_run: bool
    rows: list[RepairRow]
    remaining: list[Problem]
    problems: list[str]
    problems_count: int

    @property
    def is_well(self) -> bool:
        """Whether neither problems nor violations are left."""
        return not self.remaining and not self.problems_count


def repair_job(
    look: Callable[[], StatusResult], verify: Callable[[], VerifyResult], repairs: Repairs, *, dry_run: bool
) -> RepairResult:
    """Apply the repairs that need no operator's decision, in the order of `ORDER`: finish interrupted operator actions,
    and restore the state that the published files prove.

    A repair never retries, accepts or abandons a quarantined dataset, accepts a gap, deletes a published file, or ends
    a run. A repair that fails is reported, and the next one is applied. After a crash, repeat `distcommit repair`.

    Args:
        look: returns the result of `distcommit status`.
        verify: returns the result of `distcommit store verify`.
        repairs: actions by name (`ORDER`).
        dry_run: only return the repairs that would be applied.
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
