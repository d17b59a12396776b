"""Topics of one broker to topics of a real one: killed at random moments, exact by a plain consumer, also after a
lost store."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer

from distcommit import Job
from tests.jobs.kafka_job import KafkaJob, kafka_job
from tests.jobs.victims import strike
from tests.servers.kafka import KafkaServer
from tests.servers.kafka_records import committed_records

TOPICS = {f"topic-{number:02d}": 2 for number in range(12)}
KILLS, RECORDS = 3, 300


def write_job(job: KafkaJob, server: KafkaServer) -> None:
    """Write a job file with a Kafka sink instead of files."""
    job.write(commit={"buckets": 4, "min_interval_ms": 0})
    written = yaml.safe_load(job.path.read_text())
    topics = {"topic": "copied-{dataset}", "ledger": "copied.ledger", "create": True}
    more = {"transactional_ids": 3, "transaction_timeout_s": 10, "key": ""}
    written["sink"] = {"type": "kafka", "brokers": server.bootstrap_servers, **topics, **more}
    job.path.write_text(yaml.safe_dump(written))


def topic_records(server: KafkaServer) -> Counter[int]:
    """Return how often each record occurs in any topic; raise TimeoutError if an open transaction blocks readers."""
    records = committed_records(server.bootstrap_servers, [f"copied-{topic}" for topic in TOPICS])
    return Counter(json.loads(record.value() or b"")["n"] for record in records)


def of_topic(server: KafkaServer, topic: str) -> list[bytes]:
    """Return the values of all committed or non-transactional messages of a topic."""
    return [record.value() or b"" for record in committed_records(server.bootstrap_servers, [topic])]


@pytest.mark.slow
def test_runs_killed_at_random_moments_publish_each_record_once_also_after_a_lost_store(
    tmp_path: Path, kafka_server: KafkaServer
) -> None:
    rng = random.Random(17)
    with kafka_job(tmp_path, TOPICS) as job:
        write_job(job, kafka_server)
        for _ in range(KILLS):
            before = job.produced
            job.produce(RECORDS)
            with job.start() as run:
                begun_s = time.monotonic()
                while run.wait(0.002) is None and time.monotonic() < begun_s + 120:
                    if topic_records(kafka_server).total() > before:  # some datasets are committed
                        break
                time.sleep(rng.random() * 0.3)
                assert strike(run, "all", signal.SIGKILL, rng), "it had ended before"
        job.run()
        assert topic_records(kafka_server) == dict.fromkeys(range(job.produced), 1)
        status = Job.from_file(job.path).status()
        assert {row.status for row in status.datasets} == {"idle"}
        assert len(status.datasets) == len(TOPICS)
        job.assert_exact()

        shutil.rmtree(tmp_path / "store")
        rebuilt = Job.from_file(job.path).rebuild()
        assert not rebuilt.problems, rebuilt
        job.produce(RECORDS)
        job.run()
        assert topic_records(kafka_server) == dict.fromkeys(range(job.produced), 1)
        job.assert_exact()

        other = Producer({"bootstrap.servers": kafka_server.bootstrap_servers})
        other.produce("copied-topic-03", b"{}")
        assert other.flush(20) == 0
        shallow, deep = job.audit(deep=False), Job.from_file(job.path).audit(deep=True)
        assert shallow.exact, shallow
        assert not deep.exact
        (altered,) = deep.altered
        assert "topic-03" in altered
        assert f"readers see {len(of_topic(kafka_server, 'copied-topic-03'))}" in altered
