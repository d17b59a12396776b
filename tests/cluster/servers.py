"""A Kafka, an HDFS and a Spark cluster, and a job that uses them."""

from __future__ import annotations

import contextlib
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.jobs.kafka_job import PACKAGE_ROOT, KafkaJob
from tests.servers.hdfs import HdfsServer
from tests.servers.kafka import KafkaServer
from tests.servers.spark import SparkCluster

_TOPICS_PER_REQUEST = 250


@dataclass(frozen=True, slots=True)
class Servers:
    """All three servers, running."""

    kafka: KafkaServer
    hdfs: HdfsServer
    spark: SparkCluster


@contextlib.contextmanager
def servers(brokers: int = 1, broker_heap_mb: int = 512) -> Iterator[Servers]:
    """Start all three servers.

    Raises:
        ServerUnavailableError: if one is unavailable on this machine.
    """
    with KafkaServer(brokers, broker_heap_mb) as kafka, HdfsServer() as hdfs, SparkCluster() as spark:
        yield Servers(kafka, hdfs, spark)


def cluster_job(at: Servers, folder: Path, topics: Mapping[str, int], **sections: object) -> KafkaJob:
    """Create these topics (partitions by name), with a copy on each broker, and a job on the cluster with all
    folders on HDFS."""
    client = AdminClient({"bootstrap.servers": at.kafka.bootstrap_servers})
    remaining = iter(topics.items())
    while part := list(islice(remaining, _TOPICS_PER_REQUEST)):
        requested = [NewTopic(topic, partitions, at.kafka.brokers) for topic, partitions in part]
        for creation in client.create_topics(requested, request_timeout=120).values():
            creation.result()
    job = KafkaJob(folder, at.kafka, dict(topics))
    place = f"hdfs://{at.hdfs.authority}/jobs/{uuid.uuid4().hex}"
    job.write(paths={name: f"{place}/{name}" for name in ("store", "staging", "output")})
    spark = {
        "master": at.spark.master,
        "conf": {
            "spark.driver.host": "127.0.0.1",
            "spark.pyspark.python": sys.executable,
            "spark.executorEnv.PYTHONPATH": str(PACKAGE_ROOT),
            "spark.executor.memory": "768m",
        },
    }
    job.write(spark=spark)
    job.write(**sections)
    return job
