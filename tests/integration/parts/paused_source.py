"""A source of three-record datasets whose executors pause half-way through publishing."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from distcommit.core.interfaces.source import Extractor
from tests.integration.parts.named_source import NamedSource


class PausedSource(NamedSource):
    """Source that pauses the worker when its committer reaches an output folder.

    `at`: that folder of the output. `half_way`: a file that is created when the pause begins. `release`: the file
    that the worker waits for. The worker observes its committer by Python's audit events.
    """

    def __init__(self, names: list[str], at: str, half_way: str, release: str) -> None:
        super().__init__(names)
        self.at, self.half_way, self.release = at, half_way, release

    def open(self) -> Extractor:
        sys.addaudithook(self._pause)
        return super().open()

    def _pause(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "os.scandir" or _folder(arguments[0]) != self.at or Path(self.half_way).exists():
            return
        Path(self.half_way).touch()
        while not Path(self.release).exists():
            time.sleep(0.05)  # the test, another process, creates that file


def _folder(given: Any) -> str:
    """Return the listed folder, also if it is given as a descriptor."""
    return os.readlink(f"/proc/self/fd/{given}") if isinstance(given, int) else str(given)
