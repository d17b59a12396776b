"""Results of a benchmark: ratios, every sample, and the data to judge them."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

_PACKAGES = ("distcommit", "pyspark", "pyarrow", "msgspec", "confluent-kafka", "deltalake", "pyiceberg")

Parameters = dict[str, str | int | float | list[int]]
"""Parameters of a benchmark."""
Ratios = dict[str, Any]
"""Ratios by name, a float each, or None if samples are inconclusive; callers know which they need."""


class Sample(msgspec.Struct, frozen=True):
    """One timed execution of one arm on a tree of that size. `parts`: its parts, as each arm reports them."""

    arm: str
    datasets: int
    files: int
    repeat: int
    seconds: float
    parts: dict[str, float] = {}


class Results(msgspec.Struct):
    """The answer to one question.

    `ratios` are formed from medians. `skipped` has the arms that did not run, with the reason; `notes` has what is
    needed to read the ratios. An inconclusive ratio is None, with the reason in `skipped`. `noisy`: some are
    inconclusive because samples differed too much (see `benchmarks.noise`).
    """

    question: str
    ratios: Ratios
    samples: list[Sample]
    host: dict[str, str]
    versions: dict[str, str]
    seed: int
    parameters: Parameters
    skipped: dict[str, str] = {}
    notes: list[str] = []
    noisy: bool = False


def results_of(
    question: str,
    ratios: Mapping[str, float | None],
    samples: list[Sample],
    *,
    seed: int,
    folder: Path,
    parameters: Parameters,
    skipped: dict[str, str] | None = None,
    notes: list[str] | None = None,
    noisy: bool = False,
) -> Results:
    """Return the results with this machine's description; `folder` is where the files were."""
    rounded = {key: value if value is None else round(value, 4) for key, value in ratios.items()}
    about = (samples, host(folder), versions(), seed, parameters)
    return Results(question, rounded, *about, skipped or {}, notes or [], noisy)


def medians(samples: Iterable[Sample], datasets: int | None = None) -> dict[str, float]:
    """Return the median seconds by arm, of the samples with that many datasets."""
    by_arm: dict[str, list[float]] = {}
    for sample in samples:
        if datasets is None or sample.datasets == datasets:
            by_arm.setdefault(sample.arm, []).append(sample.seconds)
    return {arm: median(seconds) for arm, seconds in by_arm.items()}


def quotients(seconds: dict[str, float], wanted: Iterable[tuple[str, str]]) -> dict[str, float]:
    """Return `<a>_over_<b>` for each pair of which both were measured."""
    return {f"{a}_over_{b}": seconds[a] / seconds[b] for a, b in wanted if a in seconds and seconds.get(b)}


def slope(points: Iterable[tuple[float, float]]) -> float:
    """Return the slope of the line through points by least squares."""
    listed = list(points)
    mean_x, mean_y = (sum(column) / len(listed) for column in zip(*listed, strict=True))
    rise = sum((x - mean_x) * (y - mean_y) for x, y in listed)
    return float(rise / sum((x - mean_x) ** 2 for x, _ in listed))


def host(folder: Path) -> dict[str, str]:
    """Return the relevant properties of the machine."""
    description = {
        "cores": str(os.cpu_count()),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "file_system": _file_system(folder),
        "measured_at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "load_1m": f"{os.getloadavg()[0]:.2f}",
    }
    cpu_info, memory_info = Path("/proc/cpuinfo"), Path("/proc/meminfo")
    if cpu_info.exists():
        models = [line.partition(":")[2].strip() for line in cpu_info.read_text().splitlines() if "model name" in line]
        description["cpu"] = models[0] if models else ""
    if memory_info.exists():
        description["memory"] = memory_info.read_text().splitlines()[0].partition(":")[2].strip()
    return description


def versions() -> dict[str, str]:
    """Return the versions of Python and of the measured packages; missing ones are left out."""
    versions_by_name = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions_by_name[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions_by_name


def _file_system(folder: Path) -> str:
    """Return type and mount options of the file system that holds the folder."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return ""
    best: tuple[int, str] = (0, "")
    for line in mounts.read_text().splitlines():
        _, mount, kind, options, *_ = line.split()
        if folder.resolve().is_relative_to(mount):
            best = max(best, (len(mount), f"{kind} ({options})"))
    return best[1]
