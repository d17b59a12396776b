"""Metrics of runs, read with Prometheus's own parser; hostile names stay within their labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from distcommit.app.telemetry.metrics import MOST_NAMED, Metrics, MetricsFile
from distcommit.core.records.freshness_targets import BEHIND
from distcommit.core.records.run_counts import (
    COMMIT_COUNTS,
    MOST_COUNTERS,
    FlowCounts,
    RunCounts,
    SinkCounter,
    SinkCounts,
)
from distcommit.core.records.run_outcome import RunOutcome
from distcommit.core.records.run_reasons import Reason, Reasons
from distcommit.engine.run_events import CompositeObserver, Event, PhaseEnded, RunBegan, RunEnded
from tests.jobs.reported_run import HOSTILE

NO_NOTES = Reasons()
Series = Mapping[tuple[str, tuple[str, ...]], float]


def series(text: str) -> Series:
    """Return the values by name and label values."""
    assert not set(text) & {"\x1b", "\x07", "\r", "\x00", "\u202e", "\u2028"}, (
        "metrics must not contain control characters"
    )
    return {
        (sample.name.removeprefix("distcommit_"), tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def a_run(tell: Callable[[Event], None], job: str, epoch: int, *reasons: Reason, notes: Reasons = NO_NOTES) -> None:
    counts = RunCounts(datasets_published=3, records_published=30)
    outcome = RunOutcome.INCOMPLETE if reasons else RunOutcome.SUCCEEDED
    tell(RunBegan(f"run-{epoch}", epoch, job, "run", "me", 1_000_000 * epoch))
    tell(PhaseEnded("ingest", 1.5, True, RunCounts(records_read=40, bytes_read=4_000)))
    tell(PhaseEnded("drain", 0.5, True, counts, Reasons(reasons), notes))
    totals = RunCounts(records_read=40, datasets_published=3, records_published=30)
    totals = replace(totals, commit_attempts=5, commit_retries=2, target_ms=70)
    tell(RunEnded(outcome, 1_000_000 * epoch + 4_000, totals=totals))


def test_counters_are_totals_and_gauges_are_of_the_newest_run() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry, totals=True)
    a_run(metrics.observer().observe, "orders", 1, Reason("eu", "failed", "why"))
    a_run(metrics.observer().observe, "orders", 2)
    a_run(metrics.observer().observe, "other", 1)
    values = series(generate_latest(registry).decode())
    assert values["records_read_total", ("orders",)] == 80
    assert values["records_read_total", ("other",)] == 40
    assert values["last_run_records_published", ("orders",)] == 30
    assert values["commit_attempts_total", ("orders",)] == 10
    assert values["target_ms_total", ("orders",)] == 140
    assert values["last_run_commit_retries", ("orders",)] == 2
    assert values["last_run_epoch", ("orders",)] == 2
    assert values["last_run_phase_seconds", ("orders", "ingest")] == 1.5
    assert values["last_success_timestamp_seconds", ("orders",)] == 2_004
    assert values["last_run_outcome", ("orders", "succeeded")] == 1
    assert values["last_run_outcome", ("orders", "incomplete")] == 0
    assert {outcome: values["runs_total", ("orders", outcome)] for outcome in ("succeeded", "incomplete")} == {
        "succeeded": 1,
        "incomplete": 1,
    }
    assert values["run_seconds_bucket", ("orders", "5.0")] == 2
    assert values["running", ("orders",)] == 0
    assert not [key for key in values if key[0] == "last_run_dataset_trouble"], (
        "problems of the previous run must be cleared"
    )


def test_commits_are_counted_by_sink_and_branch() -> None:
    def run(epoch: int, *sinks: SinkCounts, counters: tuple[SinkCounter, ...] = ()) -> Series:
        observer = metrics.observer()
        observer.observe(RunBegan(f"run-{epoch}", epoch, "orders", "run", "me", epoch))
        totals = RunCounts(flow=FlowCounts(sinks=sinks, counters=counters))
        observer.observe(RunEnded(RunOutcome.SUCCEEDED, epoch + 1, totals=totals))
        return series(generate_latest(registry).decode())

    registry = CollectorRegistry()
    metrics = Metrics(registry, totals=True)
    lake, warehouse = (
        SinkCounts("lake", "files", 9, 3),
        SinkCounts("rows", "postgresql:{dataset}", 9, 0, 5, 2, 3, 0, 1, 7),
    )
    values = run(1, lake, warehouse, counters=(SinkCounter("rows", 'a"b', 'n"} 1\n\x1b', 4),))
    names = ("rows", "orders", "postgresql:{dataset}")
    assert values["last_run_sink_files_written", ("lake", "orders", "files")] == 3
    counts = {name: values[f"last_run_sink_{name}", names] for name in COMMIT_COUNTS}
    assert counts == {name: getattr(warehouse, name) for name in COMMIT_COUNTS}
    (own,) = ((labels, value) for (name, labels), value in values.items() if name == "last_run_sink_counter")
    assert (own[0][-1], own[1]) == ('a"b', 4)
    values = run(2, warehouse)
    assert values["sink_commit_retries_total", names] == 6
    assert values["sink_files_written_total", ("lake", "orders", "files")] == 3
    assert ("last_run_sink_files_written", ("lake", "orders", "files")) not in values, "the branch was removed"
    for epoch in range(3, 6):
        values = run(
            epoch, counters=tuple(SinkCounter("rows", "lake", f"{epoch}-{n}", 1) for n in range(MOST_COUNTERS))
        )
    totals = [labels for name, labels in values if name == "sink_counter_total" and "lake" in labels]
    assert len(totals) == MOST_COUNTERS + 1, "names of later runs are counted as other"


def test_hostile_names_stay_in_their_labels() -> None:
    registry = CollectorRegistry()
    observer = Metrics(registry, totals=True).observer()
    quoted = ('a"} 1\ndistcommit_runs_total{job="forged"} 9', "back\\slash", *HOSTILE)
    behind = Reasons((Reason("late", BEHIND, "90 s"),))
    a_run(observer.observe, 'job"\n\x1b[31m', 1, *(Reason(name, "failed", "why") for name in quoted), notes=behind)
    values = series(generate_latest(registry).decode())
    named = {labels[0] for name, labels in values if name == "last_run_dataset_trouble"}
    assert len(named) == len(quoted) + 1
    assert "back\\slash" in named
    assert {"<script>alert(1)</script>", "late"} <= named
    assert ("runs_total", ("forged",)) not in values
    assert {labels[0] for name, labels in values if name == "runs_total"} == {'job"\\n\\x1b[31m'}
    (behind_now,) = (value for (name, _), value in values.items() if name == "last_run_datasets_behind")
    assert behind_now == 1


def test_number_of_datasets_with_their_own_series_is_limited() -> None:
    registry = CollectorRegistry()
    reasons = [Reason(f"d{number}", "failed", "why") for number in range(MOST_NAMED + 7)]
    a_run(Metrics(registry, totals=False).observer().observe, "orders", 1, *reasons)
    values = series(generate_latest(registry).decode())
    assert sum(name == "last_run_dataset_trouble" for name, _ in values) == MOST_NAMED
    assert values["last_run_problems_omitted", ("orders",)] == 7


def test_metrics_file_is_written_at_the_end_of_the_run_and_a_failed_write_is_only_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "orders.prom"
    events: list[Event] = []

    class Recording:
        def observe(self, event: Event) -> None:
            events.append(event)

    a_run(
        CompositeObserver(MetricsFile(path), MetricsFile(tmp_path / "none" / "a.prom"), Recording()).observe,
        "orders",
        3,
    )
    assert series(path.read_text())["last_run_records_published", ("orders",)] == 30
    assert len(events) == 4
    assert "the run's metrics can't be written" in caplog.text


def test_metrics_file_keeps_the_time_of_the_last_success_while_runs_fail(tmp_path: Path) -> None:
    def last_success(epoch: int, *reasons: Reason, job: str = "orders") -> float:
        a_run(MetricsFile(path).observe, job, epoch, *reasons)
        return series(path.read_text())["last_success_timestamp_seconds", (job,)]

    path, failed = tmp_path / "orders.prom", Reason("eu", "failed", "why")
    assert last_success(1, failed) == 0, "0 without any success, so that an alert on the age of the last success fires"
    assert last_success(2) == 2_004
    assert last_success(3, failed) == last_success(4, failed) == 2_004
    assert last_success(5, failed, job="another") == 0
    path.write_bytes(b"# no such \xff file {")
    assert last_success(6, failed) == 0


def test_observer_that_raises_receives_no_more_events_and_the_others_do(caplog: pytest.LogCaptureFixture) -> None:
    events: list[str] = []

    class Raising:
        def observe(self, event: Event) -> None:
            events.append("raising")
            raise ValueError("no")

    class Recording:
        def observe(self, event: Event) -> None:
            events.append("seeing")

    a_run(CompositeObserver(Raising(), Recording()).observe, "orders", 1)
    assert events == ["raising", *["seeing"] * 4]
    assert "it receives no more events" in caplog.text
