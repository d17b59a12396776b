"""Faults planted in the product: each can be planted at its place, the histories that reach it are measured, and the
checkers find it. All of it runs in separate processes.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice

import pytest

from distcommit.core.errors import ConfigurationError
from distcommit.protocol.seal_decision import gap_free
from tests.checkers import reach
from tests.checkers.planted import planted, reach_of
from tests.checkers.planted_faults import PLANTED, FaultClass
from tests.checkers.planted_faults.compactions import COMPACTIONS
from tests.checkers.planted_faults.parts import Planted
from tests.checkers.planted_table import planted_table
from tests.checkers.planted_tests import ROOT
from tests.checkers.planting import Edit, plant, touch
from tests.checkers.reach import Played, Reached
from tests.simulation.explore import program_violation
from tests.simulation.programs.compact import COMPACT
from tests.simulation.programs.parts import Program
from tests.simulation.programs.resumed import RESUMED

EASY, ITS_PLACE = "failed-units-count-as-finished", ("explore", "attempt-after-failure")
ELSEWHERE = ("explore", "own-watermarks")
DIMENSIONS = (
    *(FaultClass.LATER_EPOCH, FaultClass.BRANCH, FaultClass.GROUP, FaultClass.MAINTENANCE, FaultClass.INCARNATION),
    *(FaultClass.READER, FaultClass.OPERATOR, FaultClass.LEASE, FaultClass.REBUILD),
)
"""Classes of faults that tests and checkers had mostly missed."""


def elsewhere(act: Callable[[], object]) -> int:
    """Run a function in another process and return its exit code."""

    def run() -> None:
        act()
        os._exit(0)

    gc.collect()  # clients with threads must not be deleted in a forked process, which has none of these
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
        Edit("protocol.seal_decision", "gap_free", "progress is None", "True"),
        Edit("protocol.seal_decision", "gap_free", "reached", "low"),
        Edit("protocol.seal_decision", "gap_free", "return nothing"),
        Edit("protocol.seal_decision", "none", "progress"),
        Edit("protocol.seal_decision", "CommitPolicy", "progress"),
    ],
)
def test_text_without_a_unique_match_is_not_replaced(edit: Edit) -> None:
    before = gap_free.__code__
    with pytest.raises((LookupError, TypeError)):
        plant([edit])
    with pytest.raises((LookupError, TypeError)):
        touch({"any": [edit]}, reach._Sets())
    assert gap_free.__code__ is before


def test_instrumented_function_behaves_as_before_and_reports_its_calls() -> None:
    edits = {
        "always": [Edit("protocol.seal_decision", "gap_free", "list(states)", "[*states, 1]")],
        "never": [Edit("protocol.seal_decision", "gap_free", "dict(low)", "dict(low)")],
        "left out": [Edit("protocol.seal_decision", "gap_free", "winners.append(state)\nremaining.remove(state)")],
    }

    def touched() -> None:
        reached_sets = reach._Sets()
        touch(edits, reached_sets)
        assert gap_free([], {"0": 1}) == ([], {"0": 1})
        assert reached_sets.taken() == ({"always", "never"}, {"always"})
        assert reached_sets.taken() == (set(), set())

    assert elsewhere(touched) == 0


def test_histories_that_reach_a_fault_are_measured() -> None:
    reached = {one.name: one for one in reach_of(PLANTED, 1, 1, [ITS_PLACE, ELSEWHERE])}
    differs, came = reached[ITS_PLACE[1]].times(EASY)
    assert 0 < differs <= came <= len(reached[ITS_PLACE[1]].played)
    assert reached[ELSEWHERE[1]].times(EASY) == (0, 0)
    assert reach.ranked(EASY, [*reached.values()]) == [[ITS_PLACE], [ELSEWHERE]]
    again = reach.telling(EASY, [*reached.values()])
    assert len(again) == differs
    assert {checker for checker, _ in again} == {ITS_PLACE[0]}


def shown(name: str, seconds: float, *played: tuple[str, str]) -> Reached:
    """Return histories that reached ("c") a fault or not, where it made a difference ("d") or not."""
    histories = [Played(h, *({"x"} if letter in what else set() for letter in "cd")) for h, what in played]
    return Reached("explore", name, histories, seconds)


@pytest.mark.parametrize(
    ("reached", "names", "histories"),
    [
        ([shown("slow", 9, ("s", "cd")), shown("fast", 1, ("f", "cd"))], ["fast", "slow"], ["f", "s"]),
        ([shown("none", 1, ("n", "")), shown("came", 9, ("m", "c"))], ["came", "none"], []),
        ([shown("came", 1, ("m", "c")), shown("none", 9, *[("n", "")] * 3)], ["came", "none"], ["m"]),
        ([shown("both", 1, ("1", "cd"), ("2", "cd")), shown("one", 1, ("3", "cd"))], ["both", "one"], ["1", "3", "2"]),
    ],
)
def test_histories_in_which_a_fault_makes_a_difference_come_first(
    reached: Sequence[Reached], names: Sequence[str], histories: Sequence[str]
) -> None:
    assert [name for group in reach.ranked("x", reached) for _, name in group] == names
    assert [history for _, history in reach.telling("x", reached)] == histories


def test_all_program_names_have_their_turn_and_the_first_ones_more() -> None:
    first, others = [("explore", "first-run"), ("interleave", "lock")], [("faults", "once"), ITS_PLACE]
    played = [*islice(reach.aimed([("explore", "lock:0.0")], [first, others], 1), 30)]
    assert played[0] == ("explore", "lock:0.0", "")
    assert not [wrong for _, _, wrong in played if wrong]
    times = Counter(checker if checker != "explore" else history.split(":")[0] for checker, history, _ in played)
    assert times["first-run"] > times["interleave"] > times["faults"] >= times[ITS_PLACE[1]] >= 2


def test_planted_fault_is_found_and_the_correct_product_passes() -> None:
    messages: list[str] = []
    result = planted(120, 1, 1, EASY, say=messages.append, names=[ITS_PLACE])
    assert (result["planted"], result["found"], result["not_found"]) == (1, 1, {})
    assert 0 < result["seconds_to_find"][EASY] < result["seconds"]
    assert result["sound"]["attempts"] > 0
    assert reach.play_again("explore", result["by"][EASY]["history"]) == ""
    assert f"attempt {EASY}: found in" in messages[-1]


NOTICED = "clock-ahead-holds-nothing"


@pytest.mark.slow
def test_fault_noticed_by_its_tests_is_found_by_name_and_listed_in_the_table() -> None:
    """It runs in a new interpreter, because pytest can't run in a process that a running pytest has forked."""
    command = [sys.executable, "-m", "tests.checkers", "planted", "--seconds", "300", "--only", NOTICED, "--json"]
    result = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    assert (result["planted"], result["found"], result["sound"]["attempts"]) == (1, 1, 0)
    assert result["by"][NOTICED]["checker"] == "tests"
    assert result["by"][NOTICED]["history"].startswith("tests/unit/stores/state/test_job_lock.py::test_lock_of_another")
    page = planted_table(result)
    assert "1 of 1 faults noticed;" in page
    assert f"| lease | {NOTICED} | " in page


