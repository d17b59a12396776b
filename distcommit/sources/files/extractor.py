"""Extractor of files: reads the files of a work unit one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from distcommit.core.errors import DistcommitError, SourceError, error_text
from distcommit.core.interfaces.source import Extraction, Extractor
from distcommit.core.support.decoding import from_json
from distcommit.core.watermark import Watermark, as_offset
from distcommit.core.work import WorkUnit
from distcommit.fs.any.input_files import InputFile, InputFolder
from distcommit.sources.files.csv_dialect import Dialect
from distcommit.sources.files.plan import FILES, LISTED, WATERMARKS
from distcommit.sources.files.progress import ListedFile
from distcommit.sources.files.readers import VALUE, FileFormat, batches

PARTITION, OFFSET, FILE, ROW = "_partition", "_offset", "_file", "_row"
"""Added columns: the record's position, its file, and the number of rows before it in the file."""
_ADDED = [
    pa.field(PARTITION, pa.string()),
    pa.field(OFFSET, pa.int64()),
    pa.field(FILE, pa.string()),
    pa.field(ROW, pa.int64()),
]
LINE_SCHEMA = pa.schema([VALUE, *_ADDED])
"""Schema of JSON lines."""


@dataclass(frozen=True, slots=True)
class FilesExtractor(Extractor):
    """Extractor of files below the folders of a job's patterns."""

    folders: tuple[InputFolder, ...]
    format: FileFormat
    dialect: Dialect
    remembered: int

    def extract(self, unit: WorkUnit) -> Extraction:
        return FilesExtraction(self, unit)

    def close(self) -> None:
        pass


class FilesExtraction(Extraction):
    """The rows of a work unit's files. A file must be as planned when it is opened and when it is closed."""

    def __init__(self, extractor: FilesExtractor, unit: WorkUnit) -> None:
        self._extractor, self._unit = extractor, unit
        self._files = from_json(unit.properties[LISTED], list[ListedFile])
        self._at = WATERMARKS.from_position(unit.low.positions[FILES])
        self._partition = next(partition for partition in unit.low.positions if partition != FILES)
        self._low = as_offset(unit.low.positions[self._partition])
        self._rows = self._bytes = 0
        self._open: ListedFile | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for file in self._files:
            self._open = file
            self._require_unchanged(file)
            yield from self._rows_of(file)
            self._require_unchanged(file)
            self._at, self._open = self._at.after(file, self._extractor.remembered), None

    def actual_high(self) -> Watermark:
        """Return the position after the last row that was yielded. Raises SourceError if its file has changed."""
        if self._open is not None:
            self._require_unchanged(self._open)
        positions = {FILES: WATERMARKS.to_position(self._at), self._partition: self._low + self._rows}
        return Watermark(positions, self._unit.low.incarnation)

    def bytes_read(self) -> int:
        return self._bytes

    def _rows_of(self, file: ListedFile) -> Iterator[pa.RecordBatch]:
        # The plan has no file that is remembered unchanged, except the partly read one.
        row, skip = 0, self._at.rows if file.entry in self._at.recent else 0
        batches = self._batches(file)
        while True:
            try:
                batch = next(batches, None)
            except (DistcommitError, MemoryError):
                raise
            except Exception as error:
                raise self._failed(file, "a file can't be read", f"{error_text(error)}, after row {row}") from error
            if batch is None:
                break
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

    def _batches(self, file: ListedFile) -> Iterator[pa.RecordBatch]:
        extractor = self._extractor
        with extractor.folders[file.pattern].open(file.path) as stream:
            yield from batches(stream, extractor.format, file.path.endswith(".gz"), extractor.dialect)

    def _with_origin(self, rows: pa.RecordBatch, file: ListedFile, row: int) -> pa.RecordBatch:
        names = [*rows.schema.names, *(field.name for field in _ADDED)]
        if len(set(names)) < len(names):
            twice = ", ".join(sorted({name for name in names if names.count(name) > 1}))
            raise self._failed(
                file, "a file has two columns of one name, or one with the name of an added column", twice
            )
        count, offset = rows.num_rows, self._low + self._rows
        name = self._extractor.folders[file.pattern].name_of(file.path)
        added = [
            pa.repeat(pa.scalar(self._partition), count),
            pa.array(np.arange(offset, offset + count)),
            pa.repeat(pa.scalar(name), count),
            pa.array(np.arange(row, row + count)),
        ]
        return pa.RecordBatch.from_arrays([*rows.columns, *added], schema=pa.schema([*rows.schema, *_ADDED]))

    def _require_unchanged(self, file: ListedFile) -> None:
        now = self._extractor.folders[file.pattern].status(file.path)
        planned = InputFile(file.size_bytes, file.mtime_ns, file.etag)
        if now != planned:
            subject = "a file has gone since it was listed" if now is None else "a file was changed while it was read"
            raise self._failed(file, subject, str(now), str(planned))

    def _failed(self, file: ListedFile, subject: str, actual: str, expected: str = "") -> SourceError:
        return SourceError(
            subject,
            id="SOURCE_FILE_UNREADABLE",
            file=self._extractor.folders[file.pattern].name_of(file.path),
            expected=expected or f"{self._extractor.format}, whole",
            found=actual,
            todo="repair or remove the file, then run again; files must arrive whole (renamed into place)",
        )
