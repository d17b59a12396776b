"""The picture of the comparison: for each figure all peers, with few topics and with many."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.report import PeerResults, Steady, sizes_of
from benchmarks.reports.plots import OTHERS, OURS

_FIGURES = (
    ("records a second, of a burst (more is better)", "records_per_s", ",.0f"),
    ("processor seconds for a million records", "cpu_s_per_million_records", ",.0f"),
    ("freshness, 99th percentile, s", "freshness_p99_s", ".1f"),
    ("processor seconds a minute, nothing to do", "idle_cpu_s_per_minute", ".1f"),
    ("memory, MB", "peak_memory_mb", ",.0f"),
)


def plot(results: PeerResults, path: Path) -> None:
    """Draw a PNG with a row for each figure, and a column for each number of topics.

    Bars of peers with missing records are paler.
    """
    import matplotlib as mpl  # noqa: PLC0415 - optional

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    sizes, names = sizes_of(results), [peer.peer for peer in results.peers if peer.steady][::-1]
    shape = len(_FIGURES), len(sizes)
    figure, axes = plt.subplots(*shape, figsize=(10, 1.9 * shape[0] + 0.6), layout="constrained", squeeze=False)
    for column, topics in enumerate(sizes):
        by_peer = {peer.peer: steady for peer in results.peers for steady in peer.steady if steady.topics == topics}
        for row, (title, field, form) in enumerate(_FIGURES):
            _bars(axes[row, column], names, by_peer, field, form)
            axes[row, column].set_title(f"{topics:,} topics: {title}", fontsize=9)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _bars(axes: Any, names: Sequence[str], found: dict[str, Steady], field: str, form: str) -> None:
    values = {name: getattr(found[name], field) if name in found else None for name in names}
    most = max((value for value in values.values() if value), default=1)
    for name, value in values.items():
        whole = value is not None and found[name].complete
        axes.barh(name, value or 0, color=OURS if name == "ours" else OTHERS, alpha=1 if whole else 0.4)
        remark = "not shown all" if name in found and value is None else "not measured" if value is None else ""
        axes.text(value or 0, name, f"  {remark or format(value, form)}", va="center", fontsize=8)
    axes.set_xlim(0, most * 1.3)
    axes.tick_params(labelsize=8)
