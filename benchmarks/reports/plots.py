"""Plots of the samples: every sample is a dot, medians are bars."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.results import Results, Sample

OURS, LIMIT, OTHERS = "#1b6ca8", "#3a3a3a", "#b5b5b5"


def missing() -> str:
    """Why nothing can be plotted; empty if it can."""
    return "" if find_spec("matplotlib") else "matplotlib is not installed (the extra `bench` has it)"


def plot(results: Results, path: Path) -> None:
    """One PNG: bars for arms next to each other, and lines for those that were measured at several sizes."""
    import matplotlib as mpl  # noqa: PLC0415 - optional

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    sizes: dict[str, set[int]] = {}
    timed = [sample for sample in results.samples if sample.seconds > 0]
    for sample in timed:
        sizes.setdefault(sample.arm, set()).add(sample.datasets)
    side_by_side = [sample for sample in timed if sample.datasets == min(sizes[sample.arm])]
    over_sizes = [sample for sample in timed if len(sizes[sample.arm]) > 1]
    heights = [1.2 + 0.36 * len(sizes)] * (len(sizes) > 1 or not over_sizes) + [4.5] * bool(over_sizes)
    figure, axes = plt.subplots(
        len(heights), figsize=(9, sum(heights)), height_ratios=heights, layout="constrained", squeeze=False
    )
    if len(sizes) > 1 or not over_sizes:
        _by_arm(axes[0, 0], side_by_side)
    if over_sizes:
        _over_sizes(axes[-1, 0], over_sizes)
    figure.suptitle(results.question)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _by_arm(axes: Any, samples: Sequence[Sample]) -> None:
    """Seconds, or microseconds for each file where arms had trees of different sizes, all of them with files."""
    shapes = {(sample.datasets, sample.files) for sample in samples}
    in_seconds = len(shapes) == 1 or not all(datasets * files for datasets, files in shapes)
    unit = "s" if in_seconds else "µs a file"
    groups: dict[str, list[float]] = {}
    for sample in samples:
        value = sample.seconds if in_seconds else sample.seconds / (sample.datasets * sample.files) * 1e6
        groups.setdefault(sample.arm, []).append(value)
    order = sorted(groups, key=lambda arm: median(groups[arm]), reverse=True)
    centres = [median(groups[arm]) for arm in order]
    axes.barh(order, centres, color=[_colour(arm) for arm in order])
    for place, arm in enumerate(order):
        values = groups[arm]
        axes.plot(values, [place] * len(values), "o", color="black", markersize=3)
        axes.text(max(values), place, f"  {centres[place]:.3g} {unit}", va="center", fontsize=9)
    axes.set_xscale("log")
    axes.margins(x=0.2)
    if len(shapes) == 1:
        axes.set_title(f"{samples[0].datasets:,} datasets, {samples[0].files} files each", fontsize=10)
    axes.set_xlabel(f"{unit} (log scale; bars are medians, dots samples)")


def _over_sizes(axes: Any, samples: Sequence[Sample]) -> None:
    for arm in sorted({sample.arm for sample in samples}):
        own = [sample for sample in samples if sample.arm == arm]
        sizes = sorted({sample.datasets for sample in own})
        centres = [median(s.seconds for s in own if s.datasets == size) for size in sizes]
        axes.plot(sizes, centres, "-", label=arm)
        axes.plot([s.datasets for s in own], [s.seconds for s in own], ".", color="black")
    axes.set_xlabel("datasets")
    axes.set_ylabel("seconds (lines are medians, dots samples)")
    axes.set_ylim(bottom=0)
    axes.legend()


def _colour(arm: str) -> str:
    words = arm.split("_")
    if "ours" in words:
        return OURS
    return LIMIT if "bare" in words else OTHERS
