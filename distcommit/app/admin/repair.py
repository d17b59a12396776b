"""Repair: of all that is wrong with a stored job, what can be mended without deciding anything is, by the commands that
are there for it; the rest is named, with the command by which a person decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from distcommit.app.inspection.status import StatusResult, Trouble
from distcommit.app.inspection.verify_store import VerifyResult
from distcommit.core.errors import DistcommitError, error_text

Mends = Mapping[str, Callable[[Sequence[str]], str]]
"""Actions by name: each is given its words, and says why it could not be done, or nothing."""

ORDER = ("records", "rebucket", "rebuild", "abandon", "recover")
"""In which actions go: a half made move keeps all others off, and datasets of a damaged log are left alone."""


class RepairRow(msgspec.Struct, frozen=True):
    """Something wrong, and the command about it. `mended`: `done`, `would be` (with a dry run), why it could not be
    (`failed: ...`), or empty if nothing was tried, as that is for a person to say, or for the next run."""

    what: str
    command: str
    mended: str = ""


class RepairResult(msgspec.Struct):
    """What was found wrong, what was mended, and what is wrong now. `problems`: what `distcommit store verify` says
    then. Of `problems` the first hundred are named."""

    job: str
    dry_run: bool
    rows: list[RepairRow]
    left: list[Trouble]
    problems: list[str]
    problems_count: int

    @property
    def is_well(self) -> bool:
        """Whether nothing is wrong any more, but what the next run sees to by itself."""
        return not self.left and not self.problems_count


def repair_job(
    look: Callable[[], StatusResult], verify: Callable[[], VerifyResult], mends: Mends, *, dry_run: bool
) -> RepairResult:
    """Mends what is safe to be: what was decided already and not finished, and what published files prove.

    It never retries, accepts or abandons what is quarantined, takes no gap for real, deletes nothing that is published,
    and ends no run. Each action is the command of its name, so that a crash leaves what one leaves there, and the same
    command goes on.

    Args:
        look: `distcommit status`.
        verify: `distcommit store verify`.
        mends: actions, by the names of `ORDER`.
        dry_run: only look.
    """
    status = look()
    rows: dict[str, RepairRow] = {}
    before = {trouble.what: trouble for trouble in status.troubles}
    for name in ORDER if not dry_run else ():
        # looked at anew: what one has mended, the next has not to
        found = [trouble for trouble in look().troubles if trouble.mend[:1] == (name,)]
        before |= {trouble.what: trouble for trouble in found}
        for trouble in _each_once(found):
            outcome = _tried(mends[name], trouble.mend[1:])
            rows |= {each.what: _row(each, outcome) for each in found if each.mend == trouble.mend}
    for what, trouble in before.items():
        rows.setdefault(what, _row(trouble, "would be" if dry_run and trouble.mend else ""))
    left, verified = look() if not dry_run else status, verify()
    return RepairResult(
        job=status.job,
        dry_run=dry_run,
        rows=list(rows.values()),
        left=left.troubles,
        problems=[f"{problem.where}: {problem.what}" for problem in verified.problems],
        problems_count=verified.problems_count,
    )


def _each_once(found: Sequence[Trouble]) -> list[Trouble]:
    return list({trouble.mend: trouble for trouble in found}.values())


def _tried(mend: Callable[[Sequence[str]], str], words: Sequence[str]) -> str:
    try:
        why = mend(words)
    except (DistcommitError, OSError) as error:
        why = str(error) if isinstance(error, DistcommitError) else error_text(error)
    return f"failed: {why}" if why else "done"


def _row(trouble: Trouble, mended: str) -> RepairRow:
    return RepairRow(trouble.what, trouble.command, mended)
