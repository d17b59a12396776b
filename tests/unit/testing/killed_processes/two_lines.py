"""A module with two lines to reach, in a folder of its own."""

from __future__ import annotations

from pathlib import Path


def note(folder: Path) -> None:
    (folder / "first").touch()
    (folder / "second").touch()
