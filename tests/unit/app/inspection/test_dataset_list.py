"""Queries of datasets and commit steps: filters, order, records read by the newest run, lag, and the state of each
step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from msgspec import structs

from distcommit.app.demo.broker import MockBroker
from distcommit.app.inspection.dataset_list import DatasetsResult, Query, SortBy, list_datasets
from distcommit.app.inspection.job_status import read_status
from distcommit.app.inspection.open_commit_steps import read_steps
from distcommit.app.inspection.recorded_runs import read_runs
from distcommit.core.errors import ConfigurationError, SourceUnavailableError
from distcommit.core.interfaces.source import Lag
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Watermark
from distcommit.engine.driver.run import run
from distcommit.engine.run_settings import step_context
from distcommit.sources.kafka.source import KafkaSource
from distcommit.testing.fakes.model_source import ModelSource
from tests.unit.engine.committing.situations import WORLD
from tests.unit.engine.driver.machines import STAGING, Machine, QuickClock, dies, go, launch, source, with_folders


def listed(machine: Machine, query: Query, lags: list[Lag] | None = None) -> DatasetsResult:
    store = WORLD.store(machine)
    status = structs.replace(read_status(store), runs=read_runs(store, QuickClock()).runs)
    return list_datasets(store, status, query, None if lags is None else lambda urns: lags)


def names(result: DatasetsResult) -> list[str]:
    return [row.state.dataset for row in result.datasets]


def half_done() -> tuple[Machine, ModelSource]:
    """Seal b and publish one of its two files."""
    machine, data = with_folders(Machine(), "b"), source(b=[2, 1])
    machine.faults.append(dies("rename", "/output/b/", nth=2))
    with suppress(BaseException):
        run(launch, WORLD.begin(machine, data))
    machine.restart()
    return machine, data


class TestDatasets:
    def test_datasets_are_filtered_by_status_and_name_sorted_and_limited(self) -> None:
        machine, _ = half_done()
        machine.faults.clear()
        for path in machine.paths(STAGING):
            machine.remove(path)
        go(WORLD, machine, source(a=3, b=[2, 1], ab=9))
        assert names(listed(machine, Query())) == ["a", "ab", "b"]
        assert names(listed(machine, Query(statuses=("quarantined",)))) == ["b"]
        assert names(listed(machine, Query(match="a*"))) == ["a", "ab"]
        assert names(listed(machine, Query(sort=SortBy.STATUS))) == ["b", "a", "ab"]
        assert names(listed(machine, Query(sort=SortBy.RECORDS))) == ["ab", "a", "b"]
        cut = listed(machine, Query(sort=SortBy.RECORDS, max_rows=1))
        assert (names(cut), cut.matching) == (["ab"], 3)

    def test_datasets_show_records_read_by_the_newest_run_and_commit_time(self) -> None:
        machine = Machine()
        go(WORLD, machine, source(a=3))
        (row,) = listed(machine, Query(read=True)).datasets
        assert row.last_run is not None
        counts = row.last_run.counts
        assert (counts.records_read, counts.records_published) == (3, 3)
        assert (row.last_run.outcome, row.state.done_records) == ("published", 3)
        assert row.committed_ms > 0

    def test_datasets_are_sorted_by_lag_and_an_unknown_lag_shows_the_reason(self) -> None:
        machine = Machine()
        go(WORLD, machine, source(a=3, b=1))
        result = listed(machine, Query(sort=SortBy.LAG), [Lag("a", 1, 60.0), Lag("b", 7, None, "no leader")])
        assert names(result) == ["b", "a"]
        assert [(row.lag_records, row.lag_seconds, row.lag_problem) for row in result.datasets] == [
            (7, None, "no leader"),
            (1, 60.0, ""),
        ]
        assert "reports no lag" in listed(machine, Query(), []).lag_unknown

        def unavailable_lags(urns: object) -> Iterator[Lag]:
            raise SourceUnavailableError("no broker")
            yield

        store = WORLD.store(machine)
        assert (
            list_datasets(store, read_status(store), Query(), unavailable_lags).lag_unknown
            == "SOURCE_UNAVAILABLE: no broker"
        )


class TestSteps:
    def test_half_published_sequence_shows_one_done_and_one_pending_step(self) -> None:
        machine, data = half_done()
        before = machine.paths("/job")
        store, context = WORLD.store(machine), step_context(replace(WORLD.begin(machine, data)))
        (sequence,) = read_steps(store, context).sequences
        assert (sequence.dataset, sequence.status, sequence.files, sequence.counts) == (
            "b",
            "pending",
            2,
            {"DONE": 1, "PENDING": 1},
        )
        assert {p: d for p, d in machine.paths("/job").items() if p in before} == before, (
            "reading the steps must not change a file"
        )
        assert read_steps(store, context, "b").sequences == [sequence]

    def test_lost_step_shows_the_expected_and_the_actual_state(self) -> None:
        machine, data = half_done()
        context = step_context(WORLD.begin(machine, data))
        for path in machine.paths(STAGING):
            machine.remove(path)
        (sequence,) = read_steps(WORLD.store(machine), context).sequences
        assert sequence.counts == {"DONE": 1, "LOST": 1}
        lost = next(step for step in sequence.steps if step.state == "LOST")
        assert lost.subject.startswith("fs-rename '")
        assert lost.reason.startswith("expected ")
        assert "found " in lost.reason

    def test_steps_of_an_unknown_dataset_are_refused_and_a_completed_run_has_none(self) -> None:
        machine, data = half_done()
        store, context = WORLD.store(machine), step_context(WORLD.begin(machine, data))
        with pytest.raises(ConfigurationError, match="does not know this dataset"):
            read_steps(store, context, "nobody")
        go(WORLD, machine, data)
        assert read_steps(store, context).sequences == []


class TestLagOfKafka:
    def test_lag_counts_unread_records_and_reports_the_age_of_the_oldest(self) -> None:
        sent_ms = int((time.time() - 3600) * 1000)
        with MockBroker.start({"behind": 2, "even": 1, "unknown": 1}) as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
            for number in range(5):
                producer.produce("behind", b"x", partition=0, timestamp=sent_ms + number * 1000)
            producer.produce("behind", b"x", partition=1, timestamp=sent_ms + 99_000)
            producer.produce("even", b"x", partition=0)
            assert producer.flush(20) == 0
            settings = {"type": "kafka", "brokers": broker.bootstrap_servers, "topic_patterns": [".*"]}
            states = {
                "behind": DatasetState("behind", watermark=Watermark({"0": 3})),
                "even": DatasetState("even", watermark=Watermark({"0": 1})),
                "gone": DatasetState("gone", watermark=Watermark({"0": 1})),
            }
            lags = {lag.dataset_urn: lag for lag in KafkaSource.model_validate(settings).lags(states)}
        assert set(lags) == {"behind", "even"}
        assert (lags["even"].records, lags["even"].seconds) == (0, 0.0)
        behind = lags["behind"]
        assert behind.records == 3, "two unread records of partition 0 and one of partition 1, which was never read"
        assert behind.seconds is not None
        assert 3500 < behind.seconds < 3600 + 600
