"""Support for a store on another file system than staging and output."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence

from distcommit.core.interfaces.file_system import FileAccess, FileStatus, FileSystem, FolderEntry, StagedWriter


class TwoFileSystems:
    """File system that sends each call to one of two, by its path. It adds no order between them.

    Its capabilities are those of `of_data`; its numbers of parallel calls are the larger ones of both.

    Args:
        of_store: the file system of the store.
        of_data: the file system of staging and output, and of all other paths.
        store: path of the store on its file system. No other path of the job begins with it.
    """

    def __init__(self, of_store: FileSystem, of_data: FileSystem, store: str) -> None:
        self._of_store, self._of_data, self._store = of_store, of_data, store
        self.scheme, self.has_folders = of_data.scheme, of_data.has_folders
        self.has_links, self.names_last = of_data.has_links, of_data.names_last
        self.parallel_calls = max(of_store.parallel_calls, of_data.parallel_calls)
        self.parallel_buckets = max(of_store.parallel_buckets, of_data.parallel_buckets)

    def part_of(self, path: str) -> FileSystem:
        is_in_store = path == self._store or path.startswith(f"{self._store}/")
        return self._of_store if is_in_store else self._of_data

    def read(self, path: str) -> bytes:
        return self.part_of(path).read(path)

    def list_folder(self, path: str) -> list[FolderEntry]:
        return self.part_of(path).list_folder(path)

    def status(self, path: str) -> FileStatus | None:
        return self.part_of(path).status(path)

    def checksum(self, path: str) -> int:
        return self.part_of(path).checksum(path)

    def make_folder(self, path: str) -> bool:
        return self.part_of(path).make_folder(path)

    def make_folders(self, path: str) -> None:
        self.part_of(path).make_folders(path)

    def create(self, path: str, target: str = "") -> StagedWriter:
        return self.part_of(path).create(path, target)

    def set_access(self, path: str, access: FileAccess) -> None:
        self.part_of(path).set_access(path, access)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self.part_of(path).put_if_absent(path, data)

    def put_all_if_absent(self, files: Sequence[tuple[str, bytes]]) -> list[bool | OSError]:
        results: dict[int, bool | OSError] = {}
        for part in (self._of_store, self._of_data):
            numbers = [number for number, (path, _) in enumerate(files) if self.part_of(path) is part]
            if numbers:
                puts = part.put_all_if_absent([files[number] for number in numbers])
                results |= dict(zip(numbers, puts, strict=True))
        return [results[number] for number in range(len(files))]

    def rename(self, source: str, target: str) -> None:
        part = self.part_of(source)
        if self.part_of(target) is not part:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source, None, target)
        part.rename(source, target)

    def rename_folder(self, source: str, target: str) -> bool:
        part = self.part_of(source)
        return self.part_of(target) is part and part.rename_folder(source, target)

    def delete(self, path: str) -> bool:
        return self.part_of(path).delete(path)

    def delete_folder(self, path: str) -> bool:
        return self.part_of(path).delete_folder(path)

    def sync(self, folders: Iterable[str], root: str) -> None:
        listed = list(folders)
        for part in (self._of_store, self._of_data):
            of_part = [folder for folder in listed if self.part_of(folder) is part]
            if of_part:
                part.sync(of_part, root)

    def sync_tree(self, root: str) -> None:
        self.part_of(root).sync_tree(root)

    def real_path(self, path: str) -> str:
        return self.part_of(path).real_path(path)


def file_system_at(fs: FileSystem, root: str) -> FileSystem:
    return fs.part_of(root) if isinstance(fs, TwoFileSystems) else fs
