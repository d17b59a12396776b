"""Each remedy that the product can print has a drill, and each drill is resolved by its printed remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from distcommit.app.inspection.problems.catalogue import PROBLEMS
from distcommit.core.error_catalogue import ERRORS
from tests.drills.__main__ import run_drill
from tests.drills.catalogue import WITHOUT_DRILL, ids_with_remedies
from tests.drills.drill import Drilled
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


def declared_ids() -> set[str]:
    return {remedy.partition(": ")[0] for drill in drills().values() for remedy in drill.remedies}


def test_each_drill_declares_problems_and_errors_of_the_catalogues() -> None:
    assert declared_ids() <= PROBLEMS.keys() | ERRORS.keys()


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


def test_each_remedy_that_the_product_can_print_has_a_drill_or_a_reason_for_none() -> None:
    assert declared_ids() & WITHOUT_DRILL.keys() == set()
    assert ids_with_remedies() - declared_ids() == WITHOUT_DRILL.keys()


def test_drill_without_its_printed_remedy_is_not_resolved() -> None:
    problem_line = "JOB_PAUSED: scheduled runs were suspended by ann. Resume the schedule"
    assert unproven(["JOB_PAUSED"], Drilled(seen=[problem_line])) == []
    assert unproven(["JOB_PAUSED"], Drilled(seen=["something else", "RUN_FAILED: JOB_PAUSED"])) == ["JOB_PAUSED"]
    remedy = "DATASET_ALREADY_KNOWN: leave … out"
    assert unproven([remedy], Drilled(seen=["error: DATASET_ALREADY_KNOWN: known. To do: leave --new out"])) == []
    assert unproven([remedy], Drilled(seen=["error: DATASET_ALREADY_KNOWN: known. To do: leave --n"])) == [remedy]
    assert unproven([remedy], Drilled(seen=["error: DATASET_UNKNOWN: it is. To do: leave --new out"])) == [remedy]
