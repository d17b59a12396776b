"""Each drill is told by `status` and resolved by the command that it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drills.__main__ import DRILLS, one
from tests.servers.spark_start import start_cheaply

_SLOW = ("full-disk",)
"""What is held in every run of slow tests, one of the quickest. All of them take minutes."""


def run_one(name: str, folder: Path) -> None:
    start_cheaply()
    result = one(name, folder)
    if result.skipped:
        pytest.skip(result.skipped)
    assert result.resolved, result


def test_there_are_fourteen() -> None:
    assert len(DRILLS) == 14


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", _SLOW)
def test_drill(name: str, tmp_path: Path) -> None:
    run_one(name, tmp_path)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [name for name in DRILLS if name not in _SLOW])
def test_each_other_drill(name: str, tmp_path: Path) -> None:
    run_one(name, tmp_path)
