"""The Iceberg sink keeps what a sink has to keep, with a catalog in SQLite, in PostgreSQL and behind REST, of two
servers."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlparse

import boto3
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from distcommit.core.interfaces.committer import AbortedAttempt, AlreadyCommitted, CommitRequest, Committed, RetryLater
from distcommit.core.interfaces.sink import SinkWriter
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.sinks.base.table_names import plain_name
from distcommit.sinks.iceberg.catalog.opening import close_opened
from distcommit.sinks.iceberg.sink import IcebergSink
from distcommit.sinks.iceberg.writer import IcebergWriter
from distcommit.sinks.table_formats import committer
from distcommit.testing.contracts import LaterEpochs, SinkContract
from distcommit.testing.contracts.sink_under_test import SinkUnderTest, batch_of
from tests.contract.maintained import ReplayAfterMaintenance
from tests.servers.iceberg_rest import IcebergRestServer
from tests.servers.nessie import NessieServer
from tests.servers.postgresql import PostgresServer
from tests.servers.s3 import S3Server

_DATASETS = {plain_name(urn): urn for urn in ("a", "b", "c", "b/ü")}


def files_in(table: Table) -> list[str]:
    """Where the data files of a table are."""
    return [task.file.file_path for task in table.scan().plan_files()]


class _Tables(SinkUnderTest):
    """A table for each dataset."""

    preloaded = (
        "distcommit.sinks.iceberg.committer",
        "pyarrow.dataset",
        "pyiceberg.catalog.rest",
        "pyiceberg.catalog.sql",
        "pyiceberg.io.pyarrow",
        "sqlalchemy.dialects.postgresql.psycopg",
        "sqlalchemy.dialects.sqlite.pysqlite",
    )
    committer_bases = (committer.__file__,)

    def catalog(self, place: Path) -> dict[str, str]:
        """The catalog's settings, another one for each place."""
        return {"type": "sql", "uri": f"sqlite:///{place}/catalog.db", "warehouse": f"file://{place}/warehouse"}

    def namespace(self, place: Path) -> str:
        """Where the tables are."""
        return "ingest"

    def make_sink(self, place: Path) -> CommitterSink:
        return IcebergSink.model_validate(
            {"type": "iceberg", "catalog": self.catalog(place), "namespace": self.namespace(place)}
        )

    @pytest.fixture(autouse=True)
    def _close(self) -> Iterator[None]:
        yield
        close_opened()

    def observe(self, place: Path) -> Sequence[tuple[str, int]]:
        close_opened()  # a test has many places, each with a catalog of its own, and the server a hundred connections
        with load_catalog(**{"name": "default", **self.catalog(place)}) as client:
            return self.seen_by(client, place)

    def seen_by(self, client: Catalog, place: Path) -> Sequence[tuple[str, int]]:
        """What pyiceberg alone finds."""
        if not client.namespace_exists(self.namespace(place)):
            return []
        return [
            (_DATASETS[name], offset)
            for _, name in client.list_tables(self.namespace(place))
            for offset in client.load_table((self.namespace(place), name)).scan().to_arrow()["offset"].to_pylist()
        ]

    def in_doubt(self, place: Path) -> int:
        """Data files that no version of a table has."""
        close_opened()
        with load_catalog(**{"name": "default", **self.catalog(place)}) as client:
            tables = [client.load_table(name) for name in client.list_tables(self.namespace(place))]
            live = {urlparse(path).path for table in tables for path in files_in(table)}
            places = (table.properties.get("write.data.path", table.location()) for table in tables)
            folders = [Path(urlparse(place).path) for place in places]
        there = {str(path) for folder in folders for path in folder.rglob("*.parquet")}
        return len(there - live)

    def lose(self, place: Path, request: CommitRequest) -> bool:
        Path(urlparse(request.infos[-1]["files"][0]["path"]).path).unlink()
        return True


class _OnIceberg(_Tables, SinkContract):
    """The whole contract."""


class TestSqliteCatalog(_OnIceberg):
    def cut_off(self, place: Path) -> bool:
        with sqlite3.connect(place / "catalog.db") as db:
            db.execute("ALTER TABLE iceberg_tables RENAME TO elsewhere")
        db.close()
        return True


class TestLaterEpochs(_Tables, LaterEpochs):
    """Tables that have records already."""


