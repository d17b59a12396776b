"""Deletion of aborted attempts' data files that are in no snapshot.

A store that was restored from a copy may consider attempts aborted whose files the table has. The note of a data file
has the table's sequence number when the file was created; any snapshot with the file has a greater one.
"""

from __future__ import annotations

import contextlib
import logging
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from urllib.parse import urlsplit

from pyiceberg.io import FileIO, load_file_io
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table, TableProperties

from distcommit.core.interfaces.committer import AbortedAttempt, CommitterContext
from distcommit.core.support.parallel import run_parallel
from distcommit.fs.local_disk.posix_calls import RealPosixCalls
from distcommit.sinks.iceberg.catalog.tables import Identifier, Tables
from distcommit.sinks.table_formats.data_files import data_files_of_attempt, local_path, warn_of_files_in_use
from distcommit.sinks.table_formats.s3_data_files import delete_data_file, requests_to

logger = logging.getLogger(__name__)
OrphanedFiles = dict[Identifier, dict[str, int]]
"""Paths of files by table, with the table's sequence number when the file was created; 0 if unknown."""
_S3 = frozenset({"s3", "s3a", "s3n"})
_CLIENT = {
    **{"client.region": "region_name", "s3.region": "region_name", "s3.endpoint": "endpoint_url"},
    **{"client.access-key-id": "aws_access_key_id", "s3.access-key-id": "aws_access_key_id"},
    **{"client.secret-access-key": "aws_secret_access_key", "s3.secret-access-key": "aws_secret_access_key"},
    **{"client.session-token": "aws_session_token", "s3.session-token": "aws_session_token"},
}
"""Catalog settings with their options for a bucket's client; of several, the last counts."""


def note_of(table: Table) -> tuple[str, str]:
    """Return the lines of a note: the table's name and sequence number."""
    return ".".join(table.name()), str(table.metadata.next_sequence_number() - 1)


def orphaned_files(context: CommitterContext, sink: str, aborted: Sequence[AbortedAttempt]) -> OrphanedFiles:
    by_table: OrphanedFiles = {}
    for attempt in aborted:
        tables = {file["path"]: tuple(info["table"]) for info in attempt.infos for file in info["files"]}
        for path, more in data_files_of_attempt(context, sink, attempt).items():
            name, number = (tuple(more[0].split(".")), int(more[1])) if more else (tables[path], 0)
            by_table.setdefault(name, {})[path] = number
    return by_table


def existing(tables: Tables, paths: Iterable[str]) -> set[str]:

    def exists(path: str) -> bool:
        result: bool = load_file_io(tables.catalog.properties, path).new_input(path).exists()
        return result

    names = list(paths)
    is_present = run_parallel(tables.parallel_calls, exists, names)
    return {path for path, ok in zip(names, is_present, strict=True) if ok}


def needed(table: Table, files: Mapping[str, int], parallel_calls: int) -> set[str]:
    """Return and log files that a snapshot has or that are not below a folder of the table. `files` have the table's
    sequence number when each was created."""
    if not files:
        return set()
    manifests = [(table.io, manifest) for manifest in _manifests(table, min(files.values()))]
    in_table = files.keys() & set().union(*run_parallel(parallel_calls, _paths_of, manifests))
    if in_table:
        warn_of_files_in_use(".".join(table.name()), in_table)
    locations = _data_folders(table)
    if foreign := {path for path in files if not _folder_of(path, locations)}:
        logger.warning("data files outside of their table are not deleted: %s", ", ".join(sorted(foreign)[:3]))
    return in_table | foreign


def live_files(table: Table, files: AbstractSet[str], parallel_calls: int) -> set[str]:
    snapshot = table.current_snapshot()
    if snapshot is None or not files:
        return set()
    manifests = [(table.io, manifest) for manifest in snapshot.manifests(table.io)]
    return set(files & set().union(*run_parallel(parallel_calls, _paths_of, manifests)))


def delete(tables: Tables, paths: Iterable[str], table: Table | None) -> None:
    """Delete data files that exist, and in S3 parts of unfinished uploads. Local files that are not below a folder of
    `table` are skipped."""
    locations = [] if table is None else _data_folders(table)
    properties = tables.catalog.properties
    options = {translated: properties[name] for name, translated in _CLIENT.items() if name in properties}

    def forget(path: str) -> None:
        parts = urlsplit(path)
        if parts.scheme in _S3:
            delete_data_file(requests_to(parts.netloc, "iceberg", options), parts.path.lstrip("/"))
            return
        with contextlib.suppress(FileNotFoundError):
            if local := local_path(path):
                if location := _folder_of(path, locations):
                    RealPosixCalls((location,)).unlink(local)
            else:
                load_file_io(properties, path).delete(path)

    run_parallel(tables.parallel_calls, forget, sorted(paths))


def _data_folders(table: Table) -> list[str]:
    located = {table.location(), table.properties.get(TableProperties.WRITE_DATA_PATH, "")}
    return sorted(_plain(location) for location in located if location)


def _folder_of(path: str, locations: Iterable[str]) -> str:
    plain = _plain(path)
    if posixpath.normpath(plain) != plain:
        return ""
    return next((location for location in locations if plain.startswith(f"{location}/")), "")


def _plain(location: str) -> str:
    parts = urlsplit(location)
    return (f"/{parts.netloc}{parts.path}" if parts.scheme in _S3 else parts.path).rstrip("/")


def _paths_of(item: tuple[FileIO, ManifestFile]) -> set[str]:
    io, manifest = item
    return {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io)}


def _manifests(table: Table, after: int) -> Iterator[ManifestFile]:
    """Yield each manifest of the snapshots after this sequence number. Snapshots of format version 1 have the number 0
    and are included."""
    visited: set[str] = set()
    for snapshot in table.metadata.snapshots:
        if 0 < (snapshot.sequence_number or 0) <= after:
            continue
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in visited and not 0 < (manifest.sequence_number or 0) <= after:
                visited.add(manifest.manifest_path)
                yield manifest
