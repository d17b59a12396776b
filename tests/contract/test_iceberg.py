"""The Iceberg sink fulfills the sink contract, with a catalog in SQLite, in PostgreSQL and behind two REST servers."""

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
from distcommit.sinks.iceberg.catalog.open_catalogs import close_opened
from distcommit.sinks.iceberg.sink import IcebergSink
from distcommit.sinks.iceberg.writer import IcebergWriter
from distcommit.sinks.table_formats import committer
from distcommit.testing.contracts import LaterEpochs, SinkContract
from distcommit.testing.contracts.sink_parts.sink_under_test import SinkUnderTest, batch_of
from tests.contract.maintained import ReplayAfterMaintenance
from tests.servers.iceberg_rest import IcebergRestServer
from tests.servers.nessie import NessieServer
from tests.servers.postgresql import PostgresServer
from tests.servers.s3 import S3Server

_DATASETS = {plain_name(urn): urn for urn in ("a", "b", "c", "b/ü")}


def files_in(table: Table) -> list[str]:
    """Return the paths of a table's data files."""
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
        """Return the catalog's settings, distinct for each place."""
        return {"type": "sql", "uri": f"sqlite:///{place}/catalog.db", "warehouse": f"file://{place}/warehouse"}

    def namespace(self, place: Path) -> str:
        """Return the namespace of the tables."""
        return "ingest"

    def make_sink(self, folder: Path) -> CommitterSink:
        return IcebergSink.model_validate(
            {"type": "iceberg", "catalog": self.catalog(folder), "namespace": self.namespace(folder)}
        )

    @pytest.fixture(autouse=True)
    def _close(self) -> Iterator[None]:
        yield
        close_opened()

    def observe(self, folder: Path) -> Sequence[tuple[str, int]]:
        close_opened()  # a test has many places, each with its own catalog, and the server allows a hundred connections
        with load_catalog(**{"name": "default", **self.catalog(folder)}) as client:
            return self.seen_by(client, folder)

    def seen_by(self, client: Catalog, place: Path) -> Sequence[tuple[str, int]]:
        """Return the rows that pyiceberg alone reads."""
        if not client.namespace_exists(self.namespace(place)):
            return []
        return [
            (_DATASETS[name], offset)
            for _, name in client.list_tables(self.namespace(place))
            for offset in client.load_table((self.namespace(place), name)).scan().to_arrow()["offset"].to_pylist()
        ]

    def in_doubt(self, place: Path) -> int:
        """Return data files that no version of a table contains."""
        close_opened()
        with load_catalog(**{"name": "default", **self.catalog(place)}) as client:
            tables = [client.load_table(name) for name in client.list_tables(self.namespace(place))]
            live = {urlparse(path).path for table in tables for path in files_in(table)}
            places = (table.properties.get("write.data.path", table.location()) for table in tables)
            folders = [Path(urlparse(place).path) for place in places]
        there = {str(path) for folder in folders for path in folder.rglob("*.parquet")}
        return len(there - live)

    def lose(self, folder: Path, request: CommitRequest) -> bool:
        Path(urlparse(request.infos[-1]["files"][0]["path"]).path).unlink()
        return True


class _OnIceberg(_Tables, SinkContract):
    """The whole contract."""


