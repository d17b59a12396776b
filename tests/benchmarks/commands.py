"""Questions that start Spark sessions of their own, asked by the benchmark commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from benchmarks.results import Results

ROOT = Path(__file__).parents[2]


def answer(*arguments: str, folder: Path) -> Results:
    """Return the JSON output of a command."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments, "--folder", str(folder), "--json"],
        capture_output=True,
        cwd=ROOT,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return msgspec.json.decode(done.stdout, type=Results)
