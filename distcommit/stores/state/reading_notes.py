"""Notes of the work units that tasks are about to read. Tasks write them once a worker has died.

    <store>/reading/run=<run id>/<writer>-<number>.json

The note with the highest number of a writer counts. Notes are closed but not synced: they survive the death of a
process or a container, not a power loss. Nothing that is published depends on them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from distcommit.core.errors import CorruptError, UnknownVersionError
from distcommit.core.ports import FileSystem
from distcommit.core.work import WorkUnit
from distcommit.protocol.paths.store import READING, is_run_name, reading_note_name, reading_note_of, run_name
from distcommit.stores.folders.trees import delete_tree
from distcommit.stores.state.documents import decode_document, encode_document

NOTE_VERSION = 1


class ReadingNote(msgspec.Struct, frozen=True):
    """The work unit that a task is about to read.

    Attributes:
        version: format version.
        dataset_urn: its dataset.
        work_unit_id: its id, unique in the run.
        partitions: its source partitions, by which a later run finds the work unit that begins there.
        is_alone: whether it is the only work unit of its task, because a worker had died while reading it. If this
            worker dies too, the work unit is the cause.
    """

    version: int
    dataset_urn: str
    work_unit_id: str
    partitions: tuple[str, ...]
    is_alone: bool = False

    def matches(self, unit: WorkUnit) -> bool:
        """Return whether a work unit of another run reads one of the same source partitions."""
        partitions = _partitions(unit)
        return unit.dataset_urn == self.dataset_urn and (
            not partitions or not self.partitions or not partitions.isdisjoint(self.partitions)
        )


class ReadingNotes:
    """Writes the notes of one attempt at a task.

    Args:
        fs: file system of the store.
        store_root: folder of the store.
        run_id: the run's id.
    """

    def __init__(self, fs: FileSystem, store_root: str, run_id: str) -> None:
        self._fs, self._folder = fs, _folder(store_root, run_id)
        self._writer, self._number = uuid.uuid4().hex, 0

    def put(self, unit: WorkUnit, *, alone: bool = False) -> None:
        """Note a work unit in place of the previous one.

        Raises:
            OSError: if it cannot be noted; the work unit must not be read then.
        """
        if not self._number:
            self._fs.make_folders(self._folder)
        note = ReadingNote(
            NOTE_VERSION, unit.dataset_urn, unit.work_unit_id, tuple(sorted(_partitions(unit))), is_alone=alone
        )
        previous, self._number = self._path(), self._number + 1
        writer = self._fs.create(self._path())
        writer.write(encode_document(note))
        writer.close_file(sync=False)
        if self._number > 1:
            self._fs.delete(previous)

    def clear(self) -> None:
        """Delete the note: the task has read everything."""
        if self._number:
            self._fs.delete(self._path())

    def _path(self) -> str:
        return f"{self._folder}/{reading_note_name(self._writer, self._number)}"


def read_notes(fs: FileSystem, store_root: str, run_id: str) -> dict[str, ReadingNote]:
    """Return the newest note of each writer of a run, by path. Truncated notes are left out."""
    return _notes_in(fs, _folder(store_root, run_id))


def older_notes(fs: FileSystem, store_root: str, run_id: str) -> list[list[ReadingNote]]:
    """Return the notes of each run before this one, the newest run first."""
    folder, own = f"{store_root}/{READING}", run_name(run_id)
    runs = [entry.name for entry in fs.list_folder(folder) if is_run_name(entry.name) and entry.name < own]
    return [list(_notes_in(fs, f"{folder}/{run}").values()) for run in sorted(runs, reverse=True)]


def delete_notes(fs: FileSystem, paths: Iterable[str]) -> None:
    """Delete notes. Missing ones are ignored."""
    for path in paths:
        fs.delete(path)


def delete_older_notes(fs: FileSystem, store_root: str, run_id: str) -> None:
    """Delete the notes of runs before this one, and this run's folder if it has none.

    Raises:
        OSError: if something cannot be deleted.
    """
    folder, own = f"{store_root}/{READING}", run_name(run_id)
    for entry in fs.list_folder(folder):
        if is_run_name(entry.name) and entry.name < own:
            delete_tree(fs, f"{folder}/{entry.name}")
    fs.delete_folder(f"{folder}/{own}")


def _notes_in(fs: FileSystem, folder: str) -> dict[str, ReadingNote]:
    newest: dict[str, tuple[int, str]] = {}
    for entry in fs.list_folder(folder):
        if (results := reading_note_of(entry.name)) is not None:
            writer, number = results
            newest[writer] = max(newest.get(writer, (0, "")), (number, entry.name))
    notes: dict[str, ReadingNote] = {}
    for _, name in sorted(newest.values()):
        path = f"{folder}/{name}"
        with suppress(FileNotFoundError, CorruptError, UnknownVersionError):
            notes[path] = decode_document(fs.read(path), ReadingNote, NOTE_VERSION, "a note of a work unit", path)
    return notes


def _partitions(unit: WorkUnit) -> frozenset[str]:
    return frozenset(unit.low.positions) | frozenset(unit.expected_high.positions)


def _folder(store_root: str, run_id: str) -> str:
    return f"{store_root}/{READING}/{run_name(run_id)}"
