"""Each remedy that the product can print has a drill, and each drill is resolved by what is printed for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drills.__main__ import one
from tests.drills.catalogue import remedies
from tests.drills.registry import drills
from tests.servers.spark_start import start_cheaply

_OFTEN = ("full-disk", "pending-dataset")
"""Held in every run of slow tests: some of the quickest. All others together take minutes."""


def run_one(name: str, folder: Path) -> None:
    start_cheaply()
    result = one(name, folder)
    if result.skipped:
        pytest.skip(result.skipped)
    assert result.resolved, result


def test_each_drill_names_remedies_that_are_printed() -> None:
    texts = [remedy.text for remedy in remedies()]
    named = [(name, fragment) for name, drill in drills().items() for fragment in drill.remedies]
    assert not [each for each in named if not any(each[1] in text for text in texts)]


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
    """`without.txt` lists those that have none yet: each new remedy needs a drill."""
    proven = [fragment for drill in drills().values() for fragment in drill.remedies]
    missing = {
        f"{remedy.place} | {remedy.text}"
        for remedy in remedies()
        if not any(fragment in remedy.text for fragment in proven)
    }
    listed = (Path(__file__).parent / "without.txt").read_text(encoding="utf-8").splitlines()
    assert not missing - set(listed)
