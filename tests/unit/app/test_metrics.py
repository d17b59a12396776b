"""Metrics of runs, as Prometheus's own parser reads them; names of the worst kind stay within their labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from distcommit.app.telemetry.metrics import MOST_NAMED, Metrics, MetricsFile
from distcommit.core.records.freshness import BEHIND
from distcommit.core.run_outcome import RunOutcome
from distcommit.engine.driver.counts import DrainCounts, IngestCounts
from distcommit.engine.driver.events import Event, PhaseEnded, RunBegan, RunEnded
from distcommit.engine.driver.guarded_observer import CompositeObserver
from distcommit.engine.driver.reports import Reason, Reasons, Totals
from tests.jobs.reported_run import HOSTILE

NO_NOTES = Reasons()
Series = Mapping[tuple[str, tuple[str, ...]], float]


def series(text: str) -> Series:
    """Values by name and labels' values."""
    assert not set(text) & {"\x1b", "\x07", "\r", "\x00", "\u202e", "\u2028"}, "what would control a terminal"
    return {
        (sample.name.removeprefix("distcommit_"), tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def a_run(tell: Callable[[Event], None], job: str, epoch: int, *reasons: Reason, notes: Reasons = NO_NOTES) -> None:
    counts = DrainCounts(datasets_published=3, records_published=30)
    outcome = RunOutcome.INCOMPLETE if reasons else RunOutcome.SUCCEEDED
    tell(RunBegan(f"run-{epoch}", epoch, job, "run", "me", 1_000_000 * epoch))
    tell(PhaseEnded("ingest", 1.5, True, IngestCounts(records_read=40, bytes_read=4_000)))
    tell(PhaseEnded("drain", 0.5, True, counts, Reasons(reasons), notes))
    totals = Totals(records_read=40, datasets_published=3, records_published=30)
    totals = replace(totals, commit_attempts=5, commit_retries=2, target_ms=70)
    tell(RunEnded(outcome, 1_000_000 * epoch + 4_000, totals=totals))


def test_counters_add_up_and_gauges_are_of_the_newest_run() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry, totals=True)
    a_run(metrics.observer().observe, "orders", 1, Reason("eu", "failed", "why"))
    a_run(metrics.observer().observe, "orders", 2)
    a_run(metrics.observer().observe, "other", 1)
    found = series(generate_latest(registry).decode())
    assert found["records_read_total", ("orders",)] == 80
    assert found["records_read_total", ("other",)] == 40
    assert found["last_run_records_published", ("orders",)] == 30
    assert found["commit_attempts_total", ("orders",)] == 10
    assert found["target_ms_total", ("orders",)] == 140
    assert found["last_run_commit_retries", ("orders",)] == 2
    assert found["last_run_epoch", ("orders",)] == 2
    assert found["last_run_phase_seconds", ("orders", "ingest")] == 1.5
    assert found["last_success_timestamp_seconds", ("orders",)] == 2_004
    assert found["last_run_outcome", ("orders", "succeeded")] == 1
    assert found["last_run_outcome", ("orders", "incomplete")] == 0
    assert {outcome: found["runs_total", ("orders", outcome)] for outcome in ("succeeded", "incomplete")} == {
        "succeeded": 1,
        "incomplete": 1,
    }
    assert found["run_seconds_bucket", ("orders", "5.0")] == 2
    assert found["running", ("orders",)] == 0
    assert not [key for key in found if key[0] == "last_run_dataset_trouble"], "what the run before had is over"


def test_names_of_the_worst_kind_stay_in_their_labels() -> None:
    registry = CollectorRegistry()
    observer = Metrics(registry, totals=True).observer()
    quoted = ('a"} 1\ndistcommit_runs_total{job="forged"} 9', "back\\slash", *HOSTILE)
    behind = Reasons((Reason("late", BEHIND, "90 s"),))
    a_run(observer.observe, 'job"\n\x1b[31m', 1, *(Reason(name, "failed", "why") for name in quoted), notes=behind)
    found = series(generate_latest(registry).decode())
    named = {labels[0] for name, labels in found if name == "last_run_dataset_trouble"}
    assert len(named) == len(quoted) + 1
    assert "back\\slash" in named
    assert {"<script>alert(1)</script>", "late"} <= named
    assert ("runs_total", ("forged",)) not in found
    assert {labels[0] for name, labels in found if name == "runs_total"} == {'job"\\n\\x1b[31m'}
    (behind_now,) = (value for (name, _), value in found.items() if name == "last_run_datasets_behind")
    assert behind_now == 1


def test_few_datasets_have_series_of_their_own() -> None:
    registry = CollectorRegistry()
    reasons = [Reason(f"d{number}", "failed", "why") for number in range(MOST_NAMED + 7)]
    a_run(Metrics(registry, totals=False).observer().observe, "orders", 1, *reasons)
    found = series(generate_latest(registry).decode())
    assert sum(name == "last_run_dataset_trouble" for name, _ in found) == MOST_NAMED
    assert found["last_run_troubles_left_out", ("orders",)] == 7


def test_a_file_is_written_as_the_run_ends_and_what_fails_harms_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "orders.prom"
    seen: list[Event] = []

    class Seeing:
        def observe(self, event: Event) -> None:
            seen.append(event)

    a_run(
        CompositeObserver(MetricsFile(path), MetricsFile(tmp_path / "none" / "a.prom"), Seeing()).observe, "orders", 3
    )
    assert series(path.read_text())["last_run_records_published", ("orders",)] == 30
    assert len(seen) == 4
    assert "the run's metrics can't be written" in caplog.text


def test_a_file_says_when_a_run_last_succeeded_also_while_all_fail(tmp_path: Path) -> None:
    def last_success(epoch: int, *reasons: Reason, job: str = "orders") -> float:
        a_run(MetricsFile(path).observe, job, epoch, *reasons)
        return series(path.read_text())["last_success_timestamp_seconds", (job,)]

    path, failed = tmp_path / "orders.prom", Reason("eu", "failed", "why")
    assert last_success(1, failed) == 0, "none ever has: an alarm that none has for long goes off"
    assert last_success(2) == 2_004
    assert last_success(3, failed) == last_success(4, failed) == 2_004
    assert last_success(5, failed, job="another") == 0
    path.write_bytes(b"# no such \xff file {")
    assert last_success(6, failed) == 0


def test_an_observer_that_raises_is_told_nothing_more_and_the_others_are(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []

    class Raising:
        def observe(self, event: Event) -> None:
            told.append("raising")
            raise ValueError("no")

    class Seeing:
        def observe(self, event: Event) -> None:
            told.append("seeing")

    a_run(CompositeObserver(Raising(), Seeing()).observe, "orders", 1)
    assert told == ["raising", *["seeing"] * 4]
    assert "it receives no more events" in caplog.text
