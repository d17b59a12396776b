"""A correct fsspec file system on the local disk, and variants with one defect each."""

from __future__ import annotations

import errno
import io
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from distcommit.fs.fsspec_based.fsspec_file_system import FsspecFileSystem
from distcommit.fs.local_disk.posix_calls import RealPosixCalls

MAKER = "DISTCOMMIT_TEST_MAKER"


def opened(kind: type[LocalFileSystem]) -> FsspecFileSystem:
    """Open one of these as a job does."""
    return FsspecFileSystem(kind, "renaming", "here")


def in_another_process() -> bool:
    """Return whether this process differs from the one that the variable names."""
    return os.environ[MAKER] != str(os.getpid())


class Renaming(LocalFileSystem):  # type: ignore[misc]
    """A correct file system. Its URLs are renaming://here/..."""

    protocol = "renaming"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("renaming://here")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        return {}

    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        RealPosixCalls().rename_noreplace(path1, path2)

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        (os.makedirs if create_parents else os.mkdir)(path)


class ReadsLess(Renaming):
    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        file = super()._open(path, mode, **kwargs)
        return io.BytesIO(file.read()[:-1]) if mode == "rb" else file


class Overwrites(Renaming):
    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        return super()._open(path, mode.replace("x", "w"), **kwargs)


class EmptiesExistingTargets(Renaming):
    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        if mode == "xb" and os.path.exists(path):
            os.truncate(path, 0)
        return super()._open(path, mode, **kwargs)


class _Later(io.BytesIO):
    """A file that appears under its name when it is closed."""

    def __init__(self, put: Callable[[bytes], None]) -> None:
        super().__init__()
        self.put = put

    def close(self) -> None:
        data = self.getvalue()
        super().close()
        self.put(data)


class MakesWhenClosed(Renaming):
    """A defective variant: a file takes its name when it is closed, whichever file has it by then."""

    mode = "wb"

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        if mode != "xb":
            return super()._open(path, mode, **kwargs)
        if os.path.exists(path):
            _raise_taken(path)
        if not os.path.isdir(os.path.dirname(path)):
            raise FileNotFoundError(path)

        def put(data: bytes) -> None:
            with open(path, self.mode) as file:
                file.write(data)

        return _Later(put)


class ReportsWhenClosed(MakesWhenClosed):
    """A correct variant: the first of two files to be closed gets the name, and the other close raises."""

    mode = "xb"


def _raise_taken(path: str) -> None:
    raise FileExistsError(errno.EEXIST, "taken", path)


class MakesRoomForFiles(Renaming):
    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        if mode == "xb":
            os.makedirs(os.path.dirname(path), exist_ok=True)
        return super()._open(path, mode, **kwargs)


class MakesRoomForRenames(Renaming):
    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        os.makedirs(os.path.dirname(path2), exist_ok=True)
        super().mv(path1, path2)


class MakesRoomForFolders(Renaming):
    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        if os.path.exists(path):
            _raise_taken(path)
        os.makedirs(path)


class MakesFoldersAgain(Renaming):
    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        with suppress(FileExistsError):
            os.mkdir(path)


class RemovesTrees(Renaming):
    def rmdir(self, path: str) -> None:
        shutil.rmtree(path)


class KeepsFiles(Renaming):
    def rm_file(self, path: str) -> None:
        pass


class KeepsFolders(Renaming):
    def rmdir(self, path: str) -> None:
        if os.listdir(path):
            raise OSError("not empty")