class TestMaintainedTables(_Tables, ReplayAfterMaintenance):
    """pyiceberg maintains a table for each dataset."""

    def maintain(self, place: Path, pending: Sequence[CommitRequest]) -> None:
        close_opened()
        keep = {file["path"] for request in pending for info in request.infos for file in info["files"]}
        with load_catalog(**{"name": "default", **self.catalog(place)}) as client:
            for name in client.list_tables(self.namespace(place)):
                table = client.load_table(name)
                table.overwrite(table.scan().to_arrow())
                snapshot = table.current_snapshot()
                assert snapshot is not None
                older = [each.snapshot_id for each in table.snapshots() if each.snapshot_id != snapshot.snapshot_id]
                table.maintenance.expire_snapshots().by_ids(older).commit()
                self._delete_orphans(client.load_table(name), keep)

    def _delete_orphans(self, table: Table, keep: Set[str]) -> None:
        """Delete the files of a table that its current version does not name."""
        (snapshot,) = table.snapshots()
        manifests = [each.manifest_path for each in snapshot.manifests(table.io)]
        assert len(files_in(table)) == 1
        named = {table.metadata_location, snapshot.manifest_list, *manifests, *files_in(table), *keep}
        paths = {urlparse(each).path for each in named}
        for path in Path(urlparse(table.location()).path).rglob("*"):
            if path.is_file() and str(path) not in paths:
                path.unlink()


