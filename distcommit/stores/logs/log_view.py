"""A commit log as one process reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from distcommit.core.errors import CorruptError, DistcommitError, UnknownVersionError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.records.job_log_records import Head
from distcommit.core.records.log_records import Checkpoint
from distcommit.protocol.log_state import Fold
from distcommit.protocol.paths.store import segment_name, segment_number
from distcommit.protocol.paths.temporary_and_probes import is_temporary
from distcommit.protocol.record_effects import apply
from distcommit.stores.logs.segment_format import Segment, decode_segment


class LogView:
    """The state of a log as this process has read it. `refresh` brings it up to date.

    Args:
        folder: folder of the log, created by the job store.
    """

    def __init__(self, fs: FileSystem, folder: str) -> None:
        self._fs, self.folder = fs, folder
        self._fold: Fold | None = None
        self._is_refreshed = False  # whether the fold is unchanged since the last `refresh`
        self._listed, self._temporary = set[int](), list[str]()
        self._base = self._last = 0
        self._checksums: dict[int, str] = {}  # by number, from the base on
        self._own: tuple[int, Segment] | None = None  # the newest segment put by this writer; never read back

    def refresh(self) -> Fold:
        """Return the state after at least all segments that existed at the call.

        The state is valid only if a listing after the last read shows no newer segment, and still shows the checkpoint
        that the state starts from. Then no newer checkpoint existed, so none of its segments can have been deleted and
        written again by a zombie. A segment of this writer is not read: the listing that shows it comes after all
        reads.

        Raises:
            CorruptError: if a segment is truncated, foreign or missing.
        """
        missing_before: tuple[int, ...] = ()
        self._is_refreshed = False
        while True:
            listed = self._numbers()
            base_there = self._base in listed
            if self._fold is not None and base_there and max(listed) <= self._last:
                return self._refreshed(self._fold)
            if self._fold is not None and base_there:
                above = range(self._last + 1, max(listed) + 1)
                is_own = len(above) == 1 and self._is_own(above[0])
                missing = self._read(above, self._fold)
                if is_own:
                    return self._refreshed(self._fold)
            else:
                missing = self._read_from_newest_checkpoint(listed)
            if missing is not None:
                self._fold = None
                if missing_before == (missing, len(listed)):  # the same in a fresh listing: not caused by truncation
                    raise CorruptError(
                        "a log segment is missing",
                        id="LOG_SEGMENT_MISSING",
                        path=f"{self.folder}/{segment_name(missing)}",
                        expected="every number from the newest checkpoint on",
                        found=f"{len(listed)} segments, the newest {max(listed, default=0)}",
                        todo="restore the file from a backup; if it is lost, `distcommit store rebuild` repairs a log"
                        " from the published files. The datasets of this log are skipped until then",
                    )
                missing_before = (missing, len(listed))

    def latest(self) -> Fold:
        """Return the state of the last `refresh`; refresh if there is none or it failed.

        The state may be outdated. Call this right after a refresh, or to append, which fails on an outdated state.
        """
        return self._fold if self._fold is not None and self._is_refreshed else self.refresh()

    def head(self, bucket: int) -> Head:
        return Head(bucket, self._last, self._checksums.get(self._last, ""))

    def has(self, head: Head) -> bool:
        """Return whether the log had this segment at the last `refresh`. Below the newest checkpoint, a deleted or
        unreadable segment counts as present."""
        if head.number > self._last:
            return False
        if head.number in self._checksums:
            return head.checksum == self._checksums[head.number]
        try:
            segment = self._segment(head.number)
        except (CorruptError, UnknownVersionError):
            return True
        return segment is None or segment.checksum == head.checksum

    def segments(self) -> Iterator[tuple[int, Segment | DistcommitError]]:
        """Yield the number of each present segment in order, with the segment or, if it is unreadable, the error.

        Segments deleted meanwhile are skipped, and the state does not change.
        """
        for number in sorted(self._numbers()):
            path = f"{self.folder}/{segment_name(number)}"
            try:
                yield number, decode_segment(self._fs.read(path), path)
            except FileNotFoundError:
                continue
            except DistcommitError as error:
                yield number, error

    def _numbers(self) -> set[int]:
        names = [entry.name for entry in self._fs.list_folder(self.folder)]
        self._temporary = [name for name in names if is_temporary(name)]
        self._listed = {number for number in map(segment_number, names) if number is not None}
        return self._listed

    def _refreshed(self, fold: Fold) -> Fold:
        self._is_refreshed = True
        return fold

    def _read_from_newest_checkpoint(self, listed: set[int]) -> int | None:
        """Read the state from the newest listed checkpoint on. Return the number of a missing segment, or None."""
        above: list[tuple[int, Segment]] = []
        self._fold = None
        number = max(listed, default=1)
        while True:
            segment = self._segment(number) if number > 0 else None
            if segment is None:
                return number
            above.append((number, segment))
            if isinstance(segment.record, Checkpoint):
                break
            number -= 1
        fold = Fold()
        self._base = self._last = number
        self._checksums.clear()
        for number, segment in reversed(above):
            self._apply(number, segment, fold)
        self._fold = fold
        return None

    def _read(self, numbers: Iterable[int], fold: Fold) -> int | None:
        for number in numbers:
            segment = self._segment(number)
            if segment is None:
                return number
            self._apply(number, segment, fold)
        return None

    def _apply(self, number: int, segment: Segment, fold: Fold) -> None:
        apply(number, segment.record, fold)
        if isinstance(segment.record, Checkpoint):
            self._base = number
            self._checksums.clear()
        self._last, self._checksums[number] = number, segment.checksum

    def _is_own(self, number: int) -> bool:
        return self._own is not None and self._own[0] == number

    def _segment(self, number: int) -> Segment | None:
        if self._own is not None and self._own[0] == number:
            return self._own[1]
        path = f"{self.folder}/{segment_name(number)}"
        try:
            return decode_segment(self._fs.read(path), path)
        except FileNotFoundError:
            return None
