"""Shared operations of object stores."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from distcommit.core.interfaces.file_system import FileAccess
from distcommit.fs.network_file_operations import NetworkFileOperations

BLOB_SCHEMES = frozenset({"az", "abfss", "gs"})

CALLS = 32
"""Maximum number of concurrent requests."""

PART_BYTES = 8 << 20
"""Size in bytes of the parts in which a large object is sent."""


@dataclass(frozen=True, slots=True)
class ObjectHead:
    """State of an object, without its bytes.

    Attributes:
        size_bytes: size of the object in bytes.
        etag: ETag without quotes.
        metadata: the metadata that the writer set.
        generation: the version that Google Cloud Storage compares in conditional updates; empty elsewhere.
    """

    size_bytes: int
    etag: str
    metadata: Mapping[str, str]
    generation: str = ""


class ObjectStoreOperations(NetworkFileOperations, Protocol):
    """Operations that object stores share: folders are key prefixes, and objects have no owner and mode."""

    has_folders: bool = False
    has_links: bool = False
    names_last: bool = False
    parallel_calls: int = CALLS
    parallel_buckets: int = CALLS

    def make_folder(self, path: str) -> bool:
        return True

    def make_folders(self, path: str) -> None:
        return

    def set_access(self, path: str, access: FileAccess) -> None:
        raise OSError(errno.EOPNOTSUPP, "objects have no owner and mode", path)

    def rename_folder(self, source: str, target: str) -> bool:
        return False

    def delete_folder(self, path: str) -> bool:
        return False


def key_of(path: str) -> str:
    return path[1:]


def folder_key_of(path: str) -> str:
    return f"{path.strip('/')}/" if path.strip("/") else ""
