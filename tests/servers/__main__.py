"""`python -m tests.servers kafka|registry|hdfs|postgresql|mariadb|spark|s3|azure|google|smb`: start a server.

It runs until Ctrl-C, and prints the server's addresses as shell variables. Each server is imported when it is asked
for, because some need packages of an extra. If one is missing, the error has the command that installs it.
"""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from distcommit.core.support.install_command import install_command
from tests.servers.process import ServerUnavailableError


@contextmanager
def _kafka() -> Iterator[str]:
    from tests.servers.kafka import KafkaServer

    with KafkaServer() as server:
        yield f"BROKERS={server.bootstrap_servers}"


@contextmanager
def _registry() -> Iterator[str]:
    from tests.servers.registry import RegistryServer

    with RegistryServer() as server:
        yield f"REGISTRY={server.url}"


@contextmanager
def _hdfs() -> Iterator[str]:
    from tests.servers.hdfs import HdfsServer

    with HdfsServer() as server:
        yield f"HADOOP_CONF_DIR={server.conf_dir} NAMENODE={server.authority} WEBHDFS={server.web_authority}"


@contextmanager
def _postgresql() -> Iterator[str]:
    from tests.servers.postgresql import PostgresServer

    with PostgresServer() as server:
        yield f'URL={server.url} PASSWORD="{server.password}"'


@contextmanager
def _mariadb() -> Iterator[str]:
    from tests.servers.mariadb import MariadbServer

    with MariadbServer() as server:
        yield f'URL={server.url} PASSWORD="{server.password}"'


@contextmanager
def _spark() -> Iterator[str]:
    from tests.servers.spark import SparkCluster

    with SparkCluster() as cluster:
        yield f"MASTER={cluster.master}"


@contextmanager
def _s3() -> Iterator[str]:
    from tests.servers.s3 import S3Server

    with S3Server() as server:
        shown = " ".join(f"{name}={value}" for name, value in server.environment.items())
        yield f"{shown} BUCKET={server.make_bucket()}"


@contextmanager
def _azure() -> Iterator[str]:
    from tests.servers.azure import AzureServer

    with AzureServer() as server:
        shown = " ".join(f"{name}={value}" for name, value in server.environment.items())
        yield f"{shown} CONTAINER={server.make_container()}"


@contextmanager
def _google() -> Iterator[str]:
    from tests.servers.google_storage import GoogleStorageServer

    with GoogleStorageServer() as server:
        shown = " ".join(f"{name}={shlex.quote(value)}" for name, value in server.environment.items())
        yield f"{shown} BUCKET={server.make_bucket()}"


@contextmanager
def _smb() -> Iterator[str]:
    from tests.servers.smb import SmbServer

    with SmbServer() as server:
        shown = " ".join(f'{name}="{value}"' for name, value in server.environment.items())
        yield f"{shown} SHARE=smb://{server.authority}/data"


SERVERS: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "kafka": _kafka,
    "registry": _registry,
    "hdfs": _hdfs,
    "postgresql": _postgresql,
    "mariadb": _mariadb,
    "spark": _spark,
    "s3": _s3,
    "azure": _azure,
    "google": _google,
    "smb": _smb,
}

USES = {"kafka": "set source.brokers to the address after BROKERS=; "}
"""The setting that the printed address is for."""

EXTRAS = {"postgresql": "sql-source", "mariadb": "sql-source"}
"""The smallest extra with the packages of a server; of all other servers it is `dev`."""


def main(arguments: list[str]) -> int:
    """Run one server until a signal comes."""
    if len(arguments) != 1 or arguments[0] not in SERVERS:
        print(f"usage: python -m tests.servers {'|'.join(SERVERS)}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with SERVERS[arguments[0]]() as how_to_reach_it:
            print(how_to_reach_it, flush=True)
            print(f"{USES.get(arguments[0], '')}Ctrl-C ends it", file=sys.stderr)
            signal.pause()
    except ServerUnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        command = install_command(EXTRAS.get(arguments[0], "dev"))
        print(f"package {error.name} is missing; run: {command}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
