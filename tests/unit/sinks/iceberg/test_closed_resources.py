"""Sinks close their files on every path, as counted by the operating system while the raised error is kept."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distcommit.core.interfaces.sink import AttemptIdentity, Origin, SinkWriter, StagingArea
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.sinks.delta.sink import DeltaSink
from distcommit.sinks.iceberg.catalog import open_catalogs
from distcommit.sinks.iceberg.catalog.open_catalogs import close_opened, opened
from distcommit.sinks.iceberg.settings import CatalogSettings
from distcommit.sinks.iceberg.sink import IcebergSink
from distcommit.sinks.sqlite.sessions import connected
from tests.unit.sinks.open_clients import open_below

FS = LocalFileSystem(durable=False)
ROWS = pa.record_batch({"id": pa.array([1, 2, 3], pa.int64()), "kind": ["a", "b", "c"]})


@pytest.fixture(params=["iceberg", "delta"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CommitterSink]:
    """Return a sink whose tables are in `tables`, partitioned so that a writer has three open files."""
    (tmp_path / "tables").mkdir()
    if request.param == "delta":
        yield DeltaSink.model_validate({"type": "delta", "location": f"{tmp_path}/tables", "partition_by": ["kind"]})
        return
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/tables"}
    of = {"catalog": catalog, "namespace": "n", "partition_by": ["kind"]}
    yield IcebergSink.model_validate({"type": "iceberg", **of})
    close_opened()


@pytest.fixture
def writer(sink: CommitterSink, tmp_path: Path) -> SinkWriter:
    attempt = uuid.uuid4().hex
    (tmp_path / attempt).mkdir()
    area = StagingArea(FS, f"{tmp_path}/{attempt}", attempt, f"{tmp_path}/output")
    return sink.open_writer(AttemptIdentity("run", 1, "a", "unit", attempt), area, Origin())


class _NoDiskError(OSError):
    """The error of a full disk."""


def no_disk(*_: object, **__: object) -> None:
    raise _NoDiskError("no space left on device")


closes = pq.ParquetWriter.close


def no_disk_for_the_footer(writer: pq.ParquetWriter) -> None:
    closes(writer)
    no_disk()


@pytest.mark.parametrize("call", ["__init__", "write_table", "close"])
def test_data_files_are_closed_whichever_call_fails(
    writer: SinkWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    writer.write(ROWS)
    with monkeypatch.context() as patched:
        patched.setattr(pq.ParquetWriter, call, no_disk_for_the_footer if call == "close" else no_disk)
        with pytest.raises(_NoDiskError) as raised:
            writer.prepare_commit()
        assert call == "__init__" or open_below(tmp_path / "tables"), "the writer had open files"
        writer.abort()
        assert open_below(tmp_path / "tables") == [], raised
    assert not [*(tmp_path / "tables").rglob("*.parquet")]


def test_note_of_a_data_file_is_closed_if_it_can_not_be_written(
    writer: SinkWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    area = writer._area  # type: ignore[attr-defined]
    note = FS.create(f"{area.folder}/any")
    note.close_file(sync=False)
    monkeypatch.setattr(type(note), "write", no_disk)
    writer.write(ROWS)
    with pytest.raises(_NoDiskError) as raised:
        writer.prepare_commit()
    writer.abort()
    assert open_below(Path(area.folder)) == [], raised


def test_file_that_is_not_a_sqlite_database_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "db").write_bytes(b"no database" * 1000)
    with pytest.raises(Exception, match="not a database") as raised:
        connected(f"{tmp_path}/db")
    assert open_below(tmp_path) == [], raised


def test_process_keeps_few_catalogs_open_and_finally_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_catalogs, "_MOST_OPEN", 3)
    catalogs = [
        CatalogSettings.model_validate(
            {"type": "sql", "uri": f"sqlite:///{tmp_path}/{number}.db", "warehouse": f"file://{tmp_path}"}
        )
        for number in range(5)
    ]
    opened_catalogs = [opened(catalog) for catalog in (*catalogs, catalogs[2], catalogs[0])]
    assert opened_catalogs[5] is opened_catalogs[2]
    assert opened_catalogs[6] is not opened_catalogs[0]
    assert {Path(path).name for path in open_below(tmp_path)} == {"0.db", "2.db", "4.db"}
    assert opened_catalogs[1].names(("n",)) == [], "a closed catalog reopens on use"
    opened_catalogs[1].catalog.close()
    close_opened()
    assert open_below(tmp_path) == []
