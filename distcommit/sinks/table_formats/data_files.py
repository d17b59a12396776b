"""What sinks share whose writers put data files where a table has its own, and whose committers add them to it."""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Protocol
from urllib.parse import urlparse

import pyarrow as pa

from distcommit.core.interfaces.committer import CommitterContext, LostAttempt
from distcommit.core.interfaces.sink import (
    AttemptIdentity,
    Filtered,
    Origin,
    Origins,
    Prepared,
    SinkWriter,
    StagingArea,
)
from distcommit.core.ports import FileSystem
from distcommit.core.work import SkippedRange
from distcommit.fs.posix_calls.local import LocalFileSystem
from distcommit.protocol.paths.temporary import table_probe_name
from distcommit.sinks.base.clients import Connection
from distcommit.sinks.base.offset_coverage import Covering
from distcommit.sinks.base.target_files import data_file_note, is_data_file_note, is_data_file_of
from distcommit.sinks.table_formats.schema_coercion import Fitting

logger = logging.getLogger(__name__)
_WAITING_BYTES = 64 << 20
PROBE_BYTES = 64 << 10
_OF_SINK = "sink "


def leave_note(area: StagingArea, sink: str, name: str, path: str, *more: str) -> None:
    """Notes where a data file of that name is to be, before it is begun: by that it is found should the attempt die.
    `sink`: its stored name, so that no other one's committer takes it for its own; `more`: what else that one is to
    know of it, a line each."""
    note = area.fs.create(f"{area.folder}/{data_file_note(name)}")
    try:
        note.write("\n".join((path, *more, f"{_OF_SINK}{sink}")).encode())
    finally:
        note.close_file(sync=False)


def left_by(context: CommitterContext, sink: str, lost: LostAttempt) -> dict[str, Sequence[str]]:
    """Where the data files of an attempt are, or were, by its infos and its notes, and what more its notes say. Behind
    a fork each branch has its notes in a folder of its own."""
    fs, folder = context.fs, f"{context.staging_root}/{lost.folder}"
    found: dict[str, Sequence[str]] = {file["path"]: () for info in lost.infos for file in info["files"]}
    entries = fs.list_folder(folder)
    notes = [f"{folder}/{each.name}" for each in entries if is_data_file_note(each.name)]
    for branch in (f"{folder}/{each.name}" for each in entries if each.is_folder):
        notes += [f"{branch}/{each.name}" for each in fs.list_folder(branch) if is_data_file_note(each.name)]
    for note in notes:
        with contextlib.suppress(FileNotFoundError):
            path, *more = fs.read(note).decode().split("\n")
            if more and more.pop() == f"{_OF_SINK}{sink}":  # else another sink's, or cut off: then no file was begun
                found[path] = more
    return {path: more for path, more in sorted(found.items()) if is_data_file_of(path, lost.epoch, lost.attempt)}


def tell_kept(table: str, paths: Iterable[str]) -> None:
    """Warns of files that are not deleted, though the store says that their attempts have lost."""
    logger.warning(
        "the table %s has, or had, data files of attempts that have lost, as far as the job's store knows: they stay,"
        " as versions of the table are read from them. If nobody has abandoned what was committed, the store was put"
        " back from a copy that is older than the table: restore the newest one: %s",
        table,
        ", ".join(sorted(paths)[:3]),
    )


def local_path(location: str) -> str:
    """The path of a location on this machine; empty if it is elsewhere."""
    parsed = urlparse(location)
    if parsed.scheme == "file":
        return parsed.path
    return location if location.startswith("/") else ""


def sync_locations(fs: FileSystem, locations: Iterable[str]) -> None:
    """Makes durable what was written below these locations; elsewhere than on this machine a closed file is.

    Args:
        fs: the job's file system, which syncs as the job file says if it is a local one.
        locations: folders.
    """
    local = fs if fs.scheme == "file" else LocalFileSystem()
    devices: dict[int, str] = {}
    for path in filter(None, map(local_path, locations)):
        devices.setdefault(os.stat(path).st_dev, path)
    for path in devices.values():
        local.sync_tree(path)


def probe_folder(folder: str) -> None:
    """Writes 64 KiB in a folder of this machine, or in the nearest above it if it is not made yet, and deletes them.

    Raises:
        OSError: if that can't be done, as on a disk that is full.
    """
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


def let_go(*opened: Connection) -> None:
    """Closes parts of what is about to be deleted, whatever goes wrong with each."""
    for each in opened:
        with contextlib.suppress(Exception):
            each.close()


def like_those_before(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows as a file takes them that was begun with that schema: one Parquet type may have been another of Arrow's
    then, as where these rows come from records that lack a column."""
    return rows if rows.schema.equals(schema) else rows.cast(schema)


class TableFiles(Protocol):
    """Data files of one schema of a table, open or finished."""

    def write(self, rows: pa.Table) -> None:
        """Writes rows to files that are open, or begins them."""
        ...

    def close(self) -> None:
        """Finishes all files."""
        ...

    def plain(self) -> list[dict[str, Any]]:
        """The finished files as plain data."""
        ...

    def delete(self) -> None:
        """Closes and deletes all files."""
        ...


class DataFileWriter(SinkWriter):
    """Rows wait in memory until they take 64 MB, and become a row group of each partition that they are of."""

    groups_schemas: ClassVar[bool] = True

    def __init__(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> None:
        self._attempt, self._area = attempt, area
        self._covering = Covering(origin)
        self._schema: pa.Schema | None = None
        self._files: TableFiles | None = None
        self._fitting: Fitting | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._closed: list[TableFiles] = []

    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        """Takes records for the dataset.

        Raises:
            ConfigurationError: if they do not fit into the table, or there is none and none is to be made.
            SourceError: if a row does not say where it comes from.
        """
        if not batch.num_rows:
            return
        self._covering.add(batch, origins)
        if self._schema is None or not batch.schema.equals(self._schema):
            self._flush()
            self._files, self._fitting = self._adapted(batch.schema)
            self._schema = batch.schema
        assert self._fitting is not None
        fitted = self._fitting.fitted(batch)
        self._waiting.append(fitted)
        self._waiting_bytes += fitted.nbytes
        if self._waiting_bytes >= _WAITING_BYTES:
            self._flush()

    def note_holes(self, holes: Iterable[SkippedRange]) -> None:
        self._covering.note_holes(holes)

    def note_filtered(self, filtered: Filtered) -> bool:
        return self._covering.note_filtered(filtered)

    def prepare_commit(self) -> Prepared:
        self._flush()
        if self._files is not None:
            self._closed.append(self._files)
        for files in self._closed:
            files.close()
        if not self._covering.rows:
            return Prepared(holes=self._covering.holes_left)
        table, location = self._table()
        plain = [file for files in self._closed for file in files.plain()]
        sync_locations(self._area.fs, [location])
        return Prepared([{**table, "files": plain, "covered": self._covering.covered()}])

    def abort(self) -> None:
        """Closes files, and takes them away: no attempt will name them."""
        if self._files is not None:
            self._closed.append(self._files)
        for files in self._closed:
            files.delete()

    @abstractmethod
    def _adapted(self, schema: pa.Schema) -> tuple[TableFiles, Fitting]:
        """Has the table take records of another schema: `self._files`, if they do, or new ones in place of those, which
        are `_closed` then; and what makes rows of them."""

    @abstractmethod
    def _table(self) -> tuple[dict[str, Any], str]:
        """What a commit info says of the table that was written to last, and below what its data files are."""

    def _flush(self) -> None:
        if not self._waiting:
            return
        assert self._files is not None
        rows = pa.Table.from_batches(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        self._files.write(rows)