class TestOneTable(TestSqliteCatalog):
    """A table for all datasets, which are a commit group. Which dataset a record is of its file's name says, by the
    attempt that has written it."""

    def make_sink(self, place: Path) -> CommitterSink:
        settings = {"catalog": self.catalog(place), "namespace": self.namespace(place), "table": "events"}
        return IcebergSink.model_validate({"type": "iceberg", **settings})

    def writer(self, place: Path, urn: str, epoch: int, attempt: str = "", **more: Any) -> SinkWriter:
        attempt = attempt or uuid.uuid4().hex
        self.datasets = {**getattr(self, "datasets", {}), attempt: urn}
        return super().writer(place, urn, epoch, attempt, **more)

    def seen_by(self, client: Catalog, place: Path) -> Sequence[tuple[str, int]]:
        if not client.table_exists((self.namespace(place), "events")):
            return []
        paths = files_in(client.load_table((self.namespace(place), "events")))
        return [
            (self.datasets[Path(path).name.split("-")[2]], offset)
            for path in paths
            for offset in pq.read_table(urlparse(path).path)["offset"].to_pylist()
        ]

    def test_commit_killed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Every twentieth line: they are the same lines."""
        self.kill_before_lines(tmp_path, apart=20)


class TestWarehouseOnS3(TestSqliteCatalog):
    """Tables' files are in a bucket, the catalog is in a file."""

    @pytest.fixture(autouse=True)
    def _bucket(self, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in s3_server.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")  # moto takes no other
        self.bucket, self.endpoint = s3_server.make_bucket(), s3_server.endpoint_url

    def catalog(self, place: Path) -> dict[str, str]:
        told = {"warehouse": f"s3://{self.bucket}/{self.prefix(place)}", "s3.endpoint": self.endpoint}
        return {"type": "sql", "uri": f"sqlite:///{place}/catalog.db", "s3.region": "us-east-1", **told}

    def prefix(self, place: Path) -> str:
        return sha256(str(place).encode()).hexdigest()

    def in_doubt(self, place: Path) -> int:
        """Data files that no version of a table has, and what was begun to be sent."""
        close_opened()
        with load_catalog(**{"name": "default", **self.catalog(place)}) as client:
            tables = [client.load_table(name) for name in client.list_tables(self.namespace(place))]
            live = {urlparse(path).path.lstrip("/") for table in tables for path in files_in(table)}
        asked = boto3.client("s3")
        uploads = asked.list_multipart_uploads(Bucket=self.bucket, Prefix=self.prefix(place)).get("Uploads", ())
        there = asked.list_objects_v2(Bucket=self.bucket, Prefix=self.prefix(place)).get("Contents", ())
        return len({each["Key"] for each in there if each["Key"].endswith(".parquet")} - live) + len(uploads)

    def lose(self, place: Path, request: CommitRequest) -> bool:
        key = urlparse(request.infos[-1]["files"][0]["path"]).path.lstrip("/")
        boto3.client("s3").delete_object(Bucket=self.bucket, Key=key)
        return True

    def test_what_a_dead_writer_had_begun_to_send_is_given_up(self, tmp_path: Path) -> None:
        won = self.prepare(tmp_path, "a", 1, [0])
        dead = self.writer(tmp_path, "a", 1, "dead")
        dead.write(batch_of(0))
        assert isinstance(dead, IcebergWriter)
        dead._flush()  # as 64 MB of rows would
        asked = boto3.client("s3")
        assert len(asked.list_multipart_uploads(Bucket=self.bucket)["Uploads"]) == 1
        assert self.commit(tmp_path, won) == [Committed()]
        for _ in range(2):
            self.discard(tmp_path, AbortedAttempt(1, "unit", "dead", "dead"))
        assert self.in_doubt(tmp_path) == 0
        assert self.seen(tmp_path) == [("a", 0)]

    @pytest.mark.slow
    def test_commit_killed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Some lines: they are those of a warehouse on a disk, and each process takes seconds for its clients."""
        self.kill_before_lines(tmp_path, apart=100)


class _OnServer(_OnIceberg):
    """The committer's lines are those of the other catalog, and each commit takes longer."""

    def test_commit_killed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Every fifth line: all are minutes, in the long profile."""
        self.kill_before_lines(tmp_path, apart=5)

    @pytest.mark.slow
    @pytest.mark.long
    @pytest.mark.timeout(1800)
    def test_killed_at_each_line_it_is_committed_by_the_next(self, tmp_path: Path) -> None:
        self.kill_before_lines(tmp_path)


class TestPostgresCatalog(_OnServer):
    """Tests share the database: each place is a catalog of its own in it."""

    server: PostgresServer

    @pytest.fixture(autouse=True)
    def _server(self, postgres_server: PostgresServer) -> None:
        type(self).server = postgres_server

    def catalog(self, place: Path) -> dict[str, str]:
        host = self.server.url.removeprefix("postgresql://reader@")
        return {
            "type": "sql",
            "name": sha256(str(place).encode()).hexdigest(),
            "uri": f"postgresql+psycopg://reader:{quote(self.server.password)}@{host}",
            "warehouse": f"file://{place}/warehouse",
        }


class TestRestCatalog(_OnServer):
    """Tests share the catalog: each place is a namespace of its own in it."""

    server: IcebergRestServer

    @pytest.fixture(autouse=True)
    def _server(self, iceberg_rest_server: IcebergRestServer) -> None:
        type(self).server = iceberg_rest_server

    def catalog(self, place: Path) -> dict[str, str]:
        return {"type": "rest", "uri": self.server.url}

    def namespace(self, place: Path) -> str:
        return f"n{sha256(str(place).encode()).hexdigest()}"


class TestNessieCatalog(_OnServer):
    """It changes several tables by one call. Its own files are elsewhere, the tables' in a folder."""

    server: NessieServer

    def test_commit_killed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Every twenty-fifth line, as it is the slowest of them."""
        self.kill_before_lines(tmp_path, apart=25)

    def test_concurrent_commits_commit_once(self, tmp_path: Path) -> None:
        """To tables that have records: before version 0.101.1 Nessie does not see that one is not empty any more."""
        first, then = ([self.prepare(tmp_path, urn, epoch, [epoch]) for urn in ("a", "b", "c")] for epoch in (1, 2))
        assert self.commit(tmp_path, *first) == [Committed()] * 3
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: self.commit(tmp_path, *then), range(8)))
        for outcomes in zip(*answers, strict=True):
            assert all(isinstance(outcome, Committed | AlreadyCommitted | RetryLater) for outcome in outcomes), outcomes
            assert outcomes.count(Committed()) <= 1
        self.commit(tmp_path, *then)
        assert self.seen(tmp_path) == [(urn, offset) for urn in ("a", "b", "c") for offset in (1, 2)]

    @pytest.fixture(autouse=True)
    def _server(self, nessie_server: NessieServer) -> None:
        type(self).server = nessie_server

    def catalog(self, place: Path) -> dict[str, str]:
        return {"type": "rest", "uri": self.server.url}

    def namespace(self, place: Path) -> str:
        return f"n{sha256(str(place).encode()).hexdigest()}"

    def make_sink(self, place: Path) -> CommitterSink:
        files = dict.fromkeys(("write.data.path", "write.metadata.path"), f"file://{place}/tables")
        settings = {"catalog": self.catalog(place), "namespace": self.namespace(place), "properties": files}
        return IcebergSink.model_validate({"type": "iceberg", **settings})
