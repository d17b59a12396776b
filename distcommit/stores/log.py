"""A commit log: numbered segments in one folder, folded into state, appended by put-if-absent.

Anybody may append at any time; the rules in `protocol.validity` and the numbering decide what counts.
"""

from __future__ import annotations

import logging
import posixpath
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from distcommit.model.errors import (
    CorruptError,
    DistcommitError,
    OutcomeUnknownError,
    UnknownVersionError,
    storage_error,
)
from distcommit.model.lockstep import Request, Work, alone
from distcommit.model.log_records import Checkpoint, Head, Record
from distcommit.model.ports import FileSystem, NotPutError, not_put
from distcommit.protocol import next_record
from distcommit.protocol.fold import Fold
from distcommit.protocol.folding import apply
from distcommit.protocol.paths import TEMPORARY, segment_name, segment_number
from distcommit.protocol.validity import valid
from distcommit.stores.segment import Segment, checksum_in, decode_segment, encode_segment

logger = logging.getLogger(__name__)

CHECKPOINT_EVERY = 32
"""Segments above the newest checkpoint that make a new one worth while."""
_TRIES = 3


class PutIfAbsent(Request):
    """A put of one file, together with those of other logs of the same file system."""

    def __init__(self, fs: FileSystem, path: str, data: bytes) -> None:
        self._fs, self._path, self._data = fs, path, data

    @classmethod
    def answer_all(cls, requests: Sequence[PutIfAbsent]) -> list[bool | OSError]:
        return requests[0]._fs.put_all_if_absent([(request._path, request._data) for request in requests])


class MakeDurable(Request):
    """A sync of one log's folder, together with those of other logs of the same file system."""

    def __init__(self, fs: FileSystem, folder: str) -> None:
        self._fs, self._folder = fs, folder

    @classmethod
    def answer_all(cls, requests: Sequence[MakeDurable]) -> list[None]:
        folders = [request._folder for request in requests]
        requests[0]._fs.sync(folders, posixpath.commonpath(folders))
        return [None] * len(folders)


