"""What is asked of services that run a job, where it can't be read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from distcommit.fs.posix_calls.local import LocalFileSystem
from distcommit.stores.operator.schedule_requests import delete_triggers, put_pause, put_trigger, read_requests


class Closed(LocalFileSystem):
    """Another user's file."""

    def read(self, path: str) -> bytes:
        raise PermissionError(13, "Permission denied", path)


def test_a_pause_that_can_not_be_read_is_one(tmp_path: Path) -> None:
    store: Any = SimpleNamespace(fs=LocalFileSystem(durable=False), roots=SimpleNamespace(store=str(tmp_path)))
    put_pause(store, "ann@host", 1)
    found = read_requests(Closed(durable=False), str(tmp_path))
    assert found.paused is not None


def test_what_is_wished_is_what_has_the_name_of_a_wish(tmp_path: Path) -> None:
    store: Any = SimpleNamespace(fs=LocalFileSystem(durable=False), roots=SimpleNamespace(store=str(tmp_path)))
    put_pause(store, "ann@host", 1)
    wish = put_trigger(store, "ann@host", 2)
    assert read_requests(store.fs, str(tmp_path)).triggers == {wish}
    delete_triggers(store.fs, str(tmp_path), [wish])
    found = read_requests(store.fs, str(tmp_path))
    assert (found.triggers, found.paused is not None) == (frozenset(), True)
