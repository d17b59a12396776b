"""Progress in a dataset's files, as one watermark position of bounded size.

Files are read by modification time, then by the hash of their name. A position names the newest files read. All files
at or below a bound, the `floor`, count as read. A file above the floor is read even if it arrives late. Positions are
ordered by the number of files read, then by the rows read of the next file.
"""

from __future__ import annotations

import base64
import struct
from bisect import insort
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from msgspec import Struct
from xxhash import xxh3_64_intdigest, xxh32_intdigest

from distcommit.core.interfaces.watermark_types import WatermarkType
from distcommit.core.watermark import Position, Scalar

_ENTRY = struct.Struct(">qqI")
_BEFORE_ALL = (-(2**63), 0)


class ListedFile(Struct, frozen=True, array_like=True):
    """A file at planning. The planner stores it in the work unit, and the extractor reads it.

    Attributes:
        pattern: index of the path pattern that the file matches, in the job's order.
        path: path of the file, relative to the pattern's folder.
        size_bytes: size of the file in bytes.
        mtime_ns: modification time, nanoseconds since 1970.
        etag: the file system's identifier of the contents; empty if it has none.
    """

    pattern: int
    path: str
    size_bytes: int
    mtime_ns: int
    etag: str = ""

    @property
    def entry(self) -> Entry:
        contents = xxh32_intdigest(f"{self.size_bytes}:{self.etag}".encode())
        return Entry(self.mtime_ns, hashed_name(self.pattern, self.path), contents)


def hashed_name(pattern: int, path: str) -> int:
    """Hash path and pattern index, because paths of several patterns may be equal."""
    return xxh3_64_intdigest(f"{pattern}:{path}".encode(errors="surrogateescape")) >> 1


