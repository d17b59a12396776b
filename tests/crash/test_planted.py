"""Faults planted in the product: each can be planted where it is said to be, what comes to it is measured, and the
checkers find it. All of it happens in processes of their own."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice

import pytest

from distcommit.core.errors import ConfigurationError
from distcommit.protocol.readiness import gap_free
from tests.checkers import reach
from tests.checkers.planted import planted, reach_of
from tests.checkers.planted_faults import PLANTED, FaultClass
from tests.checkers.planted_table import planted_table
from tests.checkers.planted_tests import ROOT
from tests.checkers.planting import Edit, plant, touch
from tests.checkers.reach import Played, Reached

EASY, ITS_PLACE = "failed-units-count-as-finished", ("explore", "attempt-after-failure")
ELSEWHERE = ("explore", "own-watermarks")
DIMENSIONS = (
    *(FaultClass.LATER_EPOCH, FaultClass.BRANCH, FaultClass.GROUP, FaultClass.MAINTENANCE, FaultClass.INCARNATION),
    *(FaultClass.READER, FaultClass.OPERATOR, FaultClass.LEASE, FaultClass.REBUILD),
)
"""What nearly all faults slipped through that tests and checkers had not noticed."""


def elsewhere(act: Callable[[], object]) -> int:
    """The exit code of a process that does that."""

    def run() -> None:
        act()
        os._exit(0)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    return process.exitcode or 0


def plant_each() -> None:
    for fault in PLANTED:
        plant(fault.edits)


def test_every_fault_can_be_planted() -> None:
    assert len({fault.name for fault in PLANTED}) == len(PLANTED)
    assert set(FaultClass) == {fault.kind for fault in PLANTED}
    assert min(Counter(fault.kind for fault in PLANTED).values()) >= 3
    assert elsewhere(plant_each) == 0


@pytest.mark.parametrize(
    "edit",
    [
        Edit("protocol.readiness", "gap_free", "progress is None", "True"),
        Edit("protocol.readiness", "gap_free", "reached", "low"),
        Edit("protocol.readiness", "gap_free", "return nothing"),
        Edit("protocol.readiness", "none", "progress"),
        Edit("protocol.readiness", "CommitPolicy", "progress"),
    ],
)
def test_what_is_not_there_once_is_not_replaced(edit: Edit) -> None:
    before = gap_free.__code__
    with pytest.raises((LookupError, TypeError)):
        plant([edit])
    with pytest.raises((LookupError, TypeError)):
        touch({"any": [edit]}, reach._Sets())
    assert gap_free.__code__ is before


def test_a_touched_function_does_as_before_and_tells() -> None:
    edits = {
        "always": [Edit("protocol.readiness", "gap_free", "list(states)", "[*states, 1]")],
        "never": [Edit("protocol.readiness", "gap_free", "dict(low)", "dict(low)")],
        "left out": [Edit("protocol.readiness", "gap_free", "winners.append(state)\nleft.remove(state)")],
    }

    def touched() -> None:
        told = reach._Sets()
        touch(edits, told)
        assert gap_free([], {"0": 1}) == ([], {"0": 1})
        assert told.taken() == ({"always", "never"}, {"always"})
        assert told.taken() == (set(), set())

    assert elsewhere(touched) == 0


def test_what_comes_to_a_fault_is_measured() -> None:
    found = {one.name: one for one in reach_of(PLANTED, 1, 1, [ITS_PLACE, ELSEWHERE])}
    differs, came = found[ITS_PLACE[1]].times(EASY)
    assert 0 < differs <= came <= len(found[ITS_PLACE[1]].played)
    assert found[ELSEWHERE[1]].times(EASY) == (0, 0)
    assert reach.ranked(EASY, [*found.values()]) == [[ITS_PLACE], [ELSEWHERE]]
    again = reach.telling(EASY, [*found.values()])
    assert len(again) == differs
    assert {checker for checker, _ in again} == {ITS_PLACE[0]}


def shown(name: str, seconds: float, *played: tuple[str, str]) -> Reached:
    """Histories that came ("c") to a fault or not, where it made a difference ("d") or not."""
    histories = [Played(h, *({"x"} if letter in what else set() for letter in "cd")) for h, what in played]
    return Reached("explore", name, histories, seconds)


@pytest.mark.parametrize(
    ("found", "names", "histories"),
    [
        ([shown("slow", 9, ("s", "cd")), shown("fast", 1, ("f", "cd"))], ["fast", "slow"], ["f", "s"]),
        ([shown("none", 1, ("n", "")), shown("came", 9, ("m", "c"))], ["came", "none"], []),
        ([shown("came", 1, ("m", "c")), shown("none", 9, *[("n", "")] * 3)], ["came", "none"], ["m"]),
        ([shown("both", 1, ("1", "cd"), ("2", "cd")), shown("one", 1, ("3", "cd"))], ["both", "one"], ["1", "3", "2"]),
    ],
)
def test_what_makes_a_difference_comes_first(
    found: Sequence[Reached], names: Sequence[str], histories: Sequence[str]
) -> None:
    assert [name for group in reach.ranked("x", found) for _, name in group] == names
    assert [history for _, history in reach.telling("x", found)] == histories


def test_all_names_have_their_turn_and_the_first_ones_more() -> None:
    first, others = [("explore", "first-run"), ("interleave", "lock")], [("faults", "once"), ITS_PLACE]
    played = [*islice(reach.aimed([("explore", "lock:0.0")], [first, others], 1), 30)]
    assert played[0] == ("explore", "lock:0.0", "")
    assert not [wrong for _, _, wrong in played if wrong]
    times = Counter(checker if checker != "explore" else history.split(":")[0] for checker, history, _ in played)
    assert times["first-run"] > times["interleave"] > times["faults"] >= times[ITS_PLACE[1]] >= 2


def test_a_planted_fault_is_found_and_the_sound_product_passes() -> None:
    said: list[str] = []
    found = planted(120, 1, 1, EASY, say=said.append, names=[ITS_PLACE])
    assert (found["planted"], found["found"], found["not_found"]) == (1, 1, {})
    assert 0 < found["seconds_to_find"][EASY] < found["seconds"]
    assert found["sound"]["attempts"] > 0
    assert reach.play_again("explore", found["by"][EASY]["history"]) == ""
    assert f"attempt {EASY}: found in" in said[-1]


NOTICED = "clock-ahead-holds-nothing"


@pytest.mark.slow
def test_a_fault_that_its_tests_notice_is_found_by_name_and_stands_in_the_table() -> None:
    """In another interpreter: pytest does not run in a process that a running pytest has forked."""
    command = [sys.executable, "-m", "tests.checkers", "planted", "--seconds", "300", "--only", NOTICED, "--json"]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    assert (found["planted"], found["found"], found["sound"]["attempts"]) == (1, 1, 0)
    assert found["by"][NOTICED]["checker"] == "tests"
    assert found["by"][NOTICED]["history"].startswith("tests/unit/stores/state/test_job_lock.py::test_lock_of_another")
    page = planted_table(found)
    assert "1 of 1 faults noticed;" in page
    assert f"| lease | {NOTICED} | " in page


def test_table_gets_the_rows_of_a_new_result_and_keeps_those_of_other_faults() -> None:
    seen = {"checker": "tests", "history": "tests/a.py::test_a[x|y]", "violation": "wrong"}
    missed = {"by": {}, "not_found": {NOTICED: 3, EASY: 9}, "seconds_to_find": {}}
    found = {"by": {NOTICED: seen}, "not_found": {}, "seconds_to_find": {NOTICED: 1.25}}
    before = planted_table(missed)
    page = planted_table(found, before)
    rest = f"{len(PLANTED) - 2} more are planted that have no row here."
    assert f"0 of 2 faults noticed; {rest}" in before
    assert f"1 of 2 faults noticed; {rest}" in page
    (kept,) = (line for line in before.splitlines() if EASY in line)
    (new,) = (line for line in page.splitlines() if NOTICED in line)
    assert kept in page.splitlines()
    assert new.endswith("| `tests` tests/a.py::test_a[x\\|y] | 1.2 |")
    assert planted_table(found, page) == page


def test_each_dimension_has_at_least_four_faults_and_each_fault_tests_that_are_there() -> None:
    kinds = Counter(fault.kind for fault in PLANTED)
    assert all(kinds[kind] >= 4 for kind in DIMENSIONS), kinds
    assert not [test for fault in PLANTED for test in fault.tests if not (ROOT / test).is_file()]


def test_where_nothing_comes_to_a_fault_it_is_not_found() -> None:
    found = planted(3, 1, 1, EASY, budget_s=0.5, names=[("explore", "lock")])
    assert (found["found"], list(found["not_found"])) == (0, [EASY])
    with pytest.raises(ConfigurationError, match="no planted fault"):
        planted(1, 1, 1, "no such fault")
