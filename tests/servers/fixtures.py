"""One server of each kind per test session, started when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import TypeVar

import pytest

from tests.servers.hdfs import HdfsServer
from tests.servers.kafka import KafkaServer
from tests.servers.process import ServerUnavailableError
from tests.servers.s3 import S3Server
from tests.servers.smb import SmbServer
from tests.servers.spark import SparkCluster, SparkConnectServer

T = TypeVar("T")


def _started(server: AbstractContextManager[T]) -> Iterator[T]:
    with ExitStack() as stack:
        try:
            started = stack.enter_context(server)
        except ServerUnavailableError as error:
            pytest.skip(str(error))
        yield started


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[KafkaServer]:
    """A Kafka broker. Tests share it: use names of your own for topics, groups and transactions."""
    yield from _started(KafkaServer())


@pytest.fixture(scope="session")
def kafka_pair() -> Iterator[KafkaServer]:
    """Two Kafka brokers; a test may kill the second and starts it again."""
    yield from _started(KafkaServer(brokers=2))


@pytest.fixture(scope="session")
def hdfs_server() -> Iterator[HdfsServer]:
    """HDFS with a NameNode, two DataNodes and WebHDFS. Tests share it: use a folder of your own."""
    yield from _started(HdfsServer())


@pytest.fixture(scope="session")
def hdfs_pair() -> Iterator[HdfsServer]:
    """HDFS with a name service of two NameNodes; each test begins by making the first one active."""
    yield from _started(HdfsServer(name_nodes=2))


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[SparkCluster]:
    """A Spark master with two workers. A test that kills a worker starts it again."""
    yield from _started(SparkCluster())


@pytest.fixture(scope="session")
def spark_connect() -> Iterator[SparkConnectServer]:
    """A Spark Connect server."""
    yield from _started(SparkConnectServer())


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 server. Tests share it: use a bucket of your own."""
    yield from _started(S3Server())


@pytest.fixture(scope="session")
def smb_server() -> Iterator[SmbServer]:
    """An SMB server with the share `data`. Tests share it: use a folder of your own."""
    yield from _started(SmbServer())
