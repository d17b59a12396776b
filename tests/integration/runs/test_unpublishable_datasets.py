"""`distcommit run` on Spark with unpublishable datasets: independent datasets fail alone, `scope: job` holds all
back."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from distcommit import Job
from distcommit.cli.views.runs.run_result_view import run_view
from distcommit.engine.driver.run import RunResult
from distcommit.engine.run_events import DatasetQuarantined, PhaseEnded
from tests.jobs.kafka_job import KafkaJob, kafka_job
from tests.unit.engine.driver.test_events import Noting

TOPICS = {"a": 1, "b": 1, "c": 1}


def run(job: KafkaJob, spark: SparkSession) -> RunResult:
    return Job.from_file(job.path, session=spark).run()


def block_folder(job: KafkaJob, topic: str) -> Path:
    """Create a file where the dataset's folder must be."""
    path = job.folder / "output" / topic
    path.parent.mkdir(exist_ok=True)
    path.write_text("not a folder")
    return path


def test_permanently_failing_datasets_are_quarantined_and_released_together(
    tmp_path: Path, spark: SparkSession
) -> None:
    with kafka_job(tmp_path, TOPICS, commit={"buckets": 1}, replay={"max_attempts": 2}) as job:
        assert run(job, spark).succeeded
        job.produce(3)
        files = [block_folder(job, topic) for topic in TOPICS]
        first = run(job, spark)
        assert first.totals.sequences_postponed == 3
        rows = Job.from_file(job.path).status().datasets
        assert {(row.status, row.failed_runs, row.outage, bool(row.reason)) for row in rows} == {
            ("pending", 0, False, True)
        }
        assert not run(job, spark).succeeded
        noting = Noting()
        assert not Job.from_file(job.path, session=spark).run(noting).succeeded
        assert {event.dataset for event in noting.of(DatasetQuarantined)} == set(TOPICS)
        assert [event.phase for event in noting.of(PhaseEnded)] == ["recover", "plan"]
        last = Job.from_file(job.path).status().last_run
        assert last is not None
        assert (last.outcome, {reason.subject for reason in last.quarantined.entries}) == ("incomplete", set(TOPICS))
        rows = Job.from_file(job.path).status().datasets
        assert {(row.status, row.failed_runs, bool(row.reason)) for row in rows} == {("quarantined", 2, True)}
        for file in files:
            file.unlink()
        code, result, _ = job.cli("dataset release", "--all", "retry")
        assert (code, {row["status"] for row in result["datasets"]}) == (0, {"pending"})
        assert run(job, spark).succeeded
        job.assert_exact()


def test_whole_job_held_back_by_an_unplannable_dataset_is_reported_everywhere(
    tmp_path: Path, spark: SparkSession
) -> None:
    with kafka_job(tmp_path, TOPICS, commit={"buckets": 4, "scope": "job"}) as job:
        job.produce(3)
        job.write(source={"topics": [*TOPICS, "nowhere"]})
        result = run(job, spark)
        assert (result.succeeded, result.decided) == (False, False)
        assert [reason.subject for reason in result.reasons.entries] == ["nowhere"]
        assert (result.totals.datasets_held, result.totals.datasets_published) == (3, 0)
        code, status, _ = job.cli("status")
        assert (code, status["last_run"]["outcome"], status["last_run"]["held"]["omitted_count"]) == (0, "held back", 3)
        shown = io.StringIO()
        Console(file=shown, width=200).print(run_view(result))
        assert "not published: the run publishes all datasets or none" in shown.getvalue()
        assert "3 held back" in shown.getvalue()
        assert not list((tmp_path / "output").rglob("*.parquet"))
        job.write(source={"topics": [*TOPICS]})
        assert run(job, spark).succeeded
        job.assert_exact()


@pytest.mark.parametrize("mended", [True, False])
def test_a_whole_job_is_held_back_by_a_quarantined_dataset_until_it_is_released(
    tmp_path: Path, spark: SparkSession, mended: bool
) -> None:
    with kafka_job(tmp_path, TOPICS, commit={"buckets": 4}, replay={"max_attempts": 1}) as job:
        assert run(job, spark).succeeded
        job.produce(3)
        file = block_folder(job, "b")
        for _ in range(2):
            run(job, spark)
        job.produce(2)
        job.write(commit={"buckets": 4, "scope": "job"})
        result = run(job, spark)
        assert (result.decided, result.totals.datasets_held, result.totals.records_published) == (False, 2, 0)
        assert {reason.kind for reason in result.reasons.entries} == {"skipped, quarantined"}
        file.unlink()
        if mended:
            Job.from_file(job.path).retry("b")
        else:
            Job.from_file(job.path).abandon("b")
        assert run(job, spark).succeeded
        job.assert_exact()
