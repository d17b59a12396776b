"""How far a dataset's files are read, in one position that does not grow with their number.

Files are read by modification time, those of one time by a hash of their names. A position remembers the newest of them
one by one, and of the others one bound (`floor`): what lies at or below it counts as read. So a file that appears
between the two, though it is older than others that were read, is found. Positions are ordered by how many files, and
rows of the next one, were read.
"""

from __future__ import annotations

import base64
import struct
from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from msgspec import Struct
from xxhash import xxh3_64_intdigest, xxh32_intdigest

from distcommit.core.watermark import Position, Scalar
from distcommit.core.watermark_types import WatermarkType

_ENTRY = struct.Struct(">qqI")
_BEFORE_ALL = (-(2**63), 0)


class ListedFile(Struct, frozen=True, array_like=True):
    """A file as it was when it was planned. `pattern`: the index of its pattern, whose folder `path` is relative to."""

    pattern: int
    path: str
    size_bytes: int
    mtime_ns: int
    etag: str = ""

    @property
    def entry(self) -> Entry:
        """What is remembered of it once it is read."""
        contents = xxh32_intdigest(f"{self.size_bytes}:{self.etag}".encode())
        return Entry(self.mtime_ns, hashed_name(self.pattern, self.path), contents)


def hashed_name(pattern: int, path: str) -> int:
    """What the name of a file is remembered by: other patterns may have files of the same path."""
    return xxh3_64_intdigest(f"{pattern}:{path}".encode(errors="surrogateescape")) >> 1


class Entry(NamedTuple):
    """A file that was read: when it was changed, hashes of its name, and of its size and etag."""

    mtime_ns: int
    name: int
    contents: int


@dataclass(frozen=True, slots=True)
class Progress:
    """What of a dataset's files is read.

    Attributes:
        files: how many, as a whole.
        rows: how many rows of one more; 0 if there is none.
        path: of the last file that was read, or, if `rows` says so, is being read.
        floor: time and name of the newest file that is no longer remembered by itself.
        recent: the files above it that are read, the oldest first.
        half: the hashed name of the file that is being read; None between files.
    """

    files: int = 0
    rows: int = 0
    path: str = ""
    floor: tuple[int, int] = _BEFORE_ALL
    recent: tuple[Entry, ...] = ()
    half: int | None = None

    def within(self, file: ListedFile, rows: int, remembered: int) -> Progress:
        """After so many rows of a file, which is not read to its end; about `remembered` files are remembered.

        Only files below one that is begun now are forgotten: those above it may still have unread ones below them.
        """
        found = self._with(file, remembered)
        return replace(found, rows=rows, path=file.path, half=file.entry.name)

    def after(self, file: ListedFile, remembered: int) -> Progress:
        """After a file as a whole.

        It lets others be forgotten as if it were begun now, unless it was begun before: then it is read in front of
        those that came meanwhile, and may be above some of them.
        """
        found = self._with(file, remembered)
        return replace(found, files=self.files + 1, rows=0, path=file.path, half=None)

    def _with(self, file: ListedFile, remembered: int) -> Progress:
        entry, is_begun = file.entry, self._has_begun(file)
        # One that was begun and is passed over, as it was changed, does not count as read.
        passed = None if is_begun else self.half
        recent = [each for each in self.recent if each.name not in (entry.name, passed)]
        insort(recent, entry)
        floor = self.floor
        while not is_begun and len(recent) > remembered and recent[0] < entry:
            floor = max(floor, recent.pop(0)[:2])
        return replace(self, recent=tuple(recent), floor=floor)

    def _has_begun(self, file: ListedFile) -> bool:
        """Return whether it is the file of which some rows are read."""
        return file.entry.name == self.half

    def names(self, file: ListedFile) -> bool:
        """Whether a file of that name counts as read, as it is or as it was; of files that are no longer remembered one
        by one, by the time of this one."""
        entry = file.entry
        return entry[:2] <= self.floor or any(entry.name == each.name for each in self.recent)

    def look_alikes(self, files: Iterable[ListedFile]) -> list[ListedFile]:
        """Return those files that have the time, size and etag of one that was read under another name."""
        known = {(entry.mtime_ns, entry.contents): entry.name for entry in self.recent}
        found = ((file, known.get((file.mtime_ns, file.entry.contents))) for file in files)
        return [file for file, name in found if name not in (None, file.entry.name)]

    def unread(self, files: Iterable[ListedFile]) -> Unread:
        """Return which of a dataset's files are not read, each kind in the order in which they are to be."""
        read, names = set(self.recent), {entry.name for entry in self.recent}
        newest = self.recent[-1][:2] if self.recent else self.floor
        found = Unread()
        for file in files:
            entry = file.entry
            if entry in read:
                if entry.name == self.half:
                    found.half = file
            elif entry.name in names:
                found.changed.append(file)
            elif entry[:2] > self.floor:
                (found.late if entry[:2] < newest else found.new).append(file)
        for each in (found.new, found.late, found.changed):
            each.sort(key=lambda file: file.entry)
        return found


@dataclass(slots=True)
class Unread:
    """Files that are not read: new ones, those that are older than others that are read, those that were changed since
    they were read, and the one of which some rows are read."""

    new: list[ListedFile]
    late: list[ListedFile]
    changed: list[ListedFile]
    half: ListedFile | None = None

    def __init__(self) -> None:
        self.new, self.late, self.changed, self.half = [], [], [], None


class FilesWatermark(WatermarkType[Progress]):
    """How far a dataset's files are read, as a list: files, rows of one more, its path, the floor's time (nanoseconds
    since 1970) and name, the files that are remembered (Base64 of 20 bytes each); and, within a file, its hashed name.
    """

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
                    recent = tuple(Entry(*each) for each in _ENTRY.iter_unpack(data))
                    if tuple(sorted(recent)) == recent:
                        return Progress(files, rows, path, (mtime_ns, name), recent, _half(half, rows))
        raise ValueError(f"{position!r:.200} is no position in files")


def _half(found: Sequence[Scalar], rows: int) -> int | None:
    """Return the hash of the file's name that ends a position within a file; None between files. Raises ValueError."""
    match found:
        case [] if rows == 0:
            return None
        case [int() as name] if name >= 0 and rows > 0:
            return name
    raise ValueError(f"no position in files ends with {found!r:.200}, after {rows} rows of a file")
