"""List or delete a folder with everything below it."""

from __future__ import annotations

from collections.abc import Iterator

from distcommit.core.interfaces.file_system import FileSystem, FolderEntry


def delete_tree(fs: FileSystem, folder: str) -> int:
    """Delete a folder with its content, bottom up. Return the number of deleted files. A missing folder is ignored.

    Nothing is synced: to make the deletion durable, sync the parent folder. After a crash the next call deletes the
    rest. If a marker file in the folder makes the other files valid, the caller must delete the marker first and sync.
    Files that other processes add in the meantime may remain, with the folders above them.
    """
    if fs.delete_folder(folder):  # usually its content has been moved away
        return 0
    files = sum(delete_entry(fs, folder, entry) for entry in fs.list_folder(folder))
    fs.delete_folder(folder)
    return files


def delete_entry(fs: FileSystem, folder: str, entry: FolderEntry) -> int:
    """Delete an entry of `folder`, a file or a folder with its content. Return the number of deleted files."""
    path = f"{folder}/{entry.name}"
    if entry.is_folder:
        return delete_tree(fs, path)
    return 1 if fs.delete(path) else 0


def files_below(fs: FileSystem, folder: str) -> Iterator[str]:
    """Yield all files below a folder, sorted by name."""
    for entry in sorted(fs.list_folder(folder), key=lambda entry: entry.name):
        if entry.is_folder:
            yield from files_below(fs, f"{folder}/{entry.name}")
        else:
            yield f"{folder}/{entry.name}"
