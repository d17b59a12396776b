"""Flame graphs show the functions at work."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from benchmarks.workloads.flame import drawn
from distcommit.core.errors import ConfigurationError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may look into the process that started it")


def hard_at_work(seconds: float) -> int:
    ends_s, turns = time.monotonic() + seconds, 0
    while time.monotonic() < ends_s:
        turns += 1
    return turns


def test_working_functions_are_in_the_picture(tmp_path: Path) -> None:
    with drawn(tmp_path / "flame.svg"):
        hard_at_work(1.5)
    picture = (tmp_path / "flame.svg").read_text()
    assert "<svg" in picture
    assert "hard_at_work" in picture


def test_undrawable_profile_is_reported(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigurationError, match=r"py-spy did not draw a picture; found .+"),
        drawn(tmp_path / "missing" / "a.svg"),
    ):
        pass
