"""Concurrent calls over all datasets on slow file systems give the same results as sequential calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from distcommit.app.admin.expire import find_expired
from distcommit.app.admin.rebuild_store import stored_states
from distcommit.app.auditing.audit import audit_store
from distcommit.app.auditing.files.read_published_files import read_published
from distcommit.app.inspection.verify_store import verify_store
from distcommit.app.job_file import job_folders
from distcommit.cli.main import app
from distcommit.core.interfaces.file_system import FolderEntry
from distcommit.core.support.parallel import run_ahead
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.sinks.files.sink import FileSink
from distcommit.stores.state.job_store import JobStore, open_store
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.unit.app.reading.test_snapshot_reader import NAMES, Place

_MOMENT_S = 0.1


class SlowFileSystem(LocalFileSystem):
    """A file system whose listings wait until `wanted` of them run at once, or for a moment.

    `most` is the largest number of concurrent listings.
    """

    def __init__(self, wanted: int) -> None:
        super().__init__(durable=False, parallel_calls=8, parallel_buckets=2)
        self._wanted, self._counting, self._now, self.most = wanted, threading.Condition(), 0, 0

    def list_folder(self, path: str) -> list[FolderEntry]:
        with self._counting:
            self._now += 1
            self.most = max(self.most, self._now)
            self._counting.notify_all()
            self._counting.wait_for(lambda: self.most >= self._wanted, _MOMENT_S)
            self._now -= 1
        return super().list_folder(path)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.run(3)
    place.run(5, NAMES[::2])
    first = next(Path(place.roots.output, NAMES[1]).rglob("*.parquet"))
    first.write_bytes(b"torn")
    Path(place.roots.output, NAMES[3], "stray").touch()
    return place


def _audit_metadata(store: JobStore) -> object:
    return audit_store(store, ModelSource({}).provenance, deep=False)


def _audit_data(store: JobStore) -> object:
    return audit_store(store, ModelSource({}).provenance, deep=True)


def _published_files(store: JobStore) -> object:
    published = read_published(store.fs, store.roots.output)
    return [(folder.name, [file.path for file in folder.files], folder.unusable) for folder in published]


def _expired_files(store: JobStore) -> object:
    source = ModelSource({name: ModelDataset({"0": 9}) for name in NAMES})
    flow = TaskFlow.straight(source, FileSink.model_validate({"compression": "none"}))
    return find_expired(store, flow, 1 << 60, dry_run=True)


def _listed_files(store: JobStore) -> object:
    job = Path(store.roots.store).parent / "job.yaml"
    job.write_text(
        "job: job\nsource: {type: kafka, brokers: 'a:1', topics: [d0]}\ncommit: {buckets: 2, durability: none}\n"
        f"paths: {{store: {store.roots.store}, staging: {store.roots.staging}, output: {store.roots.output}}}\n"
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(job_folders, "open_folders", lambda *_, **__: store.fs)
        return CliRunner().invoke(app, ["dataset", "files", str(job)]).stdout.splitlines()


@pytest.mark.parametrize(
    "inspect",
    [_audit_metadata, _audit_data, _published_files, _expired_files, _listed_files, verify_store, stored_states],
    ids=lambda function: function.__name__,
)
def test_concurrent_inspection_gives_the_same_result_as_sequential_inspection(
    place: Place, inspect: Callable[[JobStore], object]
) -> None:
    required = 2 if inspect in (verify_store, stored_states) else 3  # there are two buckets
    slow = SlowFileSystem(required)
    result = inspect(open_store(slow, place.roots, "job", 2, create=False))
    assert slow.most >= required
    assert msgspec.json.encode(result) == msgspec.json.encode(inspect(place.store()))
    assert "d5" in msgspec.json.encode(result).decode() or inspect is verify_store


def test_run_ahead_starts_at_most_the_allowed_number_of_items() -> None:
    started: list[int] = []

    def items() -> Iterator[int]:
        for item in range(100):
            started.append(item)
            yield item

    results = run_ahead(3, str, items())
    assert (next(results), len(started)) == ("0", 3)
    assert (next(results), len(started)) == ("1", 4)
    results.close()
    assert len(started) == 4


def test_run_ahead_raises_the_first_error_in_item_order() -> None:
    def act(item: int) -> int:
        if item == 2:
            raise ValueError(item)
        return item

    results: list[int] = []
    with pytest.raises(ValueError, match="2"):
        results.extend(run_ahead(4, act, range(50)))
    assert list(run_ahead(1, str, range(3))) == list(run_ahead(5, str, range(3))) == ["0", "1", "2"]
