"""The settings of `tests/conftest.py` that make a session of tests short."""

from __future__ import annotations

import gc
import os
from pathlib import Path

from tests.conftest import LONGEST


def test_each_of_the_longest_files_exists() -> None:
    tests = Path(__file__).parents[1]
    assert [name for name in LONGEST if not (tests / name).is_file()] == []


def test_processes_of_a_session_store_bytecode() -> None:
    assert "PYTHONDONTWRITEBYTECODE" not in os.environ


def test_garbage_collector_runs_without_the_collected_tests() -> None:
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
