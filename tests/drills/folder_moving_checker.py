"""A task checker that moves a folder of the job away in the middle of a run, as an outage would."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from distcommit.core.interfaces.constructs import BranchCounts, TaskCheck, TaskChecker

FLAG = "act"
"""Flag file in the drill's folder: the next task whose records are checked acts."""


def moves_away(folder: Path, what: str, *, leaves_file: bool = False) -> dict[str, Any]:
    """Return the `checkers` section that moves a path below the drill's folder away once the flag file exists.

    With `leaves_file` it puts an empty file in its place.
    """
    options = {"folder": str(folder), "what": what, "leaves_file": leaves_file}
    return {"type": "python", "class": f"{__name__}:MovesAway", "options": options}


def put_back(folder: Path, what: str) -> None:
    """Undo the move, and delete the file that replaced the path."""
    if (folder / what).is_file():
        (folder / what).unlink()
    shutil.rmtree(folder / what, ignore_errors=True)
    (folder / f"{what}-aside").rename(folder / what)


class MovesAway(TaskChecker):
    """Checker that moves a path away after a task has written its records and before the run commits them."""

    def __init__(self, folder: str, what: str, leaves_file: bool = False) -> None:
        self._folder, self._what, self._leaves_file = Path(folder), what, leaves_file

    def begin(self) -> TaskCheck:
        return _Move(self._folder, self._what, self._leaves_file)


class _Move(TaskCheck):
    def __init__(self, folder: Path, what: str, leaves_file: bool) -> None:
        self._folder, self._what, self._leaves_file = folder, what, leaves_file

    def inspect(self, batch: pa.RecordBatch) -> None:
        """Ignore the records."""

    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        with suppress(FileNotFoundError):
            (self._folder / FLAG).unlink()
            (self._folder / self._what).rename(self._folder / f"{self._what}-aside")
            if self._leaves_file:
                (self._folder / self._what).touch()
        return True, ""
