"""A program that uses the commit step store directly: it has no job file, and no `distcommit` command applies."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.drills.drill import Drilled, NotBrokenError, Situation
from tests.drills.own_program import DATASET, JOB, PER_FILE, PER_ROUND
from tests.drills.quick_drills import Printed, loads
from tests.drills.registry import drill_of

_PROGRAM = "python -m tests.drills.own_program"


def _do(situation: Situation, commands: str) -> str:
    """Run a command of the program, which must succeed, and return its output."""
    done = situation.type(f"{_PROGRAM} {commands}")
    if done.returncode:
        raise NotBrokenError(f"{commands} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


@drill_of("SEQUENCE_LOST", kinds=("retry", "accept", "abandon"))
def lost_file_of_a_program_with_its_own_store(folder: Path, how: str) -> Drilled:
    """The second round loses one of its two staged files before any is published.

    If it is released with accept, the whole round is lost. After each way of release the program continues.
    """
    situation, printed = Situation(folder), Printed(Situation(folder))
    _do(situation, "seal commit seal")
    staged = [folder / "staging" / f"from-{first}.txt" for first in range(PER_ROUND, 2 * PER_ROUND, PER_FILE)]
    numbers = Counter(number for path in staged for number in path.read_text().split())
    staged[0].rename(folder / "lost.txt")
    says = rf"a commit step is lost.*release\('{JOB}', '{DATASET}', 'retry'\), then commit; or release it with 'accept'"
    named = re.search(r"at (\S+) or", printed.refused(f"{_PROGRAM} commit", says, 1))
    if named is None or named[1] != str(staged[0]):
        raise NotBrokenError(f"the error does not name the staged file {staged[0]}: {printed.seen}")
    if how == "retry":
        (folder / "lost.txt").rename(named[1])
    printed.type(f"{_PROGRAM} release {how}")
    if how == "retry":
        printed.type(f"{_PROGRAM} commit")
    rounds = 2 if how == "abandon" else 1  # abandoned numbers are read again
    shown = loads(_do(situation, " ".join([*["seal commit"] * rounds, "show"])))
    if shown != {"begin": 3 * PER_ROUND, "is_open": False}:
        printed.result.problems.append(f"three rounds are read, and the store has {shown}")
    is_accepted = how == "accept"
    _compare(situation, printed.result, numbers if is_accepted else Counter(), staged[1:] if is_accepted else [])
    return printed.result


def _compare(situation: Situation, result: Drilled, gone: Counter[str], unpublished: list[Path]) -> None:
    """Compare the files with the numbers of three rounds, except those in `gone`.

    Args:
        situation: the broken job.
        result: receives the problems.
        gone: the lost numbers.
        unpublished: the staged files that the program has to delete.
    """
    files = [path for path in situation.output.rglob("*.txt") if path.parent.name == DATASET]
    published = Counter(number for path in files for number in path.read_text().split())
    expected = Counter(str(number) for number in range(3 * PER_ROUND)) - gone
    if published != expected or len(files) * PER_FILE != expected.total():
        result.problems.append(f"{expected - published} are missing, {published - expected} are too many: {files}")
    if (staged := [*situation.staging.rglob("*.txt")]) != unpublished:
        result.problems.append(f"{staged} are staged, and {unpublished} were to be")
    result.records = published.total()
    result.exact_afterwards = not result.problems
    result.resolved = result.cause_reported and result.exact_afterwards
