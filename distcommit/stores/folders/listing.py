"""Recursive listing of a folder."""

from __future__ import annotations

from collections.abc import Iterator

from distcommit.core.ports import FileSystem


def files_below(fs: FileSystem, folder: str) -> Iterator[str]:
    """Yield all files below a folder, sorted by name."""
    for entry in sorted(fs.list_folder(folder), key=lambda entry: entry.name):
        if entry.is_folder:
            yield from files_below(fs, f"{folder}/{entry.name}")
        else:
            yield f"{folder}/{entry.name}"
