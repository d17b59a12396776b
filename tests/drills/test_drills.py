"""Each remedy that the product can print has a drill, and each drill is resolved by its printed remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drills.__main__ import run_drill
from tests.drills.catalogue import remedies
from tests.drills.drill import Drilled, Typed
from tests.drills.quick_drills import unproven
from tests.drills.registry import drills
from tests.servers.spark_start import start_cheaply

_OFTEN = ("full-disk", "pending-dataset")
"""Run with all slow tests: some of the quickest. The others together take minutes."""


def run_one(name: str, folder: Path) -> None:
    start_cheaply()
    result = run_drill(name, folder)
    if result.skipped:
        pytest.skip(result.skipped)
    assert result.resolved, result


def test_each_drill_declares_remedies_that_the_product_can_print() -> None:
    lines = [remedy.line for remedy in remedies()]
    named = [(name, fragment) for name, drill in drills().items() for fragment in drill.remedies]
    assert not [each for each in named if not any(each[1] in line for line in lines)]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", _OFTEN)
def test_drill(name: str, tmp_path: Path) -> None:
    run_one(name, tmp_path)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [name for name in drills() if name not in _OFTEN])
def test_each_other_drill(name: str, tmp_path: Path) -> None:
    run_one(name, tmp_path)


def test_each_remedy_that_the_product_can_print_has_a_drill() -> None:
    proven = [fragment for drill in drills().values() for fragment in drill.remedies]
    assert not [remedy.line for remedy in remedies() if not any(fragment in remedy.line for fragment in proven)]


def test_drill_without_its_printed_remedy_is_not_resolved() -> None:
    problem_line = "JOB_PAUSED: scheduled runs were suspended by ann. Resume the schedule"
    assert unproven(["JOB_PAUSED"], Drilled(seen=[problem_line])) == []
    assert unproven(["JOB_PAUSED"], Drilled(seen=["something else", "RUN_FAILED: JOB_PAUSED"])) == ["JOB_PAUSED"]
    assert unproven(["remedy of _deleted"], Drilled()) == ["remedy of _deleted"]
    assert unproven(["remedy of _deleted"], Drilled(typed=[Typed("distcommit run", 0)])) == []
    assert unproven(["leave --new out"], Drilled(seen=["the store knows it. To do: leave --new out"])) == []
