"""Operations of network file systems."""

from __future__ import annotations

import contextlib
import errno
import posixpath
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from xxhash import xxh3_64

from distcommit.core.interfaces.file_system import FileSystem, not_put
from distcommit.core.support.parallel import run_parallel
from distcommit.protocol.paths.temporary_and_probes import temporary_name


class NetworkFileOperations(FileSystem, Protocol):
    """Operations that network file systems share: nothing can be synced after a call, and links are not visible.

    A client may repeat a request after a lost response, so a subclass's `rename` must not replace a file.
    """

    def read_chunks(self, path: str) -> Iterator[bytes]: ...

    def read(self, path: str) -> bytes:
        return b"".join(self.read_chunks(path))

    def checksum(self, path: str) -> int:
        checksum = xxh3_64()
        for chunk in self.read_chunks(path):
            checksum.update(chunk)
        return checksum.intdigest()

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Put a file by renaming a temporary one. If that is missing, a file with the same bytes counts as put by this
        call."""
        folder, name = posixpath.split(path)
        temporary = f"{folder}/{temporary_name(name, uuid.uuid4().hex)}"
        try:
            self._write_temporary(temporary, path, data)
            self.rename(temporary, path)
        except FileExistsError:
            self.delete(temporary)
            return False
        except FileNotFoundError:
            # The folder is missing, the temporary file was swept, or the client repeated a rename that was done.
            return self.read(path) == data
        except OSError as error:
            is_rejected = self._surely_exists(temporary)
            with contextlib.suppress(OSError):
                self.delete(temporary)
            raise (not_put(error, path) if is_rejected else error) from error
        return True

    def put_all_if_absent(self, files: Sequence[tuple[str, bytes]]) -> list[bool | OSError]:
        def put(file: tuple[str, bytes]) -> bool | OSError:
            try:
                return self.put_if_absent(*file)
            except OSError as error:
                return error

        return run_parallel(self.parallel_calls, put, files)

    def sync(self, folders: Iterable[str], root: str) -> None:
        return

    def sync_tree(self, root: str) -> None:
        return

    def real_path(self, path: str) -> str:
        return posixpath.normpath(path)

    def _surely_exists(self, path: str) -> bool:
        try:
            return self.status(path) is not None
        except OSError:
            return False

    def _write_temporary(self, temporary: str, path: str, data: bytes) -> None:
        try:
            try:
                writer = self.create(temporary)
            except FileExistsError as error:  # the name is unique: the client repeated a request that was done
                raise OSError(errno.EIO, "the response to the creation of a file was lost", temporary) from error
            try:
                writer.write(data)
            finally:
                writer.close_file(sync=True)
        except OSError as error:
            raise not_put(error, path) from error
