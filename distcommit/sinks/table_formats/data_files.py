"""Data files in tables' folders, and the notes that are staged before them."""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Iterable, Sequence
from urllib.parse import urlparse

from distcommit.core.interfaces.committer import AbortedAttempt, CommitterContext
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.interfaces.sink import StagingArea
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.protocol.paths.temporary_and_probes import table_probe_name
from distcommit.sinks.base.file_names import data_file_note, is_data_file_note, is_data_file_of

logger = logging.getLogger(__name__)
PROBE_BYTES = 64 << 10
_OF_SINK = "sink "


def leave_note(area: StagingArea, sink: str, name: str, path: str, *more: str) -> None:
    """Record a data file's location in staging before the file is created, so that `abort` finds the file if the
    attempt dies. Committers skip notes of other sinks."""
    note = area.fs.create(f"{area.folder}/{data_file_note(name)}")
    try:
        note.write("\n".join((path, *more, f"{_OF_SINK}{sink}")).encode())
    finally:
        note.close_file(sync=False)


def data_files_of_attempt(context: CommitterContext, sink: str, aborted: AbortedAttempt) -> dict[str, Sequence[str]]:
    """Return the data files of an aborted attempt, from its commit infos and the sink's notes.

    Files whose names do not belong to the attempt are skipped.

    Returns:
        By the file's location, the further lines of its note.
    """
    fs, folder = context.fs, f"{context.staging_root}/{aborted.folder}"
    locations: dict[str, Sequence[str]] = {file["path"]: () for info in aborted.infos for file in info["files"]}
    entries = fs.list_folder(folder)
    notes = [f"{folder}/{entry.name}" for entry in entries if is_data_file_note(entry.name)]
    for branch in (f"{folder}/{entry.name}" for entry in entries if entry.is_folder):
        notes += [f"{branch}/{entry.name}" for entry in fs.list_folder(branch) if is_data_file_note(entry.name)]
    for note in notes:
        with contextlib.suppress(FileNotFoundError):
            path, *more = fs.read(note).decode().split("\n")
            # another sink's note is skipped, and an incomplete one: its file was not begun
            if more and more.pop() == f"{_OF_SINK}{sink}":
                locations[path] = more
    return {
        path: more for path, more in sorted(locations.items()) if is_data_file_of(path, aborted.epoch, aborted.attempt)
    }


def warn_of_files_in_use(table: str, paths: Iterable[str]) -> None:
    logger.warning(
        "table %s has, or had, data files of attempts that were aborted by the job's store. They are not deleted, as"
        " versions of the table are read from them. If no operator has abandoned their commits, the store was restored"
        " from a copy that is older than the table: restore the newest copy. Files: %s",
        table,
        ", ".join(sorted(paths)[:3]),
    )


def warn_of_gone_table(paths: Iterable[str]) -> None:
    logger.warning("the table of these data files is gone; they are not deleted: %s", ", ".join(sorted(paths)[:3]))


def local_path(location: str) -> str:
    """Return a location's local path; empty for a remote location."""
    parsed = urlparse(location)
    if parsed.scheme == "file":
        return parsed.path
    return location if location.startswith("/") else ""


def sync_locations(fs: FileSystem, locations: Iterable[str]) -> None:
    """Sync the local file systems of these folders, unless `fs` is a local file system that does not sync. Remote files
    are durable once closed."""
    local = fs if fs.scheme == "file" else LocalFileSystem()
    devices: dict[int, str] = {}
    for path in filter(None, map(local_path, locations)):
        devices.setdefault(os.stat(path).st_dev, path)
    for path in devices.values():
        local.sync_tree(path)


def probe_folder(folder: str) -> None:
    """Write and delete 64 KiB in a local folder or its nearest parent; raises OSError if that fails."""
    while not os.path.exists(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    path = f"{folder}/{table_probe_name(uuid.uuid4().hex)}"
    try:
        with open(path, "xb") as file:
            file.write(os.urandom(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
