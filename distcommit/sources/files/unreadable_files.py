"""Unreadable files, reported or passed to the error branch."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Literal

import numpy as np
import pyarrow as pa

from distcommit.core.errors import SourceError, reason_text
from distcommit.core.interfaces.constructs import Converted, Converter
from distcommit.core.support.counts import count_of
from distcommit.core.work_units import WorkUnit

OnUnreadableFile = Literal["fail", "skip", "divert"]
OUTCOMES: dict[OnUnreadableFile, str] = {
    "fail": "of a failed work unit",
    "skip": "skipped, not published",
    "divert": "put into the error branch, not published",
}
"""Outcomes for the report, by `source.on_unreadable_file`."""
UNREADABLE = pa.field("_unreadable", pa.large_string())
"""Column with the reason, in the record of a diverted file."""
MAX_NAMED_FILES = 100
"""Maximum number of unreadable files of a work unit that are named. Others are only counted."""
_FILES_PER_TEXT = 10
_CAUSE_CHARACTERS = 250


class UnreadableFileError(Exception):
    """A file whose contents cannot be read, although its storage works."""


@dataclass(slots=True)
class UnreadableFiles:
    """Unreadable files of a work unit.

    Attributes:
        named: names with causes, at most `MAX_NAMED_FILES`.
        count: number of all unreadable files.
    """

    named: list[str]
    count: int = 0

    def add(self, name: str, cause: object) -> None:
        self.count += 1
        if len(self.named) < MAX_NAMED_FILES:
            self.named.append(f"{name}, {reason_text(cause, _CAUSE_CHARACTERS)}")

    def texts(self) -> list[str]:
        parts = [self.named[at : at + _FILES_PER_TEXT] for at in range(0, len(self.named), _FILES_PER_TEXT)]
        texts = ["; ".join(part) for part in parts]
        if self.count > len(self.named):
            texts.append(f"{self.count - len(self.named):,} more files of the work unit")
        return texts

    def notes(self, outcome: str) -> list[str]:
        """Return the texts for the run's report. The first one begins with the number of files and their outcome."""
        files = count_of(self.count, "unreadable file")
        return [f"{files} {outcome}: {text}" if not at else text for at, text in enumerate(self.texts())]

    def error(self, format_: str) -> SourceError:
        one = self.count == 1
        return SourceError(
            "a file can't be read" if one else f"{self.count} files can't be read",
            id="SOURCE_FILES_UNREADABLE",
            expected=f"{format_}, whole",
            found="; ".join(self.texts()),
            todo=f"repair or remove {'it' if one else 'them'}, then run again; or set source.on_unreadable_file to"
            " skip or divert",
        )


class GuardedStream(io.RawIOBase):
    """Stream that records the first error of its storage in `failure`, so that the reader does not report damaged
    contents."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.failure: Exception | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        try:
            return self._stream.read(size)
        except Exception as error:
            self.failure = self.failure or error
            raise

    def seek(self, offset: int, whence: int = 0) -> int:
        try:
            return self._stream.seek(offset, whence)
        except Exception as error:
            self.failure = self.failure or error
            raise

    def tell(self) -> int:
        return self._stream.tell()


@dataclass(frozen=True, slots=True)
class RejectFiles(Converter):
    """Converter that rejects the records of diverted files.

    Attributes:
        rows: converter of other records; None to pass them.
        file: column with the file's name.
    """

    rows: Converter | None
    file: str

    def convert_schema(self, schema: pa.Schema, unit: WorkUnit | None) -> pa.Schema | None:
        at = _unreadable_in(schema)
        if at >= 0:
            return schema.remove(at)
        return self.rows.convert_schema(schema, unit) if self.rows is not None else schema

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        at = _unreadable_in(batch.schema)
        if at < 0:
            yield from self.rows.convert(output_schema, batch, unit) if self.rows is not None else [Converted(batch)]
            return
        names, causes = batch[self.file].to_pylist(), batch.column(at).to_pylist()
        rejected = {row: f"{name}, {cause}" for row, (name, cause) in enumerate(zip(names, causes, strict=True))}
        none = pa.array(np.empty(0, np.int64))
        yield Converted(batch.remove_column(at).take(none), none, rejected)


def _unreadable_in(schema: pa.Schema) -> int:
    at = schema.get_field_index(UNREADABLE.name)
    return at if at >= 0 and schema.field(at).type == UNREADABLE.type else -1


def batch_of(cause: str, added: Sequence[pa.Array], fields: Sequence[pa.Field]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([cause], UNREADABLE.type), *added], schema=pa.schema([UNREADABLE, *fields])
    )
