"""Iceberg's sink for Kafka Connect."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sqlite3
import time
import urllib.request
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import psutil
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import StaticTable

from benchmarks.peers.peer import HEAP, Peer, Place
from tests.servers.iceberg_rest import IcebergRestServer
from tests.servers.java import jars
from tests.servers.lossy_proxy import LossyProxy
from tests.servers.process import ServerUnavailableError, free_ports

_SESSION_MS, _WORKERS_S = 10_000, 300.0
_CONNECTOR = "peers"


class IcebergConnect(Peer):
    """A worker of Kafka Connect with two tasks of Iceberg's sink, a table for each topic, created by the sink."""

    name = "iceberg_connect"
    system = "Apache Iceberg 1.12.0, sink for Kafka Connect 4.1.1; REST catalog (Iceberg's own server, on SQLite)"
    settings = {
        "write": "iceberg.tables.dynamic-enabled and auto-create-enabled, routed by topic; Parquet, zstd (the default)",
        "iceberg.control.commit.interval-ms": "the interval",
        "exactly once by": "offsets and snapshots: a control topic, one coordinator, transactions",
        "columns": "value, topic, partition, offset, time, which HoistField and InsertField make",
        "connect": f"standalone worker, tasks.max 2, heap {HEAP}, consumer.session.timeout.ms 10000",
    }
    reads_folders = False

    def __init__(self) -> None:
        self._url, self._catalog = "", Path()
        self._proxy: LossyProxy | None = None
        self._files_of: dict[str, set[Path]] = {}

    def missing(self) -> str:
        try:
            jars("peer-iceberg")
            jars("iceberg_rest")
        except ServerUnavailableError as error:
            return str(error)
        return ""

    @contextlib.contextmanager
    def prepare(self, place: Place) -> Iterator[None]:
        admin = AdminClient({"bootstrap.servers": place.stream.brokers})
        for future in admin.create_topics([NewTopic(_control(place), 1, 1)]).values():
            future.result()
        folder = place.root / "catalog"
        folder.mkdir()
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(IcebergRestServer(folder))
            self._url, self._catalog, self._proxy = server.url, server.pointers, None
            if place.broker_proxy is not None:
                self._proxy = stack.enter_context(LossyProxy(server.port))
                self._url = f"http://127.0.0.1:{self._proxy.port}"
            self._files_of.clear()
            yield

    def command(self, place: Place) -> list[str]:
        worker, connector = place.root / "worker.properties", place.root / "connector.properties"
        _write(worker, self._worker(place) | {"offset.storage.file.filename": str(place.root / "offsets")})
        _write(connector, self._sink(place))
        return [*_java(place), "org.apache.kafka.connect.cli.ConnectStandalone", str(worker), str(connector)]

    @staticmethod
    def _worker(place: Place) -> dict[str, str]:
        return {
            "bootstrap.servers": place.stream.brokers,
            "listeners": f"http://127.0.0.1:{free_ports(1)[0]}",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "plugin.discovery": "only_scan",
            "consumer.session.timeout.ms": str(_SESSION_MS),
            "consumer.metadata.max.age.ms": "10000",
        }

    def _sink(self, place: Place) -> dict[str, str]:
        transforms = "org.apache.kafka.connect.transforms"
        return {
            "name": _name(place),
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "tasks.max": "2",
            "topics.regex": f"{place.stream.prefix}\\..*",
            "transforms": "hoist,insert",
            "transforms.hoist.type": f"{transforms}.HoistField$Value",
            "transforms.hoist.field": "value",
            "transforms.insert.type": f"{transforms}.InsertField$Value",
            "transforms.insert.topic.field": "topic",
            "transforms.insert.partition.field": "partition",
            "transforms.insert.offset.field": "offset",
            "transforms.insert.timestamp.field": "timestamp",
            "iceberg.tables.dynamic-enabled": "true",
            "iceberg.tables.route-field": "topic",
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.control.topic": _control(place),
            "iceberg.control.commit.interval-ms": str(1000 * place.interval_s),
            "iceberg.catalog.type": "rest",
            "iceberg.catalog.uri": self._url,
            "iceberg.catalog.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
            "iceberg.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        }

    def visible(self, place: Place) -> Set[Path]:
        """Return the files by the catalog's pointers and the tables' manifests."""
        with contextlib.closing(sqlite3.connect(f"file:{self._catalog}?mode=ro", uri=True)) as catalog:
            try:
                rows = catalog.execute("SELECT metadata_location FROM iceberg_tables").fetchall()
            except sqlite3.OperationalError:  # it has no table yet
                return set()
        return {path for (location,) in rows for path in self._files_at(location)}

    def _files_at(self, metadata: str) -> set[Path]:
        if metadata not in self._files_of:
            table = StaticTable.from_metadata(metadata)
            snapshot = table.current_snapshot()
            entries = [
                entry.data_file
                for manifest in (snapshot.manifests(table.io) if snapshot else [])
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            ]
            if any(file.content != DataFileContent.DATA for file in entries):
                raise ValueError(f"{metadata} has delete files, which the audit does not read")
            self._files_of[metadata] = {Path(urlparse(file.file_path).path) for file in entries}
        return self._files_of[metadata]

    def asked(self) -> tuple[LossyProxy, bytes] | None:
        return (self._proxy, rb"POST /v1/[^ ]*/tables/[^ ]+ HTTP") if self._proxy is not None else None

    def keep(self, place: Place) -> object:
        """Return the positions of its consumers, by their group."""
        admin = AdminClient({"bootstrap.servers": place.stream.brokers})
        asked = [ConsumerGroupTopicPartitions(f"connect-{_name(place)}")]
        (future,) = admin.list_consumer_group_offsets(asked).values()
        return future.result()

    def put_back(self, place: Place, kept: object) -> None:
        if not isinstance(kept, ConsumerGroupTopicPartitions):
            raise TypeError(kept)
        admin = AdminClient({"bootstrap.servers": place.stream.brokers})
        deadline_s = time.monotonic() + 9 * _SESSION_MS / 1000
        while True:  # the group of a killed worker has members until their sessions end, and accepts no offsets
            with contextlib.suppress(KafkaException):
                (future,) = admin.alter_consumer_group_offsets([kept]).values()
                refused = [one.error for one in future.result().topic_partitions or [] if one.error is not None]
                if not refused and _offsets(self.keep(place)) == _offsets(kept):
                    return
            if time.monotonic() > deadline_s:
                raise TimeoutError("the consumer group takes no offsets")
            time.sleep(1)


def _offsets(group: object) -> set[tuple[str, int, int]]:
    if not isinstance(group, ConsumerGroupTopicPartitions):
        raise TypeError(group)
    return {(one.topic, one.partition, one.offset) for one in group.topic_partitions or []}


class IcebergWorkers(IcebergConnect):
    """Two workers of Kafka Connect, so that the worker whose task coordinates the commits can be killed alone."""

    name = "iceberg_2_workers"
    settings = IcebergConnect.settings | {
        "connect": f"two distributed workers, tasks.max 2, heap {HEAP}, each, consumer.session.timeout.ms 10000, "
        "scheduled.rebalance.max.delay.ms 1000 (5 minutes by default)",
    }
    one_process = False

    def __init__(self) -> None:
        super().__init__()
        self._ports: list[int] = []
        self._configured = False

    @contextlib.contextmanager
    def prepare(self, place: Place) -> Iterator[None]:
        self._ports, self._configured = free_ports(2), False
        with super().prepare(place):
            yield

    def command(self, place: Place) -> list[str]:
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        workers = []
        for port in self._ports:
            file = place.root / f"worker-{port}.properties"
            topics = {
                f"{kind}.storage.{key}": value
                for kind in ("config", "offset", "status")
                for key, value in (("topic", f"connect-{kind}-{place.stream.prefix}"), ("replication.factor", "1"))
            }
            own = {
                "listeners": f"http://127.0.0.1:{port}",
                "group.id": f"workers-{place.stream.prefix}",
                "scheduled.rebalance.max.delay.ms": "1000",
            }
            _write(file, self._worker(place) | topics | own)
            workers.append(shlex.join([*_java(place), main, str(file)]))
        return ["/bin/sh", "-c", f"{workers[0]} & {workers[1]} & wait"]

    def started(self, place: Place) -> None:
        """Create the connector at the first start; the workers store it in a topic."""
        if self._configured:
            return
        settings = json.dumps(self._sink(place)).encode()
        deadline_s = time.monotonic() + _WORKERS_S
        while not self._configured:
            try:
                self._ask(f"/connectors/{_name(place)}/config", settings)
                self._configured = True
            except OSError:
                if time.monotonic() > deadline_s:
                    return  # it shows no record then
                time.sleep(0.5)

    def coordinator(self, place: Place) -> int | None:
        """Return the worker with the task of the first of all partitions, which is the sink's rule."""
        admin = AdminClient({"bootstrap.servers": place.stream.brokers})
        (future,) = admin.describe_consumer_groups([f"connect-{_name(place)}"]).values()
        members = [member for member in future.result().members if member.assignment.topic_partitions]
        if not members:
            return None
        first = min(members, key=lambda member: min((p.topic, p.partition) for p in member.assignment.topic_partitions))
        task = int(first.client_id.rpartition("-")[2])
        tasks = self._ask(f"/connectors/{_name(place)}/status")["tasks"]
        port = next(one["worker_id"].rpartition(":")[2] for one in tasks if one["id"] == task)
        file = str(place.root / f"worker-{port}.properties")
        return next((p.pid for p in psutil.process_iter(["cmdline"]) if _runs(p.info["cmdline"], file)), None)

    def _ask(self, path: str, put: bytes | None = None) -> Any:
        """Return the answer of the first worker that responds."""
        error: OSError = OSError("no worker")
        for port in self._ports:
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}{path}", put, {"Content-Type": "application/json"}
            )
            request.method = "GET" if put is None else "PUT"
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return json.load(answer)
            except OSError as this:
                error = this
        raise error


def _runs(command: list[str] | None, file: str) -> bool:
    return bool(command) and command is not None and command[-1] == file


def _java(place: Place) -> list[str]:
    java = f"{os.environ['JAVA_HOME']}/bin/java" if "JAVA_HOME" in os.environ else "java"
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return [java, f"-Xmx{place.heap}", quiet, "-cp", f"{jars('peer-iceberg')}/*"]


def _name(place: Place) -> str:
    return f"{_CONNECTOR}-{place.stream.prefix}"


def _control(place: Place) -> str:
    return f"control-{place.stream.prefix}"


def _write(path: Path, settings: dict[str, str]) -> None:
    lines = [f"{key}={value}\n".replace("\\", "\\\\") for key, value in settings.items()]
    path.write_text("".join(lines), encoding="utf-8")
