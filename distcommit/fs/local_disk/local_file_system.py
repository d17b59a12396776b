"""The local file system, durable by fsync or syncfs.

A name is durable only once its folder and the folders above it are synced (Pillai et al., OSDI 2014).
"""

from __future__ import annotations

import contextlib
import errno
import posixpath
import uuid
from collections.abc import Iterable, Sequence
from functools import partial

from xxhash import xxh3_64_intdigest

from distcommit.core.interfaces.file_system import FileAccess, FileStatus, FolderEntry, not_put
from distcommit.core.support.parallel import run_parallel
from distcommit.fs.checksumming_writer import ChecksummingWriter
from distcommit.fs.local_disk.posix_calls import PosixCalls, RealPosixCalls
from distcommit.protocol.paths.temporary_and_probes import temporary_name

_NO_RENAMEAT2 = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}
_SYNCFS_ABOVE = 16


class LocalFileSystem:
    """Files on this machine, or on a POSIX mount that every executor has at the same path.

    Args:
        calls: the system calls to use.
        durable: whether to sync. If False, a crash of the machine (not of a process) may lose published data.
        parallel_calls: number of concurrent calls; more than 1 only helps on a network mount.
        parallel_buckets: number of buckets that a task works on concurrently; likewise.
    """

    scheme = "file"
    has_folders = has_links = True
    names_last = False

    def __init__(
        self,
        calls: PosixCalls | None = None,
        *,
        durable: bool = True,
        parallel_calls: int = 1,
        parallel_buckets: int = 1,
    ) -> None:
        self._calls = calls if calls is not None else RealPosixCalls()
        self._durable, self.parallel_calls, self.parallel_buckets = durable, parallel_calls, parallel_buckets
        self._renames = True

    def read(self, path: str) -> bytes:
        return self._calls.read_file(path)

    def list_folder(self, path: str) -> list[FolderEntry]:
        try:
            return self._calls.scandir(path)
        except FileNotFoundError:
            return []

    def status(self, path: str) -> FileStatus | None:
        try:
            return self._calls.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def checksum(self, path: str) -> int:
        return xxh3_64_intdigest(self._calls.read_file(path))

    def make_folder(self, path: str) -> bool:
        try:
            self._calls.mkdir(path)
        except FileExistsError:
            return False
        return True

    def make_folders(self, path: str) -> None:
        try:
            self.make_folder(path)
        except FileNotFoundError:
            self.make_folders(posixpath.dirname(path))
            self.make_folder(path)

    def create(self, path: str, target: str = "") -> LocalStagedWriter:
        return LocalStagedWriter(self._calls, self._calls.open_new(path), durable=self._durable)

    def set_access(self, path: str, access: FileAccess) -> None:
        if access.mode is not None:
            self._calls.chmod(path, access.mode)
        if access.owner is not None or access.group is not None:
            self._calls.chown(path, access.owner, access.group)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        (answer,) = self.put_all_if_absent([(path, data)])
        if isinstance(answer, OSError):
            raise answer
        return answer

    def put_all_if_absent(self, files: Sequence[tuple[str, bytes]]) -> list[bool | OSError]:
        """Put files. Several are synced by two calls of `syncfs`, faster than by `fsync` of each (measured on ext4)."""
        puts = [_Put(path, data) for path, data in files]
        together = len(puts) > 1
        run_parallel(self.parallel_calls, partial(self._write_aside, sync=not together), puts)
        if together:
            self._sync_puts([put for put in puts if put.error is None], named=False)
        run_parallel(self.parallel_calls, self._take_name, [put for put in puts if put.error is None])
        won = [put for put in puts if put.won]
        if together:
            self._sync_puts(won, named=True)
        else:
            run_parallel(self.parallel_calls, self._sync_name, won)
        return [put.won if put.error is None else put.error for put in puts]

    def _write_aside(self, put: _Put, *, sync: bool) -> None:
        try:
            writer = self.create(put.temporary)
            try:
                writer.write(put.data)
            finally:
                writer.close_file(sync=sync)
        except OSError as error:
            self._give_up(put, not_put(error, put.path))

    def _take_name(self, put: _Put) -> None:
        try:
            self.rename(put.temporary, put.path)
            put.won = True
        except FileExistsError:
            self._give_up(put, None)
        except OSError as error:  # after link and unlink the name may exist
            self._give_up(put, not_put(error, put.path) if self._renames else error)

    def _sync_name(self, put: _Put) -> None:
        try:
            self._sync_folder(put.folder)
        except OSError as error:
            put.error = error

    def _sync_puts(self, puts: Sequence[_Put], *, named: bool) -> None:
        try:
            if puts:
                self.sync_tree(puts[0].folder)
        except OSError as error:
            for put in puts:
                self._give_up(put, error if named else not_put(error, put.path))

    def _give_up(self, put: _Put, error: OSError | None) -> None:
        put.error = error
        with contextlib.suppress(OSError):
            self.delete(put.temporary)

    def rename(self, source: str, target: str) -> None:
        if self._renames:
            try:
                self._calls.rename_noreplace(source, target)
                return
            except OSError as error:
                if error.errno not in _NO_RENAMEAT2:
                    raise
                self._renames = False  # NFS and old kernels: link and unlink have the same effect in two calls
        self._calls.link(source, target)
        self._sync_folder(posixpath.dirname(target))  # the new name must be durable before the old one is removed
        self._calls.unlink(source)

    def rename_folder(self, source: str, target: str) -> bool:
        if not self._renames:
            return False
        try:
            self._calls.rename_noreplace(source, target)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY, *_NO_RENAMEAT2):
                return False
            raise
        return True

    def delete(self, path: str) -> bool:
        try:
            self._calls.unlink(path)
        except FileNotFoundError:
            return False
        return True

    def delete_folder(self, path: str) -> bool:
        try:
            self._calls.rmdir(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        return True

    def sync(self, folders: Iterable[str], root: str) -> None:
        if not self._durable:
            return
        touched: set[str] = set()
        for folder in folders:
            above = folder
            while above not in touched:
                touched.add(above)
                if len(above) <= len(root):
                    break
                above = above.rpartition("/")[0] or "/"  # five times as fast as `dirname`; paths are normalized
        if len(touched) > _SYNCFS_ABOVE:
            self._calls.syncfs(root)
            return
        deepest_first = sorted(touched, key=len, reverse=True)
        run_parallel(self.parallel_calls, self._calls.fsync_folder, deepest_first)

    def sync_tree(self, root: str) -> None:
        if self._durable:
            self._calls.syncfs(root)

    def real_path(self, path: str) -> str:
        return self._calls.realpath(path)

    def _sync_folder(self, folder: str) -> None:
        if self._durable:
            self._calls.fsync_folder(folder)


class _Put:
    __slots__ = ("data", "error", "folder", "path", "temporary", "won")

    def __init__(self, path: str, data: bytes) -> None:
        self.path, self.data = path, data
        self.folder, _, name = path.rpartition("/")
        self.temporary = f"{self.folder}/{temporary_name(name, uuid.uuid4().hex)}"
        self.won = False
        self.error: OSError | None = None


class LocalStagedWriter(ChecksummingWriter):
    def __init__(self, calls: PosixCalls, fd: int, *, durable: bool) -> None:
        super().__init__()
        self._calls, self._fd, self._durable = calls, fd, durable

    def _write_all(self, view: memoryview) -> None:
        done = 0
        while done < len(view):
            done += self._calls.write(self._fd, view[done:])

    def close_file(self, *, sync: bool) -> FileStatus:
        fd, self._fd = self._fd, -1
        try:
            if sync and self._durable:
                self._calls.fsync(fd)
            return self._calls.fstat(fd)
        finally:
            self._calls.close(fd)
