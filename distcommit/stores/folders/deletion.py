"""Deleting a folder with all that is in it: the one way in which anything of ours goes as a whole."""

from __future__ import annotations

from distcommit.core.ports import FileSystem, FolderEntry


def delete_tree(fs: FileSystem, folder: str) -> int:
    """Deletes a folder with what is in it, from below; returns how many files went. A missing one is fine.

    Nothing is synced: who needs the deletion to last syncs the folder above. A crash leaves part of the tree, which the
    next call deletes; what has to go first or last (a marker that makes the rest count) is the caller's to delete,
    with a sync between. What others add meanwhile may stay, and the folders above it with it.
    """
    if fs.delete_folder(folder):  # the usual case: all that was in it has been moved away
        return 0
    files = sum(delete_entry(fs, folder, entry) for entry in fs.list_folder(folder))
    fs.delete_folder(folder)
    return files


def delete_entry(fs: FileSystem, folder: str, entry: FolderEntry) -> int:
    """As `delete_tree`, for something that a listing of `folder` has shown, be it a folder or a file."""
    path = f"{folder}/{entry.name}"
    if entry.is_folder:
        return delete_tree(fs, path)
    return 1 if fs.delete(path) else 0
