"""Notes on the work units that tasks are about to read. Tasks write these files once a worker has died.

    <store>/reading/run=<run id>/<writer>-<number>.json

Of each writer, the note with the highest number counts. Notes are closed but not synced: they survive the death of a
process or a container, but not a power loss. Publishing does not depend on them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from distcommit.core.errors import CorruptError, UnknownVersionError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.watermark import Watermark, at_or_past
from distcommit.core.work_units import WorkUnit
from distcommit.protocol.paths.store import READING, is_run_name, reading_note_name, reading_note_of, run_name
from distcommit.stores.state.checksummed_json import decode_document, encode_document

NOTE_VERSION = 1


class ReadingNote(msgspec.Struct, frozen=True):
    """A note on the work unit that a task is about to read.

    Attributes:
        version: format version.
        epoch: epoch of the run.
        dataset_urn: the dataset.
        work_unit_id: the work unit's id, unique in a plan.
        low: first positions of the work unit.
        expected_high: planned end of the work unit. With `low`, a later run finds work units that read the same
            positions.
        is_alone: whether it is the only work unit of its task, because a worker had died while reading it.
        has_died: whether an earlier run, whose processes all died, was reading it alone. This run does not read it.
    """

    version: int
    epoch: int
    dataset_urn: str
    work_unit_id: str
    low: Watermark
    expected_high: Watermark
    is_alone: bool = False
    has_died: bool = False

    def is_of(self, unit: WorkUnit) -> bool:
        """Return whether the note is on this work unit of the same run."""
        return (self.work_unit_id, self.dataset_urn) == (unit.work_unit_id, unit.dataset_urn)

    def overlaps(self, unit: WorkUnit) -> bool:
        """Return whether another run's work unit reads some of the same positions, or both have none."""
        if unit.dataset_urn != self.dataset_urn or unit.low.incarnation != self.low.incarnation:
            return False
        own, noted = _partitions(unit.low, unit.expected_high), _partitions(self.low, self.expected_high)
        if not own and not noted:
            return True
        return any(
            not (_is_past(unit.low, self.expected_high, partition) or _is_past(self.low, unit.expected_high, partition))
            for partition in own & noted
        )


class ReadingNotes:
    def __init__(self, fs: FileSystem, store_root: str, run_id: str) -> None:
        self._fs, self._folder = fs, _folder(store_root, run_id)
        self._writer, self._number = uuid.uuid4().hex, 0

    def put(self, unit: WorkUnit, epoch: int, *, alone: bool = False, died: bool = False) -> None:
        """Write a note on a work unit. Then delete the previous note of this writer.

        Args:
            alone: see `ReadingNote.is_alone`.
            died: see `ReadingNote.has_died`.

        Raises:
            OSError: if the note cannot be written. The caller must not read the work unit then.
        """
        if not self._number:
            self._fs.make_folders(self._folder)
        note = ReadingNote(
            NOTE_VERSION, epoch, unit.dataset_urn, unit.work_unit_id, unit.low, unit.expected_high, alone, died
        )
        previous, self._number = self._path(), self._number + 1
        writer = self._fs.create(self._path())
        writer.write(encode_document(note))
        writer.close_file(sync=False)
        if self._number > 1:
            self._fs.delete(previous)

    def clear(self) -> None:
        if self._number:
            self._fs.delete(self._path())

    def _path(self) -> str:
        return f"{self._folder}/{reading_note_name(self._writer, self._number)}"


def read_notes(fs: FileSystem, store_root: str, run_id: str) -> dict[str, ReadingNote]:
    """Return each writer's newest note by path. Unreadable notes are left out."""
    return _notes_in(fs, _folder(store_root, run_id))


def older_notes(fs: FileSystem, store_root: str, run_id: str) -> list[dict[str, ReadingNote]]:
    folder, own = f"{store_root}/{READING}", run_name(run_id)
    runs = [entry.name for entry in fs.list_folder(folder) if is_run_name(entry.name) and entry.name < own]
    return [_notes_in(fs, f"{folder}/{run}") for run in sorted(runs, reverse=True)]


def delete_notes(fs: FileSystem, paths: Iterable[str]) -> None:
    for path in paths:
        fs.delete(path)


def _notes_in(fs: FileSystem, folder: str) -> dict[str, ReadingNote]:
    newest: dict[str, tuple[int, str]] = {}
    for entry in fs.list_folder(folder):
        if (results := reading_note_of(entry.name)) is not None:
            writer, number = results
            newest[writer] = max(newest.get(writer, (0, "")), (number, entry.name))
    notes: dict[str, ReadingNote] = {}
    for _, name in sorted(newest.values()):
        path = f"{folder}/{name}"
        with suppress(OSError, CorruptError, UnknownVersionError):
            notes[path] = decode_document(fs.read(path), ReadingNote, NOTE_VERSION, "a note of a work unit", path)
    return notes


def _partitions(*watermarks: Watermark) -> frozenset[str]:
    return frozenset(partition for watermark in watermarks for partition in watermark.positions)


def _is_past(low: Watermark, high: Watermark, partition: str) -> bool:
    begin, end = low.positions.get(partition), high.positions.get(partition)
    return begin is not None and end is not None and at_or_past(begin, end)


def _folder(store_root: str, run_id: str) -> str:
    return f"{store_root}/{READING}/{run_name(run_id)}"
