"""A Gobblin job that writes Kafka topics to files is converted, run and audited."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner

from distcommit import Job
from distcommit.cli.main import app
from tests.jobs.kafka_job import KafkaJob, kafka_job
from tests.servers.hdfs import HdfsServer
from tests.servers.kafka import KafkaServer

EXAMPLE = """\
# The quick start of Gobblin's users, Kafka to a file system, by its documented properties
include = common.properties
job.name = FromKafka
job.group = Kafka
job.description = topics of the shop, \\
    by Gobblin
source.class = org.apache.gobblin.source.extractor.extract.kafka.KafkaSimpleSource
topic.whitelist = {topics}
topic.blacklist = .*\\\\.secret
bootstrap.with.offset = earliest
extract.namespace = org.apache.gobblin.extract.kafka
writer.builder.class = org.apache.gobblin.writer.SimpleDataWriterBuilder
writer.file.path.type = tablename
writer.destination.type = HDFS
writer.output.format = txt
data.publisher.type = org.apache.gobblin.publisher.BaseDataPublisher
job.commit.policy = full
job.lock.enabled = false
job.schedule = 0 0/5 * * * ?
mr.job.max.mappers = 4
task.maxretries = 1
metrics.enabled = true
"""
COMMON = """\
launcher.type = LOCAL
kafka.brokers = {brokers}
work.dir = {folder}
state.store.dir = ${{work.dir}}/state-store
writer.staging.dir = ${{work.dir}}/task-staging
data.publisher.final.dir = ${{work.dir}}/job-output
"""


def converted(folder: Path, brokers: str, place: str, topics: str, more: str = "") -> Path:
    """Convert the example and return the job file; each property must be converted or named as left out."""
    (folder / "common.properties").write_text(COMMON.format(brokers=brokers, folder=place) + more)
    (folder / "shop.pull").write_text(EXAMPLE.format(topics=topics))
    result = CliRunner().invoke(
        app, ["migrate", "convert-gobblin", str(folder / "shop.pull"), "-o", str(folder / "job.yaml")]
    )
    assert result.exit_code == 0, result.output
    return folder / "job.yaml"


def test_a_converted_job_runs_and_is_exact(tmp_path: Path) -> None:
    topics = {"shop.orders": 2, "shop.items": 1, "shop.secret": 1, "other": 1}
    (tmp_path / "producer").mkdir()
    with kafka_job(tmp_path / "producer", topics) as produced:
        produced.produce(5)
        file = converted(tmp_path, produced.broker.bootstrap_servers, str(tmp_path / "work"), "shop\\\\..*")
        job = KafkaJob(tmp_path, produced.broker, {"shop.orders": 2, "shop.items": 1}, produced=15)
        job.config = produced.config
        result = job.run()
        assert result["totals"]["records_published"] == 15
        job.assert_exact()
        job.produce(3)
        job.run()
        job.assert_exact()
    folders = {path.name for path in (tmp_path / "work/job-output/FromKafka").iterdir() if path.name[0] != "."}
    assert folders == {"shop.orders", "shop.items"}
    assert yaml.safe_load(file.read_text())["schedule"] == {"cron": "*/5 * * * *"}


@pytest.mark.slow
def test_converted_job_runs_on_real_kafka_and_hdfs(
    tmp_path: Path, kafka_server: KafkaServer, hdfs_server: HdfsServer
) -> None:
    topic = f"{uuid.uuid4().hex[:8]}.orders"
    admin = AdminClient({"bootstrap.servers": kafka_server.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": kafka_server.bootstrap_servers})
    for number in range(20):
        producer.produce(topic, str(number))
    assert producer.flush(30) == 0
    system = f"fs.uri = hdfs://{hdfs_server.authority}\n"
    file = converted(
        tmp_path, kafka_server.bootstrap_servers, f"/jobs/{uuid.uuid4().hex}", topic.replace(".", "\\\\."), system
    )
    job = KafkaJob(tmp_path, kafka_server, {topic: 1}, produced=20)
    job.run()
    job.assert_exact()
    assert Job.from_file(file).open_store(create=False).fs.scheme == "hdfs"
