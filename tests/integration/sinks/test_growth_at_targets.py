"""What sinks leave at their targets for each dataset and commit: bounded after a thousand runs.

`pytest -m long -rP tests/integration/sinks/test_growth_at_targets.py` prints the figures that the sinks' pages state.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from deltalake import DeltaTable
from psycopg import sql
from pyiceberg.catalog import load_catalog

from distcommit.core.interfaces.committer import CommitRequest, Committed, CommitterContext
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, Sink, StagingArea
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.sinks.delta.sink import DeltaSink
from distcommit.sinks.iceberg.catalog.open_catalogs import close_opened
from distcommit.sinks.iceberg.sink import IcebergSink
from distcommit.sinks.kafka.client import ledger_topic_id
from distcommit.sinks.kafka.sink import KafkaSink
from distcommit.sinks.mariadb.sink import MariadbSink
from distcommit.sinks.postgresql.sink import PostgresqlSink
from distcommit.sinks.sqlite.sink import SqliteSink
from tests.servers.kafka import KafkaServer
from tests.servers.mariadb import MariadbServer
from tests.servers.postgresql import PostgresServer

RUNS, DATASETS = 1000, 3
FS = LocalFileSystem(durable=False)
NAMES = [f"d{number}" for number in range(DATASETS)]

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(3600)]


def runs(sink: CommitterSink, place: Path) -> Iterator[int]:
    """Commit one record of each dataset a thousand times, and yield the epoch after each commit."""
    for epoch in range(1, RUNS + 1):
        committer = sink.open_committer(CommitterContext(FS, f"{place}/staging", f"{place}/output", "store"))
        requests = [prepared(sink, place, urn, epoch) for urn in NAMES]
        assert committer.commit(requests) == [Committed()] * DATASETS
        committer.close()
        yield epoch


def prepared(sink: Sink, place: Path, urn: str, epoch: int) -> CommitRequest:
    attempt = uuid.uuid4().hex
    (place / "staging" / attempt).mkdir(parents=True)
    area = StagingArea(FS, f"{place}/staging/{attempt}", attempt, f"{place}/output")
    identity = AttemptIdentity(f"run-{epoch}", epoch, urn, "00000_000000", attempt)
    writer = sink.open_writer(identity, area, Origin(Provenance("partition", "offset")))
    writer.write(pa.record_batch([["0"], [epoch - 1], ["value"]], names=["partition", "offset", "value"]))
    return CommitRequest(urn, epoch, tuple(writer.prepare_commit().infos), bases=(epoch - 1,), attempts=(attempt,))


def report(what: str, size: float) -> None:
    print(f"{what}: {size:,.0f} bytes")  # noqa: T201


def test_postgresql(postgres_server: PostgresServer, tmp_path: Path) -> None:
    with postgres_server.connect() as connection:
        connection.execute("CREATE SCHEMA growth")
    server = {"url": postgres_server.url, "password": postgres_server.password, "schema": "growth"}
    sink = PostgresqlSink.model_validate({"type": "postgresql", **server})

    def size_of(what: str) -> int:
        asked = {
            "row": "SELECT max(pg_column_size(l.*)) FROM growth.distcommit_ledger l WHERE store <> ''",
            "ledger": "SELECT pg_total_relation_size('growth.distcommit_ledger')",
            "rows": "SELECT count(*) FROM growth.d0",
        }[what]
        with postgres_server.connect() as connection:
            (size,) = connection.execute(sql.SQL(asked)).fetchone() or (0,)
        return int(size)

    rows = {epoch: size_of("row") for epoch in runs(sink, tmp_path) if epoch in (10, RUNS)}
    report("a dataset's row", rows[RUNS])
    report("the ledger, for each dataset and commit", size_of("ledger") / DATASETS / RUNS)
    report("the ledger", size_of("ledger"))
    assert size_of("rows") == RUNS
    assert rows[RUNS] <= rows[10] + 16, "a row grows by no more than its numbers do"
    assert size_of("ledger") < 512 << 10, "old versions of rows are cleaned"


def test_iceberg(tmp_path: Path) -> None:
    catalog = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    settings = {"type": "iceberg", "catalog": {"type": "sql", **catalog}, "namespace": "n", "table": "events"}
    sink = IcebergSink.model_validate(settings)
    sizes: dict[int, tuple[int, int, int]] = {}
    for epoch in runs(sink, tmp_path):
        if epoch in (10, RUNS // 2, RUNS):
            with load_catalog("default", type="sql", **catalog) as client:
                table = client.load_table("n.events")
            ledger = [path.stat().st_size for path in (tmp_path / "output" / ".distcommit").rglob("*.*")]
            named = sum(len(value) for key, value in table.properties.items() if key.startswith("distcommit."))
            sizes[epoch] = Path(urlparse(table.metadata_location).path).stat().st_size, named, sum(ledger)
    below = [path for path in (tmp_path / "warehouse").rglob("*") if path.is_file() and path.suffix != ".parquet"]
    report("the newest metadata, for each snapshot in it", (sizes[RUNS][0] - sizes[10][0]) / (RUNS - 10))
    report("the ledger's property", sizes[RUNS][1])
    report("ledger files", sizes[RUNS][2])
    report("all metadata, manifests and lists, for each commit", sum(path.stat().st_size for path in below) / RUNS)
    assert sizes[RUNS][1] <= 4096
    assert sizes[RUNS][1] <= sizes[10][1] + 64 * DATASETS, "the ledger does not grow with commits"
    assert sizes[RUNS][2] <= 17 * 4096
    with load_catalog("default", type="sql", **catalog) as client:
        table = client.load_table("n.events")
        old = [snapshot.snapshot_id for snapshot in table.snapshots()[:-1]]
        table.maintenance.expire_snapshots().by_ids(old).commit()
        table = client.load_table("n.events")
        assert table.scan().count() == RUNS * DATASETS
        metadata_bytes = Path(urlparse(table.metadata_location).path).stat().st_size
    report("the newest metadata once snapshots are expired", metadata_bytes)
    assert metadata_bytes < 64 << 10
    close_opened()


def test_mariadb(mariadb_server: MariadbServer, tmp_path: Path) -> None:
    with mariadb_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE growth")
    url = mariadb_server.url.rpartition("/")[0] + "/growth"
    sink = MariadbSink.model_validate({"type": "mariadb", "url": url, "password": mariadb_server.password})

    def asked(what: str) -> int:
        with mariadb_server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(what)
            (size,) = cursor.fetchone() or (0,)
        return int(size)

    def ledger_bytes() -> int:
        return asked("SELECT file_size FROM information_schema.innodb_sys_tablespaces WHERE name LIKE 'growth/%ledger'")

    sizes = {epoch: ledger_bytes() for epoch in runs(sink, tmp_path) if epoch in (10, RUNS)}
    report("the ledger", sizes[RUNS])
    report("the ledger, for each dataset and commit", sizes[RUNS] / DATASETS / RUNS)
    assert asked("SELECT count(*) FROM growth.d0") == RUNS
    assert sizes[RUNS] == sizes[10], "a row is changed in its place"


def test_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "rows.db"
    sink = SqliteSink.model_validate({"type": "sqlite", "path": str(path)})

    def row_bytes() -> int:
        with closing(sqlite3.connect(path)) as file:
            rows = file.execute("SELECT * FROM distcommit_ledger").fetchall()
        return max(sum(len(str(value)) for value in row) for row in rows)

    sizes = {epoch: row_bytes() for epoch in runs(sink, tmp_path) if epoch in (10, RUNS)}
    report("a dataset's row", sizes[RUNS])
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT count(*) FROM distcommit_ledger WHERE store <> ''").fetchall() == [(DATASETS,)]
        assert file.execute("SELECT count(*) FROM d0").fetchall() == [(RUNS,)]
        (free,) = file.execute("PRAGMA freelist_count").fetchone()
    assert sizes[RUNS] <= sizes[10] + 16, "a row grows by no more than its numbers do"
    assert free <= 1


def test_delta(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    settings = {"type": "delta", "location": str(tmp_path / "tables"), "table": "events"}
    sink, sizes = DeltaSink.model_validate(settings), dict[int, int]()
    for epoch in runs(sink, tmp_path):
        if epoch in (10, RUNS):
            ledger = [path.stat().st_size for path in (tmp_path / "output" / ".distcommit").rglob("*.*")]
            sizes[epoch] = sum(ledger)
            assert len(ledger) <= 18
    entries = [path.stat().st_size for path in (tmp_path / "tables").rglob("*.json")]
    everything = [path.stat().st_size for path in (tmp_path / "tables").glob("*/_delta_log/*")]
    report("ledger files", sizes[RUNS])
    report("an entry of the log", sum(entries) / len(entries))
    report("the log, checkpoints too, for each commit", sum(everything) / RUNS)
    assert sizes[RUNS] <= 17 * 4096
    assert sizes[RUNS] <= sizes[10] + 64 * DATASETS, "the ledger does not grow with commits"
    table = DeltaTable(tmp_path / "tables" / "events")
    assert len(table.to_pyarrow_table(columns=["offset"])) == RUNS * DATASETS


def test_kafka(kafka_server: KafkaServer, tmp_path: Path) -> None:
    brokers, ledger = kafka_server.bootstrap_servers, "growth.ledger"
    target = {"brokers": brokers, "topic": "growth-{dataset}", "create": True, "ledger": ledger}
    sink = KafkaSink.model_validate({"type": "kafka", **target, "transactional_ids": 1, "format": "json", "key": ""})
    ledger_topic_id(sink.target(), "the first")
    admin = AdminClient({"bootstrap.servers": brokers})
    segment = 1 << 20  # the smallest value that brokers accept; the sink requests more, so that compaction is rarer
    smaller = ConfigEntry("segment.bytes", str(segment), incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ResourceType.TOPIC, ledger, incremental_configs=[smaller])
    (asked,) = admin.incremental_alter_configs([topic]).values()
    asked.result()
    folder, sizes = kafka_server.data_folder / f"{ledger}-0", list[int]()
    for _ in runs(sink, tmp_path):
        sizes.append(sum(path.stat().st_size for path in folder.glob("*.log")))
    grown = [after - before for before, after in pairwise(sizes) if after > before]
    report("written to the ledger for each dataset and commit", sum(grown) / len(grown) / DATASETS)
    report("the ledger's partition at its largest", max(sizes))
    report("the ledger's partition in the end", sizes[-1])
    assert sum(grown) > segment, "else nothing was there to compact"
    assert max(sizes) < 3 * segment