class Entry(NamedTuple):
    """A file in a position.

    Attributes:
        mtime_ns: modification time, nanoseconds since 1970.
        name: hash of its path and pattern (`hashed_name`).
        contents: hash of its size and etag.
    """

    mtime_ns: int
    name: int
    contents: int


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress in a dataset's files.

    Attributes:
        files: number of files read completely.
        rows: number of rows read of a partly read file; 0 if no file is partly read.
        path: path of the file read last, or of the partly read file.
        floor: time and hashed name of the newest file that counts as read without an entry in `recent`.
        recent: entries of files above the floor that were read, oldest first.
        half: hashed name of the partly read file, if any.
    """

    files: int = 0
    rows: int = 0
    path: str = ""
    floor: tuple[int, int] = _BEFORE_ALL
    recent: tuple[Entry, ...] = ()
    half: int | None = None

    def within(self, file: ListedFile, rows: int, remembered: int) -> Progress:
        """Return the progress after the first `rows` rows of a file.

        If there are more than `remembered` entries, the oldest that are older than this file are removed, and the floor
        rises. If a part of the file was read earlier, no entry is removed, because a higher floor could count unread
        files that arrived meanwhile as read.
        """
        progress = self._with(file, remembered)
        return replace(progress, rows=rows, path=file.path, half=file.entry.name)

    def after(self, file: ListedFile, remembered: int) -> Progress:
        """Return the progress after a whole file.

        The rule of `within` about partly read files applies.
        """
        progress = self._with(file, remembered)
        return replace(progress, files=self.files + 1, rows=0, path=file.path, half=None)

    def _with(self, file: ListedFile, remembered: int) -> Progress:
        entry, is_begun = file.entry, self._has_begun(file)
        # A partly read file that is skipped because it has changed does not count as read.
        passed = None if is_begun else self.half
        recent = [item for item in self.recent if item.name not in (entry.name, passed)]
        insort(recent, entry)
        floor = self.floor
        while not is_begun and len(recent) > remembered and recent[0] < entry:
            floor = max(floor, recent.pop(0)[:2])
        return replace(self, recent=tuple(recent), floor=floor)

    def _has_begun(self, file: ListedFile) -> bool:
        return file.entry.name == self.half

    def names(self, file: ListedFile) -> bool:
        """Return whether a file of this name was read or is at or below the floor, even if it has changed."""
        entry = file.entry
        return entry[:2] <= self.floor or any(entry.name == item.name for item in self.recent)

    def files_read_under_another_name(self, files: Iterable[ListedFile]) -> list[ListedFile]:
        """Return the files that equal a read one in time, size and etag, but not in name."""
        names = {(entry.mtime_ns, entry.contents): entry.name for entry in self.recent}
        candidates = ((file, names.get((file.mtime_ns, file.entry.contents))) for file in files)
        return [file for file, name in candidates if name not in (None, file.entry.name)]

    def unread_files(self, files: Iterable[ListedFile], skipped: Collection[Entry] = ()) -> UnreadFiles:
        """Return the unread files above the floor.

        Args:
            skipped: entries of skipped unreadable files. If such a file changes, it counts as new.
        """
        read, names = set(self.recent), {entry.name for entry in self.recent}
        replaceable = {entry.name for entry in read.intersection(skipped)}
        newest = self.recent[-1][:2] if self.recent else self.floor
        files_unread = UnreadFiles()
        for file in files:
            entry = file.entry
            if entry in read:
                if entry.name == self.half:
                    files_unread.half = file
            elif entry.name in replaceable:
                files_unread.new.append(file)
            elif entry.name in names:
                files_unread.changed.append(file)
            elif entry[:2] > self.floor:
                (files_unread.late if entry[:2] < newest else files_unread.new).append(file)
        for listed_files in (files_unread.new, files_unread.late, files_unread.changed):
            listed_files.sort(key=lambda file: file.entry)
        return files_unread


@dataclass(slots=True)
class UnreadFiles:
    """Unread files by kind, each sorted by time.

    Attributes:
        new: files that are newer than all files read.
        late: files above the floor that are older than the newest file read.
        changed: files that changed after they were read.
        half: the partly read file.
    """

    new: list[ListedFile]
    late: list[ListedFile]
    changed: list[ListedFile]
    half: ListedFile | None = None

    def __init__(self) -> None:
        self.new, self.late, self.changed, self.half = [], [], [], None


class FilesWatermark(WatermarkType[Progress]):
    """`Progress` as a position: files, rows, path, floor's time (nanoseconds since 1970) and name, recent entries
    (Base64 of 20 bytes each), and the hash of a partly read file."""

    name = "files"

    def to_position(self, value: Progress) -> Position:
        packed = b"".join(_ENTRY.pack(*entry) for entry in value.recent)
        half = () if value.half is None else (value.half,)
        return (value.files, value.rows, value.path, *value.floor, base64.b64encode(packed).decode(), *half)

    def from_position(self, position: Position) -> Progress:
        match position:
            case (
                int() as files,
                int() as rows,
                str() as path,
                int() as mtime_ns,
                int() as name,
                str() as packed,
                *half,
            ):
                data = base64.b64decode(packed, validate=True)  # binascii.Error is a ValueError
                if len(data) % _ENTRY.size == 0 and min(files, rows, name) >= 0 and -(2**63) <= mtime_ns < 2**63:
                    recent = tuple(Entry(*item) for item in _ENTRY.iter_unpack(data))
                    if tuple(sorted(recent)) == recent:
                        return Progress(files, rows, path, (mtime_ns, name), recent, _half(half, rows))
        raise ValueError(f"{position!r:.200} is not a position in files")


class SkippedFilesWatermark(WatermarkType[tuple[int, tuple[Entry, ...]]]):
    """Skipped unreadable files as a position: their number, and the newest entries (Base64 of 20 bytes each)."""

    name = "skipped files"

    def to_position(self, value: tuple[int, tuple[Entry, ...]]) -> Position:
        count, entries = value
        return (count, base64.b64encode(b"".join(_ENTRY.pack(*entry) for entry in entries)).decode())

    def from_position(self, position: Position) -> tuple[int, tuple[Entry, ...]]:
        match position:
            case (int() as count, str() as packed):
                data = base64.b64decode(packed, validate=True)
                if count >= 0 and len(data) % _ENTRY.size == 0:
                    return count, tuple(Entry(*item) for item in _ENTRY.iter_unpack(data))
        raise ValueError(f"{position!r:.200} is not a position in skipped files")


def _half(results: Sequence[Scalar], rows: int) -> int | None:
    match results:
        case [] if rows == 0:
            return None
        case [int() as name] if name >= 0 and rows > 0:
            return name
    raise ValueError(f"a position with {rows} rows of a partly read file must not end with {results!r:.200}")
