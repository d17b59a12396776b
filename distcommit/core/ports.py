"""Ports: what the stores, steps and writers need from a file system and from the clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from msgspec import Struct

from distcommit.core.errors import REFUSALS


class FileStatus(Struct, frozen=True, gc=False):
    """Identity of a file. `file_id` is 0 where the file system has none, and so is `mtime_ns`."""

    size_bytes: int
    mtime_ns: int
    file_id: int
    is_folder: bool = False


class FolderEntry(Struct, frozen=True, gc=False):
    """One name in a folder; `file_id` as in `FileStatus`, as far as the listing gives it."""

    name: str
    is_folder: bool
    file_id: int = 0


@dataclass(frozen=True, slots=True)
class FileAccess:
    """Who may do what with a file; what is None stays as the file system sets it. `mode`: its permission bits."""

    mode: int | None = None
    owner: str | None = None
    group: str | None = None


class StagedWriter(Protocol):
    """A file being written, made exclusively. Its bytes are durable after `close_file(sync=True)`, or `sync_tree`."""

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        ...

    @property
    def checksum(self) -> int:
        """xxh3-64 over the bytes written so far."""
        ...

    def write(self, data: bytes | bytearray | memoryview, /) -> int: ...
    def close_file(self, *, sync: bool) -> FileStatus:
        """Flushes, syncs if asked, closes, and returns the identity. A failed sync is final for this file."""
        ...


class NotPutError(OSError):
    """A put was refused before the file could get its name: surely nothing was put."""


class OutsideRootError(OSError):
    """A path below one of the job's roots leads out of it, through a symbolic link or a mount: nothing was done."""


def not_put(error: OSError, path: str) -> OSError:
    """The error of a put that failed before the file could get its name, as the port has it."""
    return NotPutError(error.errno, error.strerror, path) if error.errno in REFUSALS else error


class FileSystem(Protocol):
    """The operations that the protocol is built from. Paths are absolute in the file system's own form.

    Errors are the built-in ones: FileNotFoundError, FileExistsError, PermissionError, other OSError.
    `has_folders`: False for object stores. There folders are the beginnings of names: they are there while anything is
    below them, so that making and deleting them does nothing and none is ever missing or moved; files are durable when
    they are closed; and a file can be renamed only if it was created for that target, and can't be read before.
    `has_links`: whether it has symbolic links, and `real_path` tells where they lead.
    `names_last`: whether each name is durable once the call has returned that made it.
    `parallel_calls`: how many calls are worth having in flight at once in a task; 1 where a call costs no waiting.
    `parallel_buckets`: how many buckets a task works on at once, which share these calls.
    """

    scheme: str
    has_folders: bool
    has_links: bool
    names_last: bool
    parallel_calls: int
    parallel_buckets: int

    def read(self, path: str) -> bytes:
        """All bytes of a file."""
        ...

    def list_folder(self, path: str) -> list[FolderEntry]:
        """Names in a folder, in any order; empty if there is no such folder."""
        ...

    def status(self, path: str) -> FileStatus | None:
        """Identity of a file or folder, uncached; None if there is none. Symbolic links are not followed."""
        ...

    def checksum(self, path: str) -> int:
        """xxh3-64 over the file's bytes."""
        ...

    def make_folder(self, path: str) -> bool:
        """Makes one folder; False if the name is taken, or, by a folder, True where it is not told who made it.
        FileNotFoundError if the folder above it is missing.

        Without `has_folders` True, and nothing is done."""
        ...

    def make_folders(self, path: str) -> None:
        """Makes a folder and those above it that are missing. Durable after `sync` of it (which goes up)."""
        ...

    def create(self, path: str, target: str = "") -> StagedWriter:
        """Opens a new file. Raises FileExistsError if the name is taken, FileNotFoundError if its folder is missing.

        Args:
            target: the name that the file will be renamed to, if it will be. It needs to be said only where the file
                system has no folders; there, without it, FileExistsError may come when the file is closed.
        """
        ...

    def set_access(self, path: str, access: FileAccess) -> None:
        """Sets a closed file's mode, owner and group; its identity stays. Durable after `sync_tree`.

        PermissionError if the user of the process may not; an owner or group that is not known is another OSError.
        """
        ...

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Publishes a whole file under a name that nobody has, durably; False if the name was taken.

        No reader ever sees part of it. An OSError leaves the outcome unknown: read back. Not so a NotPutError.
        """
        ...

    def put_all_if_absent(self, files: Sequence[tuple[str, bytes]]) -> list[bool | OSError]:
        """`put_if_absent` for many paths and their bytes, of which some may be put when others are not: its answers,
        or the errors that it would have raised, in order."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Moves a file without replacing. FileExistsError if `target` is there, FileNotFoundError if `source` or the
        target's folder is not. Durable after `sync` of the target's folder. Another OSError if this file system can't
        give this file that name."""
        ...

    def rename_folder(self, source: str, target: str) -> bool:
        """Moves a folder with all that is in it without replacing; False if `target` is there, whatever it is, or if
        this file system can't do it in one step. FileNotFoundError if `source` or the folder above `target` is not.
        Durable after `sync` of the folder above `target`."""
        ...

    def delete(self, path: str) -> bool:
        """Removes a file; False if it was not there."""
        ...

    def delete_folder(self, path: str) -> bool:
        """Removes an empty folder; False if it was not there or not empty."""
        ...

    def sync(self, folders: Iterable[str], root: str) -> None:
        """Makes the entries of these folders durable, with the folders above them up to and including `root`."""
        ...

    def sync_tree(self, root: str) -> None:
        """Makes everything below `root` that was closed, made or renamed before durable: bytes and names."""
        ...

    def real_path(self, path: str) -> str:
        """The path with symbolic links resolved."""
        ...


@runtime_checkable
class ProbedFileSystem(Protocol):
    """A file system of a kind that nobody has tried: it is asked for all that it has to do when a store is made."""

    def probe(self, folder: str) -> None:
        """Tries it in a folder that is made for that, and that the caller removes.

        Raises:
            ConfigurationError: naming what it can't do.
        """
        ...


class Clock(Protocol):
    """Time, for leases, pacing and reports; never for correctness."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never go back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Waits."""
        ...
