"""The built-in commit steps fulfill the commit step contract."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from distcommit.core.interfaces.commit_step import CommitStep
from distcommit.core.watermark import Watermark
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.watermark_step import HighWatermarkCommitStep
from distcommit.testing.contracts import CommitStepContract


class TestFsRenameCommitStep(CommitStepContract):
    def make_step(self, place: Path, number: int) -> CommitStep:
        for folder in ("staging", "output"):
            (place / folder).mkdir(exist_ok=True)
        (place / "staging" / str(number)).write_text(f"records {number}")
        return FsRenameCommitStep(self.context(place), str(number), f"d/ü/{number}")

    def observe(self, folder: Path) -> Any:
        return {path: path.read_bytes() for path in (folder / "output").rglob("*") if path.is_file()}

    def lose(self, folder: Path, number: int) -> bool:
        (folder / "staging" / str(number)).unlink()
        return True


class TestFsRenameCommitStepWhoseTargetIsTaken(TestFsRenameCommitStep):
    """A step that is lost because a foreign file exists at the final path."""

    def lose(self, folder: Path, number: int) -> bool:
        target = folder / "output" / "d" / "ü" / str(number)
        target.parent.mkdir(parents=True)
        target.write_text("somebody else's")
        return True


class InMemoryWatermarks:
    """A watermark store of one process."""

    def __init__(self) -> None:
        self.stored: dict[str, Watermark] = {}
        self._lock = threading.Lock()

    def watermark(self, urn: str) -> Watermark | None:
        return self.stored.get(urn)

    def compare_and_set(self, urn: str, low: Watermark | None, high: Watermark) -> bool:
        with self._lock:
            if self.stored.get(urn) != low:
                return False
            self.stored[urn] = high
            return True


class TestHighWatermarkCommitStep(CommitStepContract):
    @pytest.fixture(autouse=True)
    def _watermarks(self) -> None:
        self.watermarks = InMemoryWatermarks()

    def make_step(self, place: Path, number: int) -> CommitStep:
        low = Watermark({"0": number - 1}) if number > 1 else None
        return HighWatermarkCommitStep("d", low, Watermark({"0": number}), self.watermarks)

    def bind(self, step: CommitStep, folder: Path) -> CommitStep:
        assert isinstance(step, HighWatermarkCommitStep)
        step.watermarks = self.watermarks
        return step

    def observe(self, folder: Path) -> Any:
        return dict(self.watermarks.stored)
