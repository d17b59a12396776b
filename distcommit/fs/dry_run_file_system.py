"""File system for dry runs of a sweep."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.file_system import FileSystem, FolderEntry


class DryRunDeletes:
    """File system that records deletions instead of executing them.

    Listings omit deleted files, but `status` and `read` still find them. Puts and changes of access raise
    DistcommitError; other changes raise AttributeError.

    Attributes:
        deleted: paths of deleted files, in order.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self.deleted: list[str] = []
        self._gone: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("create", "rename", "rename_folder", "make_folder", "make_folders"):
            raise AttributeError(name)
        if name.startswith("put_") or name == "set_access":
            raise DistcommitError("a dry run supports only deletions", found=name)
        return getattr(self._fs, name)

    def delete(self, path: str) -> bool:
        if path in self._gone or self._fs.status(path) is None:
            return False
        self._gone.add(path)
        self.deleted.append(path)
        return True

    def delete_folder(self, path: str) -> bool:
        if path in self._gone or self._fs.status(path) is None or self.list_folder(path):
            return False
        self._gone.add(path)
        return True

    def list_folder(self, path: str) -> list[FolderEntry]:
        return [entry for entry in self._fs.list_folder(path) if f"{path}/{entry.name}" not in self._gone]

    def sync(self, folders: Iterable[str], root: str) -> None:
        pass

    def sync_tree(self, root: str) -> None:
        pass
