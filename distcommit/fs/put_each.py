"""Putting many files where each has a barrier of its own: as many at once as the file system is worth."""

from __future__ import annotations

from collections.abc import Sequence

from distcommit.model.parallel import in_flight
from distcommit.model.ports import FileSystem


def put_each(fs: FileSystem, files: Sequence[tuple[str, bytes]]) -> list[bool | OSError]:
    """`FileSystem.put_all_if_absent` by `put_if_absent`."""

    def put(file: tuple[str, bytes]) -> bool | OSError:
        try:
            return fs.put_if_absent(*file)
        except OSError as error:
            return error

    return in_flight(fs.parallel_calls, put, files)
