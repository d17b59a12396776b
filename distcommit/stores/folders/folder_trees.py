"""List or delete a folder with everything below it."""

from __future__ import annotations

from collections.abc import Iterator

from distcommit.core.interfaces.file_system import FileSystem, FolderEntry


def delete_tree(fs: FileSystem, folder: str) -> int:
    """Delete a folder bottom up, if it exists; return the number of deleted files.

    To make the deletion durable, sync the parent. After a crash the next call deletes the rest. If a marker file in the
    folder makes the others valid, the caller must delete it first and sync. Files that other processes add meanwhile
    may remain.
    """
    if fs.delete_folder(folder):  # usually its content has been moved away
        return 0
    files = sum(delete_entry(fs, folder, entry) for entry in fs.list_folder(folder))
    fs.delete_folder(folder)
    return files


def delete_entry(fs: FileSystem, folder: str, entry: FolderEntry) -> int:
    path = f"{folder}/{entry.name}"
    if entry.is_folder:
        return delete_tree(fs, path)
    return 1 if fs.delete(path) else 0


def files_below(fs: FileSystem, folder: str) -> Iterator[str]:
    """Yield the paths of all files below a folder, each folder in the order of names."""
    for entry in sorted(fs.list_folder(folder), key=lambda entry: entry.name):
        if entry.is_folder:
            yield from files_below(fs, f"{folder}/{entry.name}")
        else:
            yield f"{folder}/{entry.name}"
