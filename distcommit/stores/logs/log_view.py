"""A commit log as one process has seen it: segments listed, read and folded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from distcommit.core.errors import CorruptError, DistcommitError, UnknownVersionError
from distcommit.core.ports import FileSystem
from distcommit.core.records.log_records import Checkpoint, Head
from distcommit.protocol.fold import Fold
from distcommit.protocol.folding import apply
from distcommit.protocol.paths.store import segment_name, segment_number
from distcommit.protocol.paths.temporary import is_temporary
from distcommit.stores.logs.segment import Segment, decode_segment


class LogView:
    """One log. Keeps the fold of what it has read; `refresh` brings it up to date.

    Args:
        fs: where the log is.
        folder: its folder, made by the job store.
    """

    def __init__(self, fs: FileSystem, folder: str) -> None:
        self._fs, self.folder = fs, folder
        self._fold: Fold | None = None
        self._is_known = False  # whether the fold is as the last `refresh` left it
        self._listed, self._temporary = set[int](), list[str]()
        self._base = self._last = 0
        self._checksums: dict[int, str] = {}  # by number, from the base on
        self._own: tuple[int, Segment] | None = None  # the newest that this writer has put: it need not be read back

    def refresh(self) -> Fold:
        """The fold of all segments, up to the newest that existed when this call began or later.

        A fold counts only if a listing made after its last read shows nothing above it, and its base still there; then
        no checkpoint was newer, so nothing it read can have been truncated away and written anew by a zombie. A segment
        that this writer has put is not read: the listing that shows it comes after all reads.

        Raises:
            CorruptError: if a segment is torn, foreign or missing.
        """
        missing_before: tuple[int, ...] = ()
        self._is_known = False
        while True:
            listed = self._numbers()
            base_there = self._base in listed
            if self._fold is not None and base_there and max(listed) <= self._last:
                return self._known(self._fold)
            if self._fold is not None and base_there:
                above = range(self._last + 1, max(listed) + 1)
                is_own = len(above) == 1 and self._has_put(above[0])
                missing = self._read(above, self._fold)
                if is_own:
                    return self._known(self._fold)
            else:
                missing = self._read_from_newest_checkpoint(listed)
            if missing is not None:
                self._fold = None
                if missing_before == (missing, len(listed)):  # the same twice, from a fresh listing: not truncation
                    raise CorruptError(
                        "a log segment is missing",
                        path=f"{self.folder}/{segment_name(missing)}",
                        expected="every number from the newest checkpoint on",
                        found=f"{len(listed)} segments, the newest {max(listed, default=0)}",
                        todo="restore the file from a backup; if it is lost, `distcommit store rebuild` repairs a log"
                        " from the published files. The datasets of this log are left alone until then",
                    )
                missing_before = (missing, len(listed))

    def latest(self) -> Fold:
        """The fold of the last `refresh`, without another look; `refresh`, if there was none. For who has just looked,
        and for who puts what it decides: on an older fold that is a number which somebody else has."""
        return self._fold if self._fold is not None and self._is_known else self.refresh()

    def head(self, bucket: int) -> Head:
        """Where this log, that of a bucket, was at the last `refresh`."""
        return Head(bucket, self._last, self._checksums.get(self._last, ""))

    def has(self, head: Head) -> bool:
        """Whether the log, as the last `refresh` saw it, still has the segment that a head names, or goes on above it
        after a checkpoint: below that a segment may be gone, or damaged, which harms nothing."""
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
        """All segments that are there as this call begins, in order, as they lie: what can't be read as the error that
        says why. One that is truncated away meanwhile is left out. Moves nothing."""
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

    def _known(self, fold: Fold) -> Fold:
        self._is_known = True
        return fold

    def _read_from_newest_checkpoint(self, listed: set[int]) -> int | None:
        """Folds from the newest checkpoint in `listed`; returns the number that was missing, if any."""
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
            self._step(number, segment, fold)
        self._fold = fold
        return None

    def _read(self, numbers: Iterable[int], fold: Fold) -> int | None:
        for number in numbers:
            segment = self._segment(number)
            if segment is None:
                return number
            self._step(number, segment, fold)
        return None

    def _step(self, number: int, segment: Segment, fold: Fold) -> None:
        apply(number, segment.record, fold)
        if isinstance(segment.record, Checkpoint):
            self._base = number
            self._checksums.clear()
        self._last, self._checksums[number] = number, segment.checksum

    def _has_put(self, number: int) -> bool:
        return self._own is not None and self._own[0] == number

    def _segment(self, number: int) -> Segment | None:
        if self._own is not None and self._own[0] == number:
            return self._own[1]
        path = f"{self.folder}/{segment_name(number)}"
        try:
            return decode_segment(self._fs.read(path), path)
        except FileNotFoundError:
            return None
