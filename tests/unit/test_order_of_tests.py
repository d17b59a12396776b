"""The order in which processes that share the tests run them."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import LONGEST


def test_each_of_the_longest_files_exists() -> None:
    tests = Path(__file__).parents[1]
    assert [name for name in LONGEST if not (tests / name).is_file()] == []
