"""The demo has no time limit that a slow machine could exceed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from distcommit.app.demo.demo_run import NOTICE_INTERVAL_S, _Story
from distcommit.app.demo.killed_run import RunProcess


class SlowRun:
    """A run that ends after a number of waits."""

    def __init__(self, waits: int) -> None:
        self.waits, self.stderr = waits, Path("run-1.log")

    def wait(self, timeout_s: float) -> int | None:
        assert timeout_s == NOTICE_INTERVAL_S
        self.waits -= 1
        return None if self.waits else 0


def test_slow_run_is_waited_for_and_reported_at_intervals() -> None:
    lines: list[str] = []
    story = cast(_Story, SimpleNamespace(_detail=lines.append))
    assert _Story._exit_code(story, cast(RunProcess, SlowRun(waits=500))) == 0
    assert len(lines) == 499
    assert all("still running after" in line and "run-1.log" in line for line in lines)
