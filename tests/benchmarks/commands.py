"""Questions that start Spark sessions of their own are asked by the commands that people type."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from benchmarks.results import Results

ROOT = Path(__file__).parents[2]


def answer(*arguments: str, folder: Path) -> Results:
    """What a command prints with --json."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments, "--folder", str(folder), "--json"],
        capture_output=True,
        cwd=ROOT,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return msgspec.json.decode(done.stdout, type=Results)