def test_table_gets_the_rows_of_a_new_result_and_keeps_those_of_other_faults() -> None:
    observed = {"checker": "tests", "history": "tests/a.py::test_a[x|y]", "violation": "wrong"}
    missed = {"by": {}, "not_found": {NOTICED: 3, EASY: 9}, "seconds_to_find": {}}
    result = {"by": {NOTICED: observed}, "not_found": {}, "seconds_to_find": {NOTICED: 1.25}}
    before = planted_table(missed)
    page = planted_table(result, before)
    remainder = f"{len(PLANTED) - 2} more are planted that have no row here."
    assert f"0 of 2 faults noticed; {remainder}" in before
    assert f"1 of 2 faults noticed; {remainder}" in page
    (unchanged,) = (line for line in before.splitlines() if EASY in line)
    (new,) = (line for line in page.splitlines() if NOTICED in line)
    assert unchanged in page.splitlines()
    assert new.endswith("| `tests` tests/a.py::test_a[x\\|y] | 1.2 |")
    assert planted_table(result, page) == page


def test_each_dimension_has_at_least_four_faults_and_each_fault_existing_tests() -> None:
    kinds = Counter(fault.kind for fault in PLANTED)
    assert all(kinds[kind] >= 4 for kind in DIMENSIONS), kinds
    assert not [test for fault in PLANTED for test in fault.tests if not (ROOT / test).is_file()]


def test_fault_that_no_history_reaches_is_not_found() -> None:
    result = planted(3, 1, 1, EASY, budget_s=0.5, names=[("explore", "lock")])
    assert (result["found"], list(result["not_found"])) == (0, [EASY])
    with pytest.raises(ConfigurationError, match="no planted fault"):
        planted(1, 1, 1, "no such fault")


@pytest.mark.parametrize("page", ["planted.md", "mutants.md"])
def test_each_test_named_on_a_page_of_results_exists(page: str) -> None:
    """A moved or renamed test must be renamed on these pages, too. Some classes inherit their tests."""
    folders = (ROOT / "tests", ROOT / "distcommit" / "testing")
    code = "\n".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))
    named = re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))*", (ROOT / "tests" / "crash" / page).read_text())
    assert named
    assert [file for file, _ in named if not (ROOT / file).is_file()] == []
    assert [test for _, test in named if test and f"def {test}(" not in code] == []


def has_violation_without_a_crash(fault: Planted, programs: Sequence[Program]) -> bool:
    """Return whether one of the programs ends with a violation in a process with the fault."""
    noticed = 7

    def play() -> None:
        plant(fault.edits)
        for program in programs:
            machine = program.find()
            program.act(machine)
            if program_violation(program, machine):
                os._exit(noticed)

    return elsewhere(play) == noticed


@pytest.mark.slow
@pytest.mark.parametrize("fault", COMPACTIONS, ids=lambda fault: fault.name)
def test_fault_in_a_compaction_is_a_violation_without_any_crash(fault: Planted) -> None:
    assert has_violation_without_a_crash(fault, COMPACT)


@pytest.mark.parametrize("program", RESUMED, ids=lambda program: program.name)
def test_use_of_finished_work_units_after_a_changed_watermark_is_a_violation(program: Program) -> None:
    (fault,) = (fault for fault in PLANTED if fault.name == "finished-work-of-another-plan")
    assert has_violation_without_a_crash(fault, [program])
    machine = program.find()
    program.act(machine)
    assert not program_violation(program, machine)