class TestSqliteCatalog(_OnIceberg):
    def cut_off(self, folder: Path) -> bool:
        with sqlite3.connect(folder / "catalog.db") as db:
            db.execute("ALTER TABLE iceberg_tables RENAME TO elsewhere")
        db.close()
        return True

    def test_commit_killed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Kill at every fifth line; a long test kills at each."""
        self.kill_before_lines(tmp_path, apart=5)

    @pytest.mark.slow
    @pytest.mark.long
    @pytest.mark.timeout(1800)
    def test_commit_killed_at_each_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        self.kill_before_lines(tmp_path)


class TestLaterEpochs(_Tables, LaterEpochs):
    """Tables that already have records."""


class TestMaintainedTables(_Tables, ReplayAfterMaintenance):
    """A table for each dataset, maintained by pyiceberg."""

    def maintain(self, place: Path, pending: Sequence[CommitRequest]) -> None:
        close_opened()
        keep = {file["path"] for request in pending for info in request.infos for file in info["files"]}
        with load_catalog(**{"name": "default", **self.catalog(place)}) as client:
            for name in client.list_tables(self.namespace(place)):
                table = client.load_table(name)
                table.overwrite(table.scan().to_arrow())
                snapshot = table.current_snapshot()
                assert snapshot is not None
                older = [
                    older_snapshot.snapshot_id
                    for older_snapshot in table.snapshots()
                    if older_snapshot.snapshot_id != snapshot.snapshot_id
                ]
                table.maintenance.expire_snapshots().by_ids(older).commit()
                self._delete_orphans(client.load_table(name), keep)

    def _delete_orphans(self, table: Table, keep: Set[str]) -> None:
        """Delete the files of a table that its current version does not name."""
        (snapshot,) = table.snapshots()
        manifests = [file.manifest_path for file in snapshot.manifests(table.io)]
        assert len(files_in(table)) == 1
        named = {table.metadata_location, snapshot.manifest_list, *manifests, *files_in(table), *keep}
        paths = {urlparse(file).path for file in named}
        for path in Path(urlparse(table.location()).path).rglob("*"):
            if path.is_file() and str(path) not in paths:
                path.unlink()


class TestOneTable(TestSqliteCatalog):
    """A table for all datasets, which are a commit group. The attempt id in a file's name identifies a record's
    dataset."""

    def make_sink(self, folder: Path) -> CommitterSink:
        settings = {"catalog": self.catalog(folder), "namespace": self.namespace(folder), "table": "events"}
        return IcebergSink.model_validate({"type": "iceberg", **settings})

    def writer(self, location: Path, urn: str, epoch: int, attempt: str = "", **more: Any) -> SinkWriter:
        attempt = attempt or uuid.uuid4().hex
        self.datasets = {**getattr(self, "datasets", {}), attempt: urn}
        return super().writer(location, urn, epoch, attempt, **more)

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
        """Kill at every twentieth line; the lines are the same as in the base class."""
        self.kill_before_lines(tmp_path, apart=20)

    def test_commit_killed_at_each_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Disabled: the lines are the same as in the base class."""