class ListsForEver(Renaming):
    """A defective variant: it returns its first listing for ever, whatever the cache options."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.seen: dict[str, set[str]] = {}

    def ls(self, path: str, detail: bool = False, **kwargs: Any) -> Any:
        names = self.seen.setdefault(path, set())
        names |= set(os.listdir(path))
        return [{"name": f"{path}/{name}", "type": "file"} for name in names]

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        if mode == "xb":
            self.seen.setdefault(os.path.dirname(path), set()).add(os.path.basename(path))
        return super()._open(path, mode, **kwargs)


class HasShortPaths(Renaming):
    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        if path.count("/tief") > 5:
            raise OSError(errno.ENAMETOOLONG, "too long", path)
        return super()._open(path, mode, **kwargs)


class Replaces(Renaming):
    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        os.replace(path1, path2)


class LosesUnrenamedFiles(Renaming):
    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        if os.path.isfile(path2):
            os.remove(path1)
            _raise_taken(path2)
        super().mv(path1, path2)


class RenamesIntoFolders(Renaming):
    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        super().mv(path1, os.path.join(path2, os.path.basename(path1)) if os.path.isdir(path2) else path2)


class RenamesIntoFoldersAndRefuses(Renaming):
    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        if os.path.isdir(path2):
            shutil.copy(path1, path2)
        super().mv(path1, path2)


class KeepsTheOldName(Renaming):
    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        os.link(path1, path2)


class IgnoresMissingFiles(Renaming):
    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        if os.path.exists(path1) or not os.path.exists(os.path.dirname(path1)) or "missing" in path2:
            super().mv(path1, path2)


class LooksThenRenames(Renaming):
    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        if os.path.exists(path2):
            _raise_taken(path2)
        time.sleep(0.01)
        os.replace(path1, path2)


class ReportsTheWrongWinner(Renaming):
    """A defective variant: the first of eight renames to a name wins, but the last one is reported as the winner."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.calls = 0

    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        if not path2.endswith("/renamed"):
            super().mv(path1, path2)
            return
        with suppress(FileExistsError):
            super().mv(path1, path2)
        self.calls += 1
        if self.calls % 8:
            _raise_taken(path2)


class LosesTheLoserOfARace(Renaming):
    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        try:
            super().mv(path1, path2)
        except FileExistsError:
            if path2.endswith("/renamed"):
                os.remove(path1)
            raise


class LooksThenMakes(Renaming):
    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        if mode == "xb":
            if os.path.exists(path):
                _raise_taken(path)
            time.sleep(0.01)
        return super()._open(path, mode.replace("x", "w"), **kwargs)


class MixesConcurrentWrites(Renaming):
    """A defective variant: the first process to create a name is confirmed and all others are refused, but only after
    they wrote to it.
    """

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        if not (path.endswith("/made") and mode == "xb"):
            return super()._open(path, mode, **kwargs)
        try:
            super()._open(path, "xb", **kwargs).close()
        except FileExistsError:
            with super()._open(path, "ab", **kwargs) as file:
                file.write(b"mine, too")
            raise
        return super()._open(path, "ab", **kwargs)


class DropsDots(Renaming):
    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        return super()._open(path.rstrip("."), mode, **kwargs)


class TakesAsciiOnly(Renaming):
    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        if not os.path.basename(path).isascii():
            raise OSError(errno.EILSEQ, "not ASCII", path)
        return super()._open(path, mode, **kwargs)


class RefusesOddNames(Renaming):
    """A correct variant: a refused name is not stored under another one."""

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        if path.endswith((".", " ")) or ":" in path:
            raise OSError(errno.EINVAL, "not a name", path)
        return super()._open(path, mode, **kwargs)


class IgnoresCase(Renaming):
    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        folder, name = os.path.split(path)
        return super()._open(path if len(name) > 1 else f"{folder}/{name.lower()}", mode, **kwargs)


class CachesMissingFiles(Renaming):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.missing: set[str] = set()

    def info(self, path: str, **kwargs: Any) -> Any:
        if path in self.missing:
            raise FileNotFoundError(path)
        try:
            return super().info(path, **kwargs)
        except FileNotFoundError:
            self.missing.add(path)
            raise

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        self.missing.discard(path)
        return super()._open(path, mode, **kwargs)

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        self.missing.discard(path)
        super().mkdir(path, create_parents)

    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        self.missing.discard(path2)
        super().mv(path1, path2)


class CachesExistingFiles(Renaming):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.there: dict[str, Any] = {}

    def info(self, path: str, **kwargs: Any) -> Any:
        return self.there.setdefault(path, super().info(path, **kwargs)) if path not in self.there else self.there[path]

    def rm_file(self, path: str) -> None:
        self.there.pop(path, None)
        super().rm_file(path)

    def rmdir(self, path: str) -> None:
        self.there.pop(path, None)
        super().rmdir(path)

    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        super().mv(path1, path2)
        self.there.pop(path1, None)


class ShowsOneProcessOnly(Renaming):
    def ls(self, path: str, detail: bool = False, **kwargs: Any) -> Any:
        return [] if in_another_process() else super().ls(path, detail, **kwargs)


class OverwritesOtherProcesses(Renaming):
    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        return super()._open(path, mode.replace("x", "w") if in_another_process() else mode, **kwargs)


class WorksInOneProcessOnly(Renaming):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if in_another_process():
            raise RuntimeError("no such mount")
