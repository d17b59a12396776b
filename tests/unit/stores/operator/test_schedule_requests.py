"""Schedule requests to services that run a job, readable or not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.stores.operator.schedule_requests import delete_triggers, put_pause, put_trigger, read_requests


class Closed(LocalFileSystem):
    """A file system whose files cannot be read, as those of another user."""

    def read(self, path: str) -> bytes:
        raise PermissionError(13, "Permission denied", path)


def test_unreadable_pause_request_counts_as_a_pause(tmp_path: Path) -> None:
    store: Any = SimpleNamespace(fs=LocalFileSystem(durable=False), roots=SimpleNamespace(store=str(tmp_path)))
    put_pause(store, "ann@host", 1)
    requests = read_requests(Closed(durable=False), str(tmp_path))
    assert requests.paused is not None


def test_pause_and_trigger_requests_are_distinguished_by_name(tmp_path: Path) -> None:
    store: Any = SimpleNamespace(fs=LocalFileSystem(durable=False), roots=SimpleNamespace(store=str(tmp_path)))
    put_pause(store, "ann@host", 1)
    trigger = put_trigger(store, "ann@host", 2)
    assert read_requests(store.fs, str(tmp_path)).triggers == {trigger}
    delete_triggers(store.fs, str(tmp_path), [trigger])
    requests = read_requests(store.fs, str(tmp_path))
    assert (requests.triggers, requests.paused is not None) == (frozenset(), True)
