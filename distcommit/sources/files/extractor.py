"""Extractor of files."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa

from distcommit.core.error_handling.storage_errors import is_storage_outage, storage_error
from distcommit.core.errors import DistcommitError, SourceError, error_text, printable
from distcommit.core.interfaces.source import Extraction, Extractor
from distcommit.core.support.counts import count_of
from distcommit.core.support.decoding import from_json
from distcommit.core.watermark import Position, Watermark, as_offset
from distcommit.core.work_units import WorkUnit
from distcommit.fs.fsspec_based.input_files import InputFile, InputFolder
from distcommit.sources.files.csv_dialect import Dialect
from distcommit.sources.files.csv_rows import LineError, first_unparsed
from distcommit.sources.files.format_readers import VALUE, FileFormat, batches
from distcommit.sources.files.plan_dataset import FILES, LISTED, SKIPPED, SKIPPED_WATERMARKS, WATERMARKS
from distcommit.sources.files.progress import ListedFile
from distcommit.sources.files.unreadable_files import (
    OUTCOMES,
    GuardedStream,
    OnUnreadableFile,
    UnreadableFileError,
    UnreadableFiles,
    batch_of,
)

logger = logging.getLogger(__name__)

PARTITION, OFFSET, FILE, ROW = "_partition", "_offset", "_file", "_row"
"""Columns that the source adds; `_row` is the number of rows before the record in its file."""
_ADDED = [
    pa.field(PARTITION, pa.string()),
    pa.field(OFFSET, pa.int64()),
    pa.field(FILE, pa.string()),
    pa.field(ROW, pa.int64()),
]
LINE_SCHEMA = pa.schema([VALUE, *_ADDED])


_HELD_BYTES = 64 << 20
"""A checked file of up to this size stays in memory, so that it is read only once."""


@dataclass(frozen=True, slots=True)
class FilesExtractor(Extractor):
    """Extractor of files below the folders of a job's path patterns.

    Attributes:
        folders: one folder for each pattern, in order.
        format: format of all files.
        dialect: how CSV files are read.
        remembered: the number of files that a watermark names individually.
        on_unreadable: what happens to an unreadable file: the work unit fails, or the file is skipped or diverted.
        unreadable_row_fails: whether an unreadable CSV row makes its whole file unreadable.
    """

    folders: tuple[InputFolder, ...]
    format: FileFormat
    dialect: Dialect
    remembered: int
    on_unreadable: OnUnreadableFile = "fail"
    unreadable_row_fails: bool = False

    def extract(self, unit: WorkUnit) -> Extraction:
        return FilesExtraction(self, unit)

    def close(self) -> None:
        pass


class FilesExtraction(Extraction):
    """One read of a work unit's files; raises SourceError if a file changes after planning."""

    def __init__(self, extractor: FilesExtractor, unit: WorkUnit) -> None:
        self._extractor, self._unit = extractor, unit
        self._files = from_json(unit.properties[LISTED], list[ListedFile])
        low = unit.low.positions
        self._at = WATERMARKS.from_position(low[FILES])
        self._partition = next(name for name in low if name != FILES and not name.startswith(SKIPPED))
        self._skipped_partition = next((name for name in low if name.startswith(SKIPPED)), "")
        skipped = low.get(self._skipped_partition, SKIPPED_WATERMARKS.to_position((0, ())))
        self._skipped_count, self._skipped = SKIPPED_WATERMARKS.from_position(skipped)
        self._low = as_offset(low[self._partition])
        self._rows = self._bytes = 0
        self._open: ListedFile | None = None
        self._unreadable, self._has_failed = UnreadableFiles([]), False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for number, file in enumerate(self._files):
            if file.entry in self._at.recent and file.entry.name != self._at.half:
                continue  # read before: only if the work unit resumes behind it
            self._open = file
            self._require_unchanged(file)
            try:
                yield from self._rows_of(file)
            except UnreadableFileError as error:
                self._require_unchanged(file)
                self._note(file, error)
                # Rows of a begun file may be published already, so that it can't be left out any more.
                if self._extractor.on_unreadable == "fail" or self._at.half == file.entry.name:
                    self._check(self._files[number + 1 :])
                    self._has_failed = True
                    raise self._unreadable.error(self._extractor.format) from error
                yield from self._skip(file, error)
            else:
                self._require_unchanged(file)
                self._at, self._open = self._at.after(file, self._extractor.remembered), None

    def actual_high(self) -> Watermark:
        """Return the position after the last row; raises SourceError if the open file has changed."""
        if self._open is not None:
            self._require_unchanged(self._open)
        positions: dict[str, Position] = {
            FILES: WATERMARKS.to_position(self._at),
            self._partition: self._low + self._rows,
        }
        if self._skipped_partition:
            positions[self._skipped_partition] = SKIPPED_WATERMARKS.to_position((self._skipped_count, self._skipped))
        return Watermark(positions, self._unit.low.incarnation)

    def bytes_read(self) -> int:
        return self._bytes

    def problems(self) -> tuple[int, Sequence[str]]:
        outcome = OUTCOMES["fail" if self._has_failed else self._extractor.on_unreadable]
        return self._unreadable.count, self._unreadable.notes(outcome)

    def _rows_of(self, file: ListedFile) -> Iterator[pa.RecordBatch]:
        # The plan has no file that is remembered unchanged, except the partly read one.
        row, skip = 0, self._at.rows if file.entry in self._at.recent else 0
        is_checked_first = self._extractor.on_unreadable != "fail" and not skip
        for batch in self._checked(file) if is_checked_first else self._batches(file):
            remainder = batch.slice(min(batch.num_rows, max(0, skip - row)))
            row += batch.num_rows
            if not remainder.num_rows:
                continue
            full = self._with_origin(remainder, file, row - remainder.num_rows)
            self._rows += remainder.num_rows
            self._bytes += remainder.nbytes
            self._at = self._at.within(file, row, self._extractor.remembered)
            yield full
        if row < skip:
            raise self._failed(file, "a file has fewer rows than were read from it", f"{row} rows, not {skip}")

    def _checked(self, file: ListedFile) -> Iterable[pa.RecordBatch]:
        """Read a whole file before returning its rows. Raises UnreadableFileError before the first row."""
        held, size = list[pa.RecordBatch](), 0
        for batch in self._batches(file):
            size += batch.nbytes
            held = [*held, batch] if size <= _HELD_BYTES else []
        return held if size <= _HELD_BYTES else self._batches(file)

    def _batches(self, file: ListedFile) -> Iterator[pa.RecordBatch]:
        """Yield a file's rows without the added columns. Raises UnreadableFileError if the contents are unreadable,
        SourceError if the storage fails, and TransientError if it is busy or has no connection."""
        extractor, row, guard = self._extractor, 0, None
        is_compressed = file.path.endswith(".gz")
        try:
            with extractor.folders[file.pattern].open(file.path) as stream:
                guard = GuardedStream(stream)
                guarded = cast("BinaryIO", guard)
                for batch in batches(guarded, extractor.format, is_compressed, extractor.dialect):
                    _check_names(batch.schema.names)
                    bad = first_unparsed(batch, extractor.dialect) if extractor.unreadable_row_fails else None
                    if bad is not None:
                        raise bad
                    row += batch.num_rows
                    yield batch
        except (DistcommitError, MemoryError):
            raise
        except Exception as error:
            is_about_lines = isinstance(error, LineError)
            cause = str(error) if is_about_lines else f"{error_text(error)}, after {count_of(row, 'record')}"
            failure = error if guard is None else guard.failure
            if failure is not None:
                if isinstance(failure, OSError) and is_storage_outage(failure):
                    raise storage_error(failure, "a file can't be read", file=self._name_of(file)) from error
                raise self._failed(file, "a file can't be read", cause) from error
            raise UnreadableFileError(cause) from error

    def _check(self, files: Iterable[ListedFile]) -> None:
        """Read the files only to report unreadable ones; a storage error ends the check."""
        for file in files:
            try:
                for _ in self._batches(file):
                    pass
            except UnreadableFileError as error:
                self._note(file, error)
            except DistcommitError as error:
                logger.warning("the other files of the work unit were not checked: %s", printable(str(error)))
                return

    def _note(self, file: ListedFile, error: UnreadableFileError) -> None:
        name = self._name_of(file)
        logger.warning("unreadable file: %s, %s", printable(name), printable(str(error)))
        self._unreadable.add(name, error)

    def _skip(self, file: ListedFile, error: UnreadableFileError) -> Iterator[pa.RecordBatch]:
        self._at, self._open = self._at.after(file, self._extractor.remembered), None
        self._skipped_count += 1
        tracked = [entry for entry in self._skipped if entry.name != file.entry.name]
        self._skipped = (*tracked, file.entry)[-self._extractor.remembered :]
        if self._extractor.on_unreadable == "divert":
            added = self._added(1, file, 0)
            self._rows += 1
            yield batch_of(str(error), added, _ADDED)

    def _with_origin(self, rows: pa.RecordBatch, file: ListedFile, row: int) -> pa.RecordBatch:
        added = self._added(rows.num_rows, file, row)
        return pa.RecordBatch.from_arrays([*rows.columns, *added], schema=pa.schema([*rows.schema, *_ADDED]))

    def _added(self, count: int, file: ListedFile, row: int) -> list[pa.Array]:
        offset = self._low + self._rows
        return [
            pa.repeat(pa.scalar(self._partition), count),
            pa.array(np.arange(offset, offset + count)),
            pa.repeat(pa.scalar(self._name_of(file)), count),
            pa.array(np.arange(row, row + count)),
        ]

    def _name_of(self, file: ListedFile) -> str:
        return self._extractor.folders[file.pattern].name_of(file.path)

    def _require_unchanged(self, file: ListedFile) -> None:
        now = self._extractor.folders[file.pattern].status(file.path)
        planned = InputFile(file.size_bytes, file.mtime_ns, file.etag)
        if now != planned:
            subject = "a file has gone since it was listed" if now is None else "a file was changed while it was read"
            todo = "run again; leave a file as it is until a run has read it (rename complete files into place)"
            raise self._failed(file, subject, _described(now), _described(planned), todo)

    def _failed(self, file: ListedFile, subject: str, actual: str, expected: str = "", todo: str = "") -> SourceError:
        return SourceError(
            subject,
            id="SOURCE_FILE_UNREADABLE",
            file=self._name_of(file),
            expected=expected or f"{self._extractor.format}, whole",
            found=actual,
            todo=todo or "repair or remove the file, then run again; files must arrive whole (renamed into place)",
        )


def _described(file: InputFile | None) -> str:
    if file is None:
        return "no file"
    return f"{file.size_bytes} bytes, changed at {file.mtime_ns} ns" + (f", etag {file.etag}" if file.etag else "")


def _check_names(names: Sequence[str]) -> None:
    all_names = [*names, *(field.name for field in _ADDED)]
    if len(set(all_names)) < len(all_names):
        twice = ", ".join(sorted({name for name in all_names if all_names.count(name) > 1}))
        raise ValueError(f"two columns of one name, or one with the name of an added column: {twice}")
