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
    """One PNG: seconds by arm where arms are compared at one size, seconds over datasets where sizes differ."""
    import matplotlib as mpl  # noqa: PLC0415 - optional

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    timed = [sample for sample in results.samples if sample.seconds > 0]
    sizes = sorted({sample.datasets for sample in timed})
    arms = {sample.arm for sample in timed}
    by_size = len(sizes) > 1 and len(arms) <= 4
    figure, axes = plt.subplots(figsize=(9, 5 if by_size else 1.2 + 0.36 * len(arms)), layout="constrained")
    if by_size:
        _over_sizes(axes, timed)
    else:
        _by_arm(axes, [sample for sample in timed if sample.datasets == sizes[0]])
    files = results.samples[0].files
    axes.set_title(
        f"{results.question}: {sizes[0]:,} datasets, {files} files each" if not by_size else results.question
    )
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _by_arm(axes: Any, samples: Sequence[Sample]) -> None:
    groups: dict[str, list[float]] = {}
    for sample in samples:
        groups.setdefault(sample.arm, []).append(sample.seconds)
    order = sorted(groups, key=lambda arm: median(groups[arm]), reverse=True)
    centres = [median(groups[arm]) for arm in order]
    axes.barh(order, centres, color=[_colour(arm) for arm in order])
    for place, arm in enumerate(order):
        seconds = groups[arm]
        axes.plot(seconds, [place] * len(seconds), "o", color="black", markersize=3)
        text = f"  {centres[place]:.3g} s"
        axes.text(max(seconds), place, text, va="center", fontsize=9)
    axes.set_xscale("log")
    axes.margins(x=0.12)
    axes.set_xlabel("seconds (log scale; bars are medians, dots samples)")


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
    if arm.startswith("ours"):
        return OURS
    return LIMIT if arm.startswith("bare") else OTHERS
