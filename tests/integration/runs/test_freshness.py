"""A topic with a backlog beside small topics: how much a run reads of it, and the lag that `status` reports."""

from __future__ import annotations

import shlex
from pathlib import Path

from confluent_kafka import Producer

from tests.jobs.commands_here import run_here
from tests.jobs.kafka_job import PACKAGE_ROOT, KafkaJob, kafka_job

BIG, PER_RUN = 60_000, 45_000


def produce(job: KafkaJob, topic: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": job.broker.bootstrap_servers, "linger.ms": 5})
    for number in range(records):
        producer.produce(topic, f'{{"n": {number}}}', partition=0, timestamp=1_700_000_000_000)
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    job.produced += records


def test_backlog_shrinks_run_by_run_and_status_reports_it(tmp_path: Path) -> None:
    topics = {"big": 1, "quiet": 1, "small": 1}
    freshness = {"targets": [{"datasets": ["big"], "target": "30m"}], "records_per_run": PER_RUN}
    with kafka_job(tmp_path, topics, freshness=freshness) as job:
        job.run()
        produce(job, "big", BIG)
        produce(job, "small", 3)
        totals = job.run()["totals"]
        assert totals["records_published"] == PER_RUN + 3
        _, status, _ = job.cli("status")
        (trouble,) = status["problems"]
        assert trouble["finding"].startswith("big was behind the freshness target when the last run began: big: ")
        assert trouble["finding"].endswith(f"target 1800 s; left for later runs: {BIG - PER_RUN:,} records")
        listed = run_here(shlex.split(trouble["command"])[1:], PACKAGE_ROOT).stdout
        lines = [line for line in listed.splitlines() if line.strip().startswith(("big", "quiet", "small"))]
        assert [line.split()[0] for line in lines] == ["big", "quiet", "small"], "the worst first"
        assert f"{BIG - PER_RUN:,}" in lines[0]
        assert job.run()["totals"]["records_published"] == BIG - PER_RUN
        assert job.cli("status")[1]["problems"] == []
        job.assert_exact()
