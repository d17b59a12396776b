"""Repair: apply each repair that is safe to automate, and list the problems that need an operator's decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from distcommit.app.inspection.problems.kinds import Problem
from distcommit.app.inspection.status import StatusResult
from distcommit.app.inspection.verify_store import VerifyResult
from distcommit.core.errors import DistcommitError, error_text

Repairs = Mapping[str, Callable[[Sequence[str]], str]]
"""Actions by name. Each takes its words, and returns why it failed, or an empty text."""

ORDER = ("records", "rebucket", "rebuild", "abandon", "recover")
"""The order of actions: an unfinished move blocks all others, and datasets of a damaged log are left alone."""


class RepairRow(msgspec.Struct, frozen=True):
    """A problem, and what was done about it."""

    what: str
    command: str
    mended: str = ""
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
    left: list[Problem]
    """The problems after the repair."""
    problems: list[str]
    """Violations that `distcommit store verify` reports after the repair: the first hundred."""
    problems_count: int

    @property
    def is_well(self) -> bool:
        """Whether no problem is left."""
        return not self.left and not self.problems_count


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
    before = {problem.what: problem for problem in status.troubles}
    for name in ORDER if not dry_run else ():
        # an action may have resolved problems of the next one
        found = [problem for problem in look().troubles if problem.mend[:1] == (name,)]
        before |= {problem.what: problem for problem in found}
        for words in dict.fromkeys(problem.mend for problem in found):
            outcome = _outcome(repairs[name], words[1:])
            rows |= {problem.what: _row(problem, outcome) for problem in found if problem.mend == words}
    for what, problem in before.items():
        rows.setdefault(what, _row(problem, "would be" if dry_run and problem.mend else ""))
    left, verified = look() if not dry_run else status, verify()
    return RepairResult(
        job=status.job,
        dry_run=dry_run,
        rows=list(rows.values()),
        left=left.troubles,
        problems=[f"{problem.where}: {problem.what}" for problem in verified.problems],
        problems_count=verified.problems_count,
    )


def _outcome(repair: Callable[[Sequence[str]], str], words: Sequence[str]) -> str:
    try:
        why = repair(words)
    except (DistcommitError, OSError) as error:
        why = error_text(error)
    return f"failed: {why}" if why else "done"


def _row(problem: Problem, outcome: str) -> RepairRow:
    return RepairRow(problem.what, problem.command, outcome, problem.id)
