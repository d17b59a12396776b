"""Counters of sinks: bounded in number, in the length of names and in size."""

from __future__ import annotations

import numpy as np
import pytest

from distcommit.core.interfaces.sink_metrics import SinkMetrics
from distcommit.core.records.run_counts import MOST_COUNTERS, OTHER, FlowCounts, SinkCounter, SinkCounts
from distcommit.core.support.storable_check import storable


def counts(metrics: SinkMetrics) -> dict[str, int]:
    return {counter.name: counter.count for counter in metrics.counters()}


def test_amounts_of_one_name_are_added() -> None:
    metrics = SinkMetrics("rows", "mine")
    for amount in (1, np.int32(4), -3, 0):
        metrics.count("sent", amount)  # type: ignore[arg-type]
    assert metrics.counters() == (SinkCounter("rows", "mine", "sent", 5),)
    with pytest.raises(TypeError):
        metrics.count("sent", 1.5)  # type: ignore[arg-type]


def test_names_and_counts_are_limited_and_can_be_stored() -> None:
    metrics = SinkMetrics()
    for number in range(1000):
        metrics.count(f"name {number}", 1 << 60)
    metrics.count("name 0" + "x" * 1000)
    own = counts(metrics)
    assert len(own) == MOST_COUNTERS + 1
    assert OTHER in own
    odd = SinkMetrics()
    odd.count("\ud800" * 1000, 1 << 90)
    (counter,) = odd.counters()
    assert storable(counter) == counter
    assert (len(counter.name), counter.count) == (64, 1 << 48)


def test_parts_keep_their_branch_and_sink() -> None:
    metrics = SinkMetrics()
    for branch in ("lake", "rows"):
        metrics.part(branch, f"sink of {branch}").count("sent")
    assert metrics.counters() == (
        SinkCounter("lake", "sink of lake", "sent", 1),
        SinkCounter("rows", "sink of rows", "sent", 1),
    )


def test_sum_over_attempts_has_one_count_for_each_sink_and_a_limited_number_of_names() -> None:
    total = FlowCounts()
    for attempt in range(100):
        own = tuple(SinkCounter(branch, "mine", f"{attempt}", 1) for branch in ("lake", "rows"))
        total += FlowCounts(sinks=(SinkCounts("rows", "mine", 2, commit_attempts=1),), counters=own)
    assert total.sinks == (SinkCounts("rows", "mine", 200, commit_attempts=100),)
    assert total.commit_totals["commit_attempts"] == 100
    assert len(total.counters) == 2 * (MOST_COUNTERS + 1)
    assert sum(counter.count for counter in total.counters) == 200
