"""One server of each kind per test session, started for the first test that requests it.

If a server is unavailable, tests that request it are skipped (`tests/conftest.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.azure import AzureServer
from tests.servers.google_storage import GoogleStorageServer
from tests.servers.hdfs import HdfsServer
from tests.servers.iceberg_rest import IcebergRestServer
from tests.servers.kafka import KafkaServer
from tests.servers.mariadb import MariadbServer
from tests.servers.nessie import NessieServer
from tests.servers.postgresql import PostgresServer
from tests.servers.registry import RegistryServer
from tests.servers.rest import RestServer
from tests.servers.s3 import S3Server
from tests.servers.smb import SmbServer
from tests.servers.spark import SparkCluster, SparkConnectServer


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[KafkaServer]:
    """Yield a Kafka broker. Tests share it: use unique names for topics, groups and transactions."""
    with KafkaServer() as server:
        yield server


@pytest.fixture(scope="session")
def kafka_pair() -> Iterator[KafkaServer]:
    """Yield two Kafka brokers; a test may kill the second and then starts it again."""
    with KafkaServer(brokers=2) as server:
        yield server


@pytest.fixture(scope="session")
def hdfs_server() -> Iterator[HdfsServer]:
    """Yield HDFS with a NameNode, two DataNodes and WebHDFS. Tests share it: use a folder of your own."""
    with HdfsServer() as server:
        yield server


@pytest.fixture(scope="session")
def hdfs_pair() -> Iterator[HdfsServer]:
    """Yield HDFS with a name service of two NameNodes; each test begins by making the first one active."""
    with HdfsServer(name_nodes=2) as server:
        yield server


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[SparkCluster]:
    """Yield a Spark master with two workers. A test that kills a worker starts it again."""
    with SparkCluster() as server:
        yield server


@pytest.fixture(scope="session")
def spark_connect() -> Iterator[SparkConnectServer]:
    """Yield a Spark Connect server."""
    with SparkConnectServer() as server:
        yield server


@pytest.fixture(scope="session")
def registry_server() -> Iterator[RegistryServer]:
    """Yield a schema registry. Tests share it: use subjects of your own."""
    with RegistryServer() as server:
        yield server


@pytest.fixture(scope="session")
def iceberg_rest_server() -> Iterator[IcebergRestServer]:
    """Yield an Iceberg REST catalog. Tests share it: use a namespace of your own."""
    with IcebergRestServer() as server:
        yield server


@pytest.fixture(scope="session")
def nessie_server() -> Iterator[NessieServer]:
    """Yield an Iceberg REST catalog that changes several tables by one call.

    Tests share it: use a namespace of your own. A test that kills it starts it again.
    """
    with NessieServer() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Yield a PostgreSQL server. Tests share it: use a schema of your own. A test that kills it starts it again."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def preparing_server() -> Iterator[PostgresServer]:
    """Yield a PostgreSQL server that prepares transactions.

    Tests share it: leave none. A test that kills it starts it again.
    """
    with PostgresServer("max_prepared_transactions=200") as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariadbServer]:
    """Yield a MariaDB server. Tests share it: use a database of your own. A test that kills it starts it again."""
    with MariadbServer() as server:
        yield server


@pytest.fixture(scope="session")
def rest_server() -> Iterator[RestServer]:
    """Yield a server of lists of records. Tests share it: use lists of your own."""
    with RestServer() as server:
        yield server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """Yield an S3 server. Tests share it: use a bucket of your own."""
    with S3Server() as server:
        yield server


@pytest.fixture(scope="session")
def azure_server() -> Iterator[AzureServer]:
    """Yield a server of Azure Blob Storage. Tests share it: use a container of your own."""
    with AzureServer() as server:
        yield server


@pytest.fixture(scope="session")
def google_storage_server() -> Iterator[GoogleStorageServer]:
    """Yield a server of Google Cloud Storage. Tests share it: use a bucket of your own."""
    with GoogleStorageServer() as server:
        yield server


@pytest.fixture(scope="session")
def smb_server() -> Iterator[SmbServer]:
    """Yield an SMB server with the share `data`. Tests share it: use a folder of your own."""
    with SmbServer() as server:
        yield server
