"""The file system that stores, steps and writers use: an interface, its values and its errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from msgspec import Struct

from distcommit.core.error_handling.storage_errors import REFUSALS


class FileStatus(Struct, frozen=True, gc=False):
    """Identity of a file or folder.

    Attributes:
        size_bytes: the size; 0 for a folder.
        mtime_ns: the modification time in nanoseconds since 1970; 0 where the file system has none.
        file_id: the inode number or a similar id; 0 where the file system has none.
        is_folder: whether this is a folder.
    """

    size_bytes: int
    mtime_ns: int
    file_id: int
    is_folder: bool = False


class FolderEntry(Struct, frozen=True, gc=False):
    """One name in a folder.

    Attributes:
        name: the last path component.
        is_folder: whether it is a folder.
        file_id: as in `FileStatus`, if the listing provides it; else 0.
    """

    name: str
    is_folder: bool
    file_id: int = 0


@dataclass(frozen=True, slots=True)
class FileAccess:
    """Permissions of a file. None stands for the file system's default.

    Attributes:
        mode: the permission bits.
        owner: the owner's name.
        group: the group's name.
    """

    mode: int | None = None
    owner: str | None = None
    group: str | None = None


class StagedWriter(Protocol):
    """A file being written, created exclusively.

    Its bytes are durable after `close_file(sync=True)` or `FileSystem.sync_tree`.
    """

    @property
    def size_bytes(self) -> int: ...

    @property
    def checksum(self) -> int:
        """Return the xxh3-64 checksum of the bytes written so far."""
        ...

    def write(self, data: bytes | bytearray | memoryview, /) -> int: ...
    def close_file(self, *, sync: bool) -> FileStatus:
        """Flush, sync if requested, close, and return the identity. A failed sync is final for this file."""
        ...


class NotPutError(OSError):
    """A put was rejected before the file got its name. Nothing was written."""


class OutsideRootError(OSError):
    """A symbolic link or a mount leads from a path of the job out of the job's folders. The operation was not
    executed.
    """


def not_put(error: OSError, path: str) -> OSError:
    """Return the NotPutError for a put that failed before the file got its name."""
    return NotPutError(error.errno, error.strerror, path) if error.errno in REFUSALS else error


class FileSystem(Protocol):
    """The file system operations that the protocol is built from.

    Paths are absolute in the file system's own form. Errors are the built-in ones: FileNotFoundError, FileExistsError,
    PermissionError, other OSError.

    In an object store (`has_folders` is False), folders are prefixes of names. Creating and deleting them does nothing,
    and none is ever missing or moved. Files are durable when they are closed. A file can be renamed only if it was
    created for that target, and cannot be read before.

    Attributes:
        scheme: the URL scheme of its paths.
        has_folders: False for object stores.
        has_links: whether it has symbolic links, which `real_path` resolves.
        names_last: whether a name is durable once the call that created it has returned.
        parallel_calls: useful number of concurrent calls in a task; 1 where a call has no latency.
        parallel_buckets: number of buckets that a task works on concurrently. They share the parallel calls.
    """

    scheme: str
    has_folders: bool
    has_links: bool
    names_last: bool
    parallel_calls: int
    parallel_buckets: int

    def read(self, path: str) -> bytes: ...

    def list_folder(self, path: str) -> list[FolderEntry]:
        """Return the names in a folder, in any order; empty if the folder does not exist."""
        ...

    def status(self, path: str) -> FileStatus | None:
        """Return the uncached identity of a file or folder, None if there is none. Symbolic links are not followed."""
        ...

    def checksum(self, path: str) -> int:
        """Return the xxh3-64 checksum of the file's bytes."""
        ...

    def make_folder(self, path: str) -> bool:
        """Create one folder.

        If `has_folders` is False, this call does nothing and returns True.

        Returns:
            False if the name is taken. Also True for an existing folder where the file system does not report its
            creator.

        Raises:
            FileNotFoundError: if the parent folder is missing.
        """
        ...

    def make_folders(self, path: str) -> None:
        """Create a folder and its missing parents. Durable after `sync` of the folder, which includes its parents."""
        ...

    def create(self, path: str, target: str = "") -> StagedWriter:
        """Open a new file for writing.

        Args:
            path: the file.
            target: the name that the file will be renamed to, if it will be renamed. Object stores need it: without a
                target, closing the file may raise FileExistsError.

        Raises:
            FileExistsError: if the name is taken.
            FileNotFoundError: if the folder is missing.
        """
        ...

    def set_access(self, path: str, access: FileAccess) -> None:
        """Set the mode, owner and group of a closed file. Its identity stays. Durable after `sync_tree`.

        Raises:
            PermissionError: if the process's user may not do so. An unknown owner or group is another OSError.
        """
        ...

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Publish a whole file durably under a new name; return False if the name is taken.

        A reader never sees part of the file. After a NotPutError, nothing was put. After any other OSError, the outcome
        is unknown until the file is read back.
        """
        ...

    def put_all_if_absent(self, files: Sequence[tuple[str, bytes]]) -> list[bool | OSError]:
        """Call `put_if_absent` for many paths and their bytes. Each put is independent.

        Returns:
            for each file, in order, the result of `put_if_absent` or the error that it would have raised.
        """
        ...

    def rename(self, source: str, target: str) -> None:
        """Move a file without replacing. Durable after `sync` of the target's folder.

        Raises:
            FileExistsError: if `target` exists.
            FileNotFoundError: if `source` or the target's folder is missing.
            OSError: if this file system cannot give the file that name.
        """
        ...

    def rename_folder(self, source: str, target: str) -> bool:
        """Move a folder with its content without replacing. Durable after `sync` of the target's parent folder.

        Returns:
            False if `target` exists in any form, or if this file system cannot move a folder in one step.

        Raises:
            FileNotFoundError: if `source` or the target's parent folder is missing.
        """
        ...

    def delete(self, path: str) -> bool:
        """Delete a file; return False if it did not exist."""
        ...

    def delete_folder(self, path: str) -> bool:
        """Delete an empty folder; return False if it did not exist or is not empty."""
        ...

    def sync(self, folders: Iterable[str], root: str) -> None:
        """Make the entries of these folders durable, with all parent folders up to and including `root`."""
        ...

    def sync_tree(self, root: str) -> None:
        """Make everything below `root` durable that was closed, created or renamed before: bytes and names."""
        ...

    def real_path(self, path: str) -> str:
        """Return the path with symbolic links resolved."""
        ...


@runtime_checkable
class ProbedFileSystem(Protocol):
    """A file system of an untested kind, which tries all required operations when a store is created."""

    def probe(self, folder: str) -> None:
        """Try all required operations in a folder that the caller has created and deletes afterwards.

        Raises:
            ConfigurationError: naming the missing ability.
        """
        ...
