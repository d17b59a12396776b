"""Orphaned files of dead attempts behind a fork, where each branch has its own folder: each sink's committer deletes
only its own files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.committer import AbortedAttempt, CommitterContext
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, StagingArea
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.sinks.delta.sink import DeltaSink
from distcommit.sinks.iceberg.catalog.open_catalogs import close_opened
from distcommit.sinks.iceberg.sink import IcebergSink

FS = LocalFileSystem(durable=False)
ATTEMPT, ROWS = "0" * 32, pa.record_batch({"id": [1, 2, 3]})


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_opened()


def sink_of(kind: str, folder: Path, stored_as: str) -> CommitterSink:
    """Return a sink with its own tables in that folder."""
    folder.mkdir()
    named = {"type": kind, "stored_as": stored_as}
    if kind == "delta":
        return DeltaSink.model_validate({**named, "location": str(folder)})
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
    return IcebergSink.model_validate({**named, "catalog": catalog, "namespace": "n"})


def write(sink: CommitterSink, folder: Path, branch: str) -> None:
    """Write as an attempt that dies afterwards."""
    place = folder / "staging" / ATTEMPT / branch
    place.mkdir(parents=True)
    area = StagingArea(FS, str(place), f"{ATTEMPT}/{branch}".rstrip("/"), f"{folder}/output")
    writer = sink.open_writer(AttemptIdentity("run", 1, "a", "unit", ATTEMPT, branch or "main"), area, Origin())
    writer.write(ROWS)
    writer.prepare_commit()


def abort(sink: CommitterSink, folder: Path) -> None:
    context = CommitterContext(FS, f"{folder}/staging", f"{folder}/output", "store")
    committer = sink.open_committer(context)
    committer.abort([AbortedAttempt(1, "unit", ATTEMPT, ATTEMPT)])
    committer.close()


def data_files(folder: Path) -> int:
    return len([*folder.rglob("*.parquet")])


@pytest.mark.parametrize(("left", "right"), [("iceberg", "iceberg"), ("delta", "delta"), ("iceberg", "delta")])
def test_each_sink_deletes_only_its_own_orphaned_files(tmp_path: Path, left: str, right: str) -> None:
    places = {"left": tmp_path / "left", "right": tmp_path / "right"}
    sinks = {"left": sink_of(left, places["left"], ""), "right": sink_of(right, places["right"], "second")}
    for branch, sink in sinks.items():
        write(sink, tmp_path, branch)
    assert [data_files(place) for place in places.values()] == [1, 1]
    for _ in range(2):
        abort(sinks["left"], tmp_path)
        assert [data_files(place) for place in places.values()] == [0, 1]
    abort(sinks["right"], tmp_path)
    assert [data_files(place) for place in places.values()] == [0, 0]


@pytest.mark.parametrize("through_link", [False, True])
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_note_that_names_a_file_outside_the_table_deletes_nothing(
    tmp_path: Path, kind: str, through_link: bool
) -> None:
    sink = sink_of(kind, tmp_path / "tables", "")
    write(sink, tmp_path, "")
    (note,) = (tmp_path / "staging" / ATTEMPT).iterdir()
    first, *more = note.read_text().split("\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    precious = outside / first.rpartition("/")[2]
    precious.write_bytes(b"x")
    folder = next((tmp_path / "tables").rglob("*.parquet")).parent
    table = "a" if kind == "delta" else first.removeprefix("file://").rpartition("/")[0]
    if through_link:
        (folder / "link").symlink_to(outside)
        path = f"{table}/{folder.name if kind == 'delta' and folder.name != 'a' else ''}/link/{precious.name}"
        path = path.replace("//", "/")
    else:
        path = f"../outside/{precious.name}" if kind == "delta" else f"file://{precious}"
    note.write_text("\n".join((path, *more)))
    with suppress(DistcommitError, OSError):
        abort(sink, tmp_path)
    assert precious.exists()
