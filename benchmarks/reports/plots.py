"""Plots of the samples: every sample is a dot, medians are bars."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.results import Results, Sample

OURS, LIMIT, OTHERS = "#1b6ca8", "#3a3a3a", "#b5b5b5"
_MEANS = {OURS: "ours", LIMIT: "bare file operations, without a protocol", OTHERS: "others"}
_FAR_APART = 10
_EXECUTORS = re.compile(r"virtual_(\d+)_executors")


def missing() -> str:
    """Return why nothing can be plotted; empty if it can."""
    return "" if find_spec("matplotlib") else "matplotlib is not installed (the extra `bench` has it)"


def plot(results: Results, path: Path) -> None:
    """Draw a PNG: bars for arms side by side, and lines for those that were measured at several sizes."""
    import matplotlib as mpl  # noqa: PLC0415 - optional

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    sizes: dict[str, set[int]] = {}
    virtual = {int(match[1]): item.seconds for item in results.samples if (match := _EXECUTORS.fullmatch(item.arm))}
    timed = [sample for sample in results.samples if sample.seconds > 0 and not _EXECUTORS.fullmatch(sample.arm)]
    for sample in timed:
        sizes.setdefault(sample.arm, set()).add(sample.datasets)
    side_by_side = [sample for sample in timed if sample.datasets == min(sizes[sample.arm])]
    over_sizes = [sample for sample in timed if len(sizes[sample.arm]) > 1]
    by_arm = len(sizes) > 1 or not over_sizes
    heights = [1.2 + 0.36 * len(sizes)] if by_arm else []
    heights += [4.5] * len([item for item in (over_sizes, virtual) if item])
    figure, axes = plt.subplots(
        len(heights), figsize=(9, sum(heights)), height_ratios=heights, layout="constrained", squeeze=False
    )
    if by_arm:
        _by_arm(axes[0, 0], side_by_side)
    if over_sizes:
        _over_sizes(axes[int(by_arm), 0], over_sizes)
    if virtual:
        _speed_up(axes[-1, 0], virtual)
    figure.suptitle(results.question)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _by_arm(axes: Any, samples: Sequence[Sample]) -> None:
    """Draw seconds, or microseconds for each file if arms had trees of different sizes, all of them with files."""
    shapes = {(sample.datasets, sample.files) for sample in samples}
    in_seconds = len(shapes) == 1 or not all(datasets * files for datasets, files in shapes)
    unit, of_each = ("s", "") if in_seconds else ("µs a file", " a file")
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
        label = readable_time(centres[place] if in_seconds else centres[place] / 1e6)
        axes.text(max(values), place, f"  {label}{of_each}", va="center", fontsize=9)
    scale = _scaled(axes, [value for values in groups.values() for value in values])
    if len(shapes) == 1:
        files = f"{samples[0].files} file{'' if samples[0].files == 1 else 's'} each"
        axes.set_title(f"{samples[0].datasets:,} datasets, {files}", fontsize=10)
    axes.set_xlabel(f"{unit} ({scale}bars are medians, dots samples)")
    _name_colours(axes, order)


def _scaled(axes: Any, values: Sequence[float]) -> str:
    """Leave room for the numbers beside the bars, and use a logarithmic scale for distant values; return the axis
    note."""
    least, most = min(values), max(values)
    if most < _FAR_APART * least:
        axes.set_xlim(0, most * 1.25)
        return ""
    axes.set_xscale("log")
    axes.set_xlim(least / (most / least) ** 0.1, most * (most / least) ** 0.3)
    return "log scale; "


def _name_colours(axes: Any, arms: Sequence[str]) -> None:
    """Explain the colours, if there are several and one of them is the product's."""
    from matplotlib.patches import Patch  # noqa: PLC0415 - optional

    colours = {_colour(arm) for arm in arms}
    if OURS in colours and len(colours) > 1:
        axes.legend(handles=[Patch(color=text, label=name) for text, name in _MEANS.items() if text in colours])


def _over_sizes(axes: Any, samples: Sequence[Sample]) -> None:
    arms = sorted({sample.arm for sample in samples})
    colours = [_colour(arm) for arm in arms]
    for arm, colour in zip(arms, colours, strict=True):
        own = [sample for sample in samples if sample.arm == arm]
        sizes = sorted({sample.datasets for sample in own})
        centres = [median(s.seconds for s in own if s.datasets == size) for size in sizes]
        axes.plot(sizes, centres, "-", label=arm, color=colour if len({*colours}) == len(arms) else None)
        axes.plot([s.datasets for s in own], [s.seconds for s in own], ".", color="black")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("datasets")
    axes.set_ylabel("seconds (lines are medians, dots samples)")
    axes.set_ylim(bottom=0)
    axes.legend()


def _speed_up(axes: Any, seconds: Mapping[int, float]) -> None:
    """Draw the speed-up of more executors on virtual time, beside the ideal one."""
    numbers = sorted(seconds)
    speed_ups = [seconds[numbers[0]] / seconds[number] for number in numbers]
    axes.plot(numbers, [number / numbers[0] for number in numbers], "--", color=LIMIT, label="as much for each")
    axes.plot(numbers, speed_ups, "o-", color=OURS, label="ours, on virtual time")
    for number, times in zip(numbers, speed_ups, strict=True):
        axes.annotate(f"{times:.3g}", (number, times), textcoords="offset points", xytext=(6, -12), fontsize=9)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xticks(numbers)
    axes.set_xlabel("executors (log scale)")
    axes.set_ylabel(f"times as fast as {numbers[0]} (log scale)")
    axes.legend()


def readable_time(seconds: float) -> str:
    """Return a duration in the unit in which it has three digits at most before the point."""
    value, unit = seconds, "s"
    for smaller in ("ms", "µs"):
        if value < 1:
            value, unit = value * 1000, smaller
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def _colour(arm: str) -> str:
    words = arm.split("_")
    if {"ours", "recover", "replay"} & {*words}:
        return OURS
    return LIMIT if "bare" in words else OTHERS
