"""The Delta sink fulfills the sink contract."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import boto3
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from distcommit.core.interfaces.committer import CommitRequest
from distcommit.core.interfaces.sink import SinkWriter
from distcommit.fs.object_stores.s3_requests import S3Requests
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.sinks.base.table_names import plain_name
from distcommit.sinks.delta.sink import DeltaSink
from distcommit.sinks.table_formats import committer
from distcommit.testing.contracts import LaterEpochs, SinkContract
from distcommit.testing.contracts.sink_parts.sink_under_test import SinkUnderTest
from tests.contract.maintained import ReplayAfterMaintenance
from tests.servers.s3 import S3Server

_DATASETS = {plain_name(urn): urn for urn in ("a", "b", "c", "b/ü", *(f"{urn}/{n}" for urn in "ab" for n in range(4)))}


class _OnDelta(SinkUnderTest):
    """A table for each dataset."""

    preloaded = ("deltalake", "distcommit.sinks.delta.committer", "pyarrow.dataset")
    committer_bases = (committer.__file__,)

    def make_sink(self, folder: Path) -> CommitterSink:
        tables = folder / "tables"
        if not tables.exists():
            tables.mkdir()
        return DeltaSink.model_validate({"type": "delta", "location": str(tables)})

    def observe(self, folder: Path) -> Sequence[tuple[str, int]]:
        """Return the rows that deltalake alone reads."""
        return [
            (_DATASETS[log.parent.name], offset)
            for log in (folder / "tables").glob("*/_delta_log")
            for offset in DeltaTable(log.parent).to_pyarrow_table()["offset"].to_pylist()
        ]

    def in_doubt(self, place: Path) -> int:
        """Return data files that no table contains."""
        logs = (place / "tables").glob("*/_delta_log")
        live = {uri.removeprefix("file://") for log in logs for uri in DeltaTable(log.parent).file_uris()}
        return len({str(path) for path in (place / "tables").rglob("*.parquet")} - live)

    def lose(self, folder: Path, request: CommitRequest) -> bool:
        (folder / "tables" / request.infos[-1]["files"][0]["path"]).unlink()
        return True

    def cut_off(self, folder: Path) -> bool:
        """Make the storage of the tables unavailable."""
        shutil.move(folder / "tables", folder / "elsewhere")
        (folder / "tables").touch()
        return True


class TestDeltaSink(_OnDelta, SinkContract, LaterEpochs):
    """A table for each dataset."""

    def test_commit_killed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Kill at every fourth line; a slow test kills at each."""
        self.kill_before_lines(tmp_path, apart=4)

    @pytest.mark.slow
    @pytest.mark.timeout(1800)
    def test_commit_killed_at_each_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        self.kill_before_lines(tmp_path)


class TestMaintainedTables(_OnDelta, ReplayAfterMaintenance):
    """A table for each dataset, maintained by deltalake."""

    def maintain(self, place: Path, pending: Sequence[CommitRequest]) -> None:
        for log in (place / "tables").glob("*/_delta_log"):
            table = DeltaTable(log.parent)
            table.optimize.compact()
            table.create_checkpoint()
            table.cleanup_metadata()
            table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=not pending)
            assert len(DeltaTable(log.parent).file_uris()) == 1


class TestOneTable(TestDeltaSink):
    """A table for all datasets, which are a commit group. The attempt id in a file's name identifies a record's
    dataset."""

    def make_sink(self, folder: Path) -> CommitterSink:
        (folder / "tables").mkdir(exist_ok=True)
        return DeltaSink.model_validate({"type": "delta", "location": str(folder / "tables"), "table": "events"})

    def writer(self, location: Path, urn: str, epoch: int, attempt: str = "", **more: Any) -> SinkWriter:
        attempt = attempt or uuid.uuid4().hex
        self.datasets = {**getattr(self, "datasets", {}), attempt: urn}
        return super().writer(location, urn, epoch, attempt, **more)

    def observe(self, folder: Path) -> Sequence[tuple[str, int]]:
        if not (folder / "tables" / "events" / "_delta_log").exists():
            return []
        paths = [uri.removeprefix("file://") for uri in DeltaTable(folder / "tables" / "events").file_uris()]
        return [
            (self.datasets[Path(path).name.split("-")[2]], offset)
            for path in paths
            for offset in pq.read_table(path)["offset"].to_pylist()
        ]

    def test_commit_killed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Kill at every twentieth line; the lines are the same as in the base class."""
        self.kill_before_lines(tmp_path, apart=20)

    def test_commit_killed_at_each_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Disabled: the lines are the same as in the base class."""


class TestDeltaOnS3(SinkContract):
    """A table for each dataset, below a key prefix of the test's own."""

    preloaded = (*TestDeltaSink.preloaded, "distcommit.fs.object_stores.s3_stream")

    @pytest.fixture(autouse=True)
    def _bucket(self, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in s3_server.environment.items():
            monkeypatch.setenv(name, value)
        self.bucket = s3_server.make_bucket()
        self.options = {"allow_http": "true"}

    def location(self, place: Path) -> str:
        return f"s3://{self.bucket}/{sha256(str(place).encode()).hexdigest()}"

    def make_sink(self, folder: Path) -> CommitterSink:
        return DeltaSink.model_validate({"type": "delta", "location": self.location(folder)})

    def observe(self, folder: Path) -> Sequence[tuple[str, int]]:
        """Return the rows that deltalake alone reads."""
        there = S3Requests(self.bucket).list_folder(f"{self.location(folder).rpartition('/')[2]}/")
        tables = {entry.name: f"{self.location(folder)}/{entry.name}" for entry in there if entry.is_folder}
        return [
            (_DATASETS[name], offset)
            for name, table in tables.items()
            if DeltaTable.is_deltatable(table, self.options)
            for offset in DeltaTable(table, storage_options=self.options).to_pyarrow_table()["offset"].to_pylist()
        ]

    def in_doubt(self, place: Path) -> int:
        """Return data files that no table contains."""
        requests, prefix = S3Requests(self.bucket), self.location(place).rpartition("/")[2]
        tables = [entry.name for entry in requests.list_folder(f"{prefix}/") if entry.is_folder]
        there = {
            f"{table}/{entry.name}"
            for table in tables
            for entry in requests.list_folder(f"{prefix}/{table}/")
            if entry.name.endswith(".parquet")
        }
        live = {
            uri.partition(f"{prefix}/")[2]
            for table in tables
            for uri in DeltaTable(f"{self.location(place)}/{table}", storage_options=self.options).file_uris()
        }
        return len(there - live)

    def lose(self, folder: Path, request: CommitRequest) -> bool:
        key = f"{self.location(folder).rpartition('/')[2]}/{request.infos[-1]['files'][0]['path']}"
        S3Requests(self.bucket).delete(key)
        return True

    def cut_off(self, folder: Path) -> bool:
        """Delete the bucket."""
        client = boto3.client("s3")
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket):
            for item in page.get("Contents", ()):
                client.delete_object(Bucket=self.bucket, Key=item["Key"])
        client.delete_bucket(Bucket=self.bucket)
        return True

    @pytest.mark.slow
    def test_commit_killed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Kill at some lines: they are those of tables on a disk, and each process creates its clients in seconds."""
        self.kill_before_lines(tmp_path, apart=50)

    @pytest.mark.slow
    @pytest.mark.long
    @pytest.mark.timeout(1800)
    def test_commit_killed_at_each_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        self.kill_before_lines(tmp_path)
