"""The part of the commit protocol's code that the explorer, the interleaver and the fault injector reach, by branch."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

import distcommit
from distcommit.core.errors import ConfigurationError

PACKAGES = ("protocol", "stores", "steps", "engine")
_SHARES = {"explore": 0.5, "interleave": 0.2, "faults": 0.3}
"""Share of the time for each checker."""
_NEVER = (r"case _:\n\s+assert_never\(", r"assert_never\(", "raise AssertionError")
"""Patterns of unreachable lines, which are not counted."""


class Covered(msgspec.Struct, frozen=True):
    """The reached code.

    `percent` and `whole` count lines and branches alike. `left`: the unreached lines, and branches `from->to`, by file.
    """

    whole: float
    percent: dict[str, float]
    left: dict[str, list[str]]


def coverage_of_checkers(seconds: float, seed: int) -> Covered:
    """Run each checker in a process of its own that is measured from its first import on, two at a time.

    Raises:
        ConfigurationError: if a checker fails, or the package `coverage` is missing.
    """
    package = Path(distcommit.__file__).parent
    with tempfile.TemporaryDirectory(prefix="distcommit-coverage-") as folder:
        settings, report_file = Path(folder) / "rc", Path(folder) / "found.json"
        files = "".join(f"\n  {package / name / '*'}" for name in PACKAGES)
        never = "".join(f"\n  {line}" for line in _NEVER)
        settings.write_text(
            f"[run]\nbranch = true\nconcurrency = thread\ndata_file = {folder}/data\ninclude ={files}\n"
            f"[report]\nexclude_also ={never}\n",
            "utf-8",
        )

        def measure(checker: str) -> None:
            options = ["--seconds", f"{seconds * _SHARES[checker]:.0f}", "--seed", f"{seed}"]
            alone = [] if checker == "faults" else ["--processes", "1"]
            _coverage("run", settings, "--parallel-mode", "-m", "tests.checkers", checker, *options, *alone)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(measure, _SHARES))
        _coverage("combine", settings, "-q")
        _coverage("json", settings, "-q", "-o", str(report_file))
        return _read(msgspec.json.decode(report_file.read_bytes()), package)


def _coverage(command: str, settings: Path, *arguments: str) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "coverage", command, f"--rcfile={settings}", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        raise ConfigurationError(
            "a checker fails as it is measured",
            command=" ".join(["coverage", command, *arguments]),
            found=(process.stdout + process.stderr)[-2000:],
            todo="run it by itself; measuring needs the package `coverage` (the extra `dev`)",
        )


def _read(found: Mapping[str, Any], package: Path) -> Covered:
    summaries: dict[str, list[Mapping[str, int]]] = {name: [] for name in PACKAGES}
    unreached: dict[str, list[str]] = {}
    for path, file in found["files"].items():
        name = Path(path).resolve().relative_to(package.resolve())
        summaries[name.parts[0]].append(file["summary"])
        lines = set(file["missing_lines"])
        branches = [f"{a}->{b}" for a, b in file["missing_branches"] if a not in lines and abs(b) not in lines]
        if lines or branches:
            unreached[str(name)] = [*map(str, sorted(lines)), *branches]
    everything = [summary for group in summaries.values() for summary in group]
    return Covered(_percent(everything), {name: _percent(group) for name, group in summaries.items()}, unreached)


def _percent(summaries: list[Mapping[str, int]]) -> float:
    reached = sum(summary["covered_lines"] + summary["covered_branches"] for summary in summaries)
    there = sum(summary["num_statements"] + summary["num_branches"] for summary in summaries)
    return round(100 * reached / there, 2) if there else 0.0
