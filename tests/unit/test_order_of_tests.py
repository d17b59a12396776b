"""The settings of `tests/conftest.py` that make a session of tests short and its failures readable."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

from _pytest.assertion.rewrite import AssertionRewritingHook

from tests.conftest import LONGEST
from tests.unit.sinks.databases import two_phase_cases


def test_each_of_the_longest_files_exists() -> None:
    tests = Path(__file__).parents[1]
    assert [name for name in LONGEST if not (tests / name).is_file()] == []


def test_processes_of_a_session_store_bytecode() -> None:
    assert "PYTHONDONTWRITEBYTECODE" not in os.environ


def test_garbage_collector_runs_without_the_collected_tests() -> None:
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0


def test_failures_in_each_shared_module_show_values() -> None:
    shared = {name: module for name, module in sys.modules.items() if name.startswith("tests.")}
    assert two_phase_cases.__name__ in shared
    assert [name for name, module in shared.items() if not isinstance(module.__loader__, AssertionRewritingHook)] == []
