"""`commit.policy: partial` by the command line: the records before one that fails a work unit are published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from distcommit import Job
from distcommit.core.watermark import as_offset
from distcommit.engine.driver.run import RunResult
from distcommit.sources.kafka.message_sorting import BATCH_RECORDS
from tests.jobs.in_commit import killed_in_commit
from tests.jobs.kafka_job import FIRST_DAY_MS, KafkaJob, kafka_job

FLOW: dict[str, Any] = {
    "converters": [{"type": "json", "fields": {"n": "int64"}}],
    "row_checkers": [{"type": "range", "column": "n", "min": 0, "on_failure": "fail"}],
    "commit": {"policies": [{"datasets": ["bad.*"], "policy": "partial"}]},
}
BAD = BATCH_RECORDS + 500
"""The record of a topic that fails its work unit: it is in the second batch."""


def produce(job: KafkaJob, topic: str, records: int, bad: int = -1) -> None:
    producer = Producer({"bootstrap.servers": job.broker.bootstrap_servers, "linger.ms": 5})
    for number in range(records):
        value = b'{"n":-1}' if number == bad else b'{"n":%d}' % number
        producer.produce(topic, value, partition=0, timestamp=FIRST_DAY_MS + number % 3 * 86_400_000)
        if not number % 1000:
            producer.poll(0)
    assert producer.flush(60) == 0
    job.produced += records


def positions(job: KafkaJob) -> dict[str, int]:
    datasets = Job.from_file(job.path).status().datasets
    return {row.dataset: as_offset((row.positions or {"0": -1})["0"]) for row in datasets}


def test_records_before_a_failing_one_are_published_and_the_rest_after_its_repair(
    tmp_path: Path, spark: SparkSession
) -> None:
    def run() -> RunResult:
        return Job.from_file(job.path, session=spark).run()

    with kafka_job(tmp_path, {"bad": 1, "full": 1, "good": 1}, **FLOW) as job:
        produce(job, "bad", BAD + 500, bad=BAD)
        produce(job, "full", BAD + 500, bad=BAD)
        produce(job, "good", 1)
        first = run()
        assert not first.succeeded
        assert positions(job) == {"bad": BATCH_RECORDS, "full": -1, "good": 1}, "another policy keeps nothing of it"
        reasons = {reason.subject: (reason.kind, reason.text) for reason in first.reasons.entries}
        assert {subject: kind for subject, (kind, _) in reasons.items()} == {"bad": "partly failed", "full": "failed"}
        assert "is read up to" in reasons["bad"][1]
        assert "a record is rejected" in reasons["bad"][1]
        audit = job.audit()
        assert (audit.exact, audit.records) == (True, BATCH_RECORDS + 1)
        again = run()
        assert (again.succeeded, again.totals.records_published) == (False, 0), "it stops at the same record"
        job.write(row_checkers=[])
        last = run()
        assert (last.succeeded, last.totals.records_published) == (True, job.produced - BATCH_RECORDS - 1)
        job.assert_exact()


@pytest.mark.slow
def test_run_killed_while_prefixes_are_published_is_exact_in_the_end(tmp_path: Path) -> None:
    topics = {f"bad{number:02d}": 1 for number in range(8)}
    with kafka_job(tmp_path, topics, **FLOW) as job:
        for topic in topics:
            produce(job, topic, BAD + 500, bad=BAD)
        assert killed_in_commit(job.path, job.start), "no run was killed in the middle of its commit"
        code, result, errors = job.cli("run")
        assert (code, result["totals"]["datasets_failed"] > 0) == (1, True), errors[-3000:]
        assert positions(job) == dict.fromkeys(topics, BATCH_RECORDS)
        assert job.audit().exact
        job.write(row_checkers=[])
        job.run()
        job.assert_exact()