class CommitLog:
    """One log, seen by one writer. Keeps the fold of what it has read; `refresh` brings it up to date.

    Args:
        fs: where the log is.
        folder: its folder, made by the job store.
        epoch: the writer's epoch, 0 for a person.
    """

    def __init__(self, fs: FileSystem, folder: str, epoch: int = 0) -> None:
        self._fs, self.folder, self.epoch = fs, folder, epoch
        self._writer_id = uuid.uuid4().hex
        self._fold: Fold | None = None
        self._base = self._last = self._durable_to = 0
        self._checksum = ""
        self._own: tuple[int, Segment] | None = None  # the newest that this writer has put: it need not be read back

    def create(self, beginning: Checkpoint | None = None) -> None:
        """Makes the log: a folder with a checkpoint as segment 1 (an empty one, if none is given), so that a log
        without segments is a damaged one, never a new one. Idempotent; durable after a sync of the folder above."""
        self._fs.make_folders(self.folder)
        genesis = Segment(self.epoch, self._writer_id, beginning or Fold().checkpoint())
        for attempt in range(_TRIES):
            if self._numbers():
                return
            try:
                self._fs.put_if_absent(f"{self.folder}/{segment_name(1)}", encode_segment(genesis))
            except FileNotFoundError:  # who has made the same log meanwhile, and uses it, swept the temporary file
                if attempt == _TRIES - 1:
                    raise

    def refresh(self) -> Fold:
        """The fold of all segments, up to the newest that existed when this call began or later.

        A fold counts only if a listing made after its last read shows nothing above it, and its base still there; then
        no checkpoint was newer, so nothing it read can have been truncated away and written anew by a zombie.

        Raises:
            CorruptError: if a segment is torn, foreign or missing.
        """
        missing_before: tuple[int, ...] = ()
        while True:
            listed = self._numbers()
            base_there = self._base in listed
            if self._fold is not None and base_there and max(listed) <= self._last:
                return self._fold
            if self._fold is not None and base_there:
                missing = self._read(range(self._last + 1, max(listed) + 1), self._fold)
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
                        todo="restore the file from a backup; if it is lost, `distcommit rebuild` mends a bucket's log"
                        " from the published files. The datasets of this log are left alone until then",
                    )
                missing_before = (missing, len(listed))

    def settle(self, decide: Callable[[Fold], Record | None]) -> Fold:
        """`settling`, for this log alone."""
        return alone(self.settling(decide))

    def settling(self, decide: Callable[[Fold], Record | None]) -> Work[Fold]:
        """Appends what `decide` asks for, until it asks for nothing; returns the fold that it was content with.

        That fold is durable, whoever wrote it.

        `decide` is asked again after every put, whatever the put's answer was: a put counts only if the fold shows its
        effect. So it must answer from the fold alone, and None once the effect is there or is no longer possible.

        What others wrote is made durable before anything is put above it: of two names of a folder a power loss may
        keep the second alone, and a log with a hole can't be read.

        Raises:
            OutcomeUnknownError: if puts keep failing without the fold showing their effect.
            StorageRefusedError: if the storage is full, read-only or not to be written, and so nothing was put.
            CorruptError: as `refresh`.
        """
        unknown, refused = 0, 0
        error: OSError | None = None
        while True:
            fold = self.refresh()
            record = decide(fold)
            if record is None and self._durable_to >= self._last:
                return fold
            if record is not None and error is not None and refused >= _TRIES and not unknown:
                raise storage_error(error, "a log segment was not written", log=self.folder) from error
            if record is None:
                yield from self.making_durable()
                continue
            if not valid(record, fold):
                raise AssertionError(f"decided on an invalid record: {record!r}")
            number, segment = self._last + 1, Segment(self.epoch, self._writer_id, record)
            data = encode_segment(segment)
            segment = replace(segment, checksum=checksum_in(data))
            try:
                won = yield from self._putting(f"{self.folder}/{segment_name(number)}", data)
            except FileNotFoundError:
                logger.info("own temporary file was swept by a newer run", extra={"log": self.folder})
                unknown += 1
                error = None
            except NotPutError as caught:
                refused += 1
                error = caught
            except OSError as caught:
                unknown += 1
                error = caught
            else:
                unknown = refused = 0
                if won:
                    self._durable_to, self._own = number, (number, segment)
            if unknown and unknown + refused >= _TRIES:
                raise OutcomeUnknownError(
                    "a log segment may or may not have been written",
                    path=f"{self.folder}/{segment_name(number)}",
                    found=str(error or "temporary files keep disappearing"),
                    todo="mend the storage and run again: the next run reads what is there",
                ) from error

    def checkpoint(self, *, at_least: int = CHECKPOINT_EVERY, decided_from: int = 0) -> None:
        """`checkpointing`, for this log alone."""
        alone(self.checkpointing(at_least=at_least, decided_from=decided_from))

    def checkpointing(self, *, at_least: int = CHECKPOINT_EVERY, decided_from: int = 0) -> Work[None]:
        """Writes the whole fold as one segment if `at_least` segments stand above the newest one, then deletes, by
        listing and in ascending order, what lies below the second newest."""
        yield from self.settling(partial(next_record.checkpoint, at_least=at_least, decided_from=decided_from))
        self.truncate()

    def truncate(self) -> None:
        """Deletes segments below the second newest checkpoint. Safe at any time, by anybody."""
        keep_from = self.refresh().previous_checkpoint
        for number in sorted(number for number in self._numbers() if number < keep_from):
            self._fs.delete(f"{self.folder}/{segment_name(number)}")

    def sweep_temporary(self) -> None:
        """Deletes what crashed writers left. A live writer whose file goes decides again."""
        for entry in self._fs.list_folder(self.folder):
            if entry.name.startswith(TEMPORARY):
                self._fs.delete(f"{self.folder}/{entry.name}")

    def make_durable(self) -> None:
        """`making_durable`, for this log alone."""
        alone(self.making_durable())

    def making_durable(self) -> Work[None]:
        """Syncs the folder, if others have written what the fold shows: all of it survives from here on."""
        if self._durable_to < self._last:
            seen = self._last
            yield MakeDurable(self._fs, self.folder)
            self._durable_to = seen

    def _putting(self, path: str, data: bytes) -> Work[bool]:
        """Puts a segment above what is durable.

        Raises:
            NotPutError: if it surely was not put; OSError: if that is not known.
        """
        try:
            yield from self.making_durable()
        except OSError as error:
            raise not_put(error, path) from error
        won: bool = yield PutIfAbsent(self._fs, path, data)
        return won

    def head(self, bucket: int) -> Head:
        """Where this log, that of a bucket, was at the last `refresh`."""
        return Head(bucket, self._last, self._checksum)

    def has(self, head: Head) -> bool:
        """Whether the log, as the last `refresh` saw it, still has the segment that a head names, or goes on above it
        after a checkpoint: below that a segment may be gone, or damaged, which harms nothing."""
        if head.number >= self._last:
            return (head.number, head.checksum) == (self._last, self._checksum)
        try:
            segment = self._segment(head.number)
        except (CorruptError, UnknownVersionError):
            if head.number >= self._base:
                raise
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
        numbers = (segment_number(entry.name) for entry in self._fs.list_folder(self.folder))
        return {number for number in numbers if number is not None}

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
        self._last, self._checksum = number, segment.checksum

    def _segment(self, number: int) -> Segment | None:
        if self._own is not None and self._own[0] == number:
            return self._own[1]
        path = f"{self.folder}/{segment_name(number)}"
        try:
            return decode_segment(self._fs.read(path), path)
        except FileNotFoundError:
            return None
