"""Blobs in a container of this process: writers that outlive their run, and copies that the store completes later."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from distcommit.fs.object_stores.blob_file_system import BlobFileSystem
from distcommit.fs.object_stores.blob_requests import BlobRequests
from distcommit.fs.object_stores.object_operations import PART_BYTES, ObjectHead
from distcommit.protocol.paths.staging import attempt_folder
from distcommit.stores.folders.staging import staged_epochs, sweep_epoch

STAGED = f"/staging/{attempt_folder(1, 0, '00001_000001', 'a' * 32)}/x"


class CompletesCopiesLater(BlobRequests):
    """A container that leaves copies empty while `is_pending`."""

    is_pending = True

    def head(self, key: str) -> ObjectHead | None:
        head = super().head(key)
        return head and self._as_pending(key, head)

    def get(self, key: str) -> tuple[ObjectHead, bytes]:
        head, data = super().get(key)
        return self._as_pending(key, head), data if not self._hides(key) else b""

    def read_chunks(self, key: str) -> Iterator[bytes]:
        return iter(()) if self._hides(key) else super().read_chunks(key)

    def _hides(self, key: str) -> bool:
        return self.is_pending and key.startswith("output/")

    def _as_pending(self, key: str, head: ObjectHead) -> ObjectHead:
        return ObjectHead(0, head.etag, head.metadata) if self._hides(key) else head


@pytest.mark.parametrize("data", [b"x", b""])
def test_copy_that_is_not_complete_is_missing_for_every_reader(data: bytes) -> None:
    requests = CompletesCopiesLater("memory://")
    fs = BlobFileSystem(requests, "az")
    writer = fs.create("/staging/a", "/output/a")
    writer.write(data)
    writer.close_file(sync=True)
    requests.copy("staging/a", "output/a")
    if data:
        assert fs.status("/output/a") is None
        with pytest.raises(FileNotFoundError):
            fs.read("/output/a")
        with pytest.raises(FileNotFoundError):
            list(fs.read_chunks("/output/a"))
    requests.is_pending = False
    assert fs.read("/output/a") == b"".join(fs.read_chunks("/output/a")) == data


@pytest.mark.parametrize("size_bytes", [1, PART_BYTES])
def test_large_staged_file_that_a_zombie_recreates_is_deleted_by_the_next_sweep(size_bytes: int) -> None:
    fs = BlobFileSystem(BlobRequests("memory://"), "az")
    writer = fs.create(STAGED, "/output/x")
    writer.write(bytes(size_bytes))
    assert sweep_epoch(fs, "/staging", 1, 0) == 1
    if size_bytes < PART_BYTES:
        with pytest.raises(FileExistsError):
            writer.close_file(sync=True)
        assert fs.status(STAGED) is None
    else:
        assert writer.close_file(sync=True).size_bytes == size_bytes
        assert staged_epochs(fs, "/staging") == [1]
        assert sweep_epoch(fs, "/staging", 1, 0) == 1
    assert staged_epochs(fs, "/staging") == []