class TestWarehouseOnS3(TestSqliteCatalog):
    """Tables whose files are in a bucket, with the catalog in a file."""

    @pytest.fixture(autouse=True)
    def _bucket(self, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in s3_server.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")  # moto takes no other
        self.bucket, self.endpoint = s3_server.make_bucket(), s3_server.endpoint_url

    def catalog(self, place: Path) -> dict[str, str]:
        properties = {"warehouse": f"s3://{self.bucket}/{self.prefix(place)}", "s3.endpoint": self.endpoint}
        return {"type": "sql", "uri": f"sqlite:///{place}/catalog.db", "s3.region": "us-east-1", **properties}

    def prefix(self, place: Path) -> str:
        return sha256(str(place).encode()).hexdigest()

    def in_doubt(self, place: Path) -> int:
        """Return data files that no version of a table contains, and unfinished uploads."""
        close_opened()
        with load_catalog(**{"name": "default", **self.catalog(place)}) as client:
            tables = [client.load_table(name) for name in client.list_tables(self.namespace(place))]
            live = {urlparse(path).path.lstrip("/") for table in tables for path in files_in(table)}
        asked = boto3.client("s3")
        uploads = asked.list_multipart_uploads(Bucket=self.bucket, Prefix=self.prefix(place)).get("Uploads", ())
        there = asked.list_objects_v2(Bucket=self.bucket, Prefix=self.prefix(place)).get("Contents", ())
        return len({item["Key"] for item in there if item["Key"].endswith(".parquet")} - live) + len(uploads)

    def lose(self, folder: Path, request: CommitRequest) -> bool:
        key = urlparse(request.infos[-1]["files"][0]["path"]).path.lstrip("/")
        boto3.client("s3").delete_object(Bucket=self.bucket, Key=key)
        return True

    def test_upload_of_a_dead_writer_is_aborted(self, tmp_path: Path) -> None:
        won = self.prepare(tmp_path, "a", 1, [0])
        dead = self.writer(tmp_path, "a", 1, "dead")
        dead.write(batch_of(0))
        assert isinstance(dead, IcebergWriter)
        dead._flush()  # as after 64 MB of rows
        asked = boto3.client("s3")
        assert len(asked.list_multipart_uploads(Bucket=self.bucket)["Uploads"]) == 1
        assert self.commit(tmp_path, won) == [Committed()]
        for _ in range(2):
            self.abort(tmp_path, AbortedAttempt(1, "unit", "dead", "dead"))
        assert self.in_doubt(tmp_path) == 0
        assert self.visible_records(tmp_path) == [("a", 0)]

    @pytest.mark.slow
    def test_commit_killed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Kill at some lines: they are those of a warehouse on a disk, and each process takes seconds to create its
        clients."""
        self.kill_before_lines(tmp_path, apart=100)

    def test_commit_killed_at_each_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Disabled: the lines are the same as in the base class."""


class _OnServer(_OnIceberg):
    """A catalog on a server: the committer's lines are the same as with SQLite, and each commit takes longer."""

    def test_commit_killed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Kill at every fifth line; all lines take minutes and run in the long profile."""
        self.kill_before_lines(tmp_path, apart=5)

    @pytest.mark.slow
    @pytest.mark.long
    @pytest.mark.timeout(1800)
    def test_commit_killed_at_each_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        self.kill_before_lines(tmp_path)


class TestPostgresCatalog(_OnServer):
    """A shared database, in which each place is a separate catalog."""

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
    """A shared catalog, in which each place is a separate namespace."""

    server: IcebergRestServer

    @pytest.fixture(autouse=True)
    def _server(self, iceberg_rest_server: IcebergRestServer) -> None:
        type(self).server = iceberg_rest_server

    def catalog(self, place: Path) -> dict[str, str]:
        return {"type": "rest", "uri": self.server.url}

    def namespace(self, place: Path) -> str:
        return f"n{sha256(str(place).encode()).hexdigest()}"


class TestNessieCatalog(_OnServer):
    """A catalog that changes several tables by one call. Its own files are elsewhere, the tables' files in a folder."""

    server: NessieServer

    def test_commit_killed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Kill at every twenty-fifth line, as Nessie is the slowest catalog."""
        self.kill_before_lines(tmp_path, apart=25)

    def test_concurrent_commits_commit_once(self, tmp_path: Path) -> None:
        """Commit to tables with records: Nessie before 0.101.1 does not notice the first records of a table."""
        first, then = ([self.prepare(tmp_path, urn, epoch, [epoch]) for urn in ("a", "b", "c")] for epoch in (1, 2))
        assert self.commit(tmp_path, *first) == [Committed()] * 3
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: self.commit(tmp_path, *then), range(8)))
        for outcomes in zip(*answers, strict=True):
            assert all(isinstance(outcome, Committed | AlreadyCommitted | RetryLater) for outcome in outcomes), outcomes
            assert outcomes.count(Committed()) <= 1
        self.commit(tmp_path, *then)
        assert self.visible_records(tmp_path) == [(urn, offset) for urn in ("a", "b", "c") for offset in (1, 2)]

    @pytest.fixture(autouse=True)
    def _server(self, nessie_server: NessieServer) -> None:
        type(self).server = nessie_server

    def catalog(self, place: Path) -> dict[str, str]:
        return {"type": "rest", "uri": self.server.url}

    def namespace(self, place: Path) -> str:
        return f"n{sha256(str(place).encode()).hexdigest()}"

    def make_sink(self, folder: Path) -> CommitterSink:
        files = dict.fromkeys(("write.data.path", "write.metadata.path"), f"file://{folder}/tables")
        settings = {"catalog": self.catalog(folder), "namespace": self.namespace(folder), "properties": files}
        return IcebergSink.model_validate({"type": "iceberg", **settings})
