"""A commit log: numbered segments in one folder, folded into state, appended by put-if-absent.

Anybody may append at any time; the rules in `protocol.validity` and the numbering decide what counts.
"""

from __future__ import annotations

import logging
import posixpath
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from distcommit.core.errors import OutcomeUnknownError, storage_error
from distcommit.core.ports import FileSystem, NotPutError, not_put
from distcommit.core.records.log_records import Checkpoint, Record
from distcommit.core.support.io_batching import Request, Work, alone
from distcommit.protocol import next_record
from distcommit.protocol.fold import Fold
from distcommit.protocol.paths.store import segment_name
from distcommit.protocol.validity import valid
from distcommit.stores.logs.log_view import LogView
from distcommit.stores.logs.segment import Segment, checksum_in, encode_segment

logger = logging.getLogger(__name__)

CHECKPOINT_EVERY = 32
"""Segments above the newest checkpoint that make a new one worth while, however much it has to say."""
_CHEAP_EVERY, _DATASETS_A_SEGMENT = 8, 32
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


def checkpoint_every(fold: Fold) -> int:
    """As `CHECKPOINT_EVERY`, for a log of which nobody needs what is below its checkpoints. Each of four tasks of a run
    reads all that is above the newest one, a request for each segment, and of the job log the driver some ten times
    more, so that a small one is soon worth its put."""
    return min(CHECKPOINT_EVERY, max(_CHEAP_EVERY, len(fold.datasets) // _DATASETS_A_SEGMENT))


class CommitLog(LogView):
    """One log, seen by one writer.

    Args:
        fs: where the log is.
        folder: its folder, made by the job store.
        epoch: the writer's epoch, 0 for a person.
    """

    def __init__(self, fs: FileSystem, folder: str, epoch: int = 0) -> None:
        super().__init__(fs, folder)
        self.epoch, self._writer_id = epoch, uuid.uuid4().hex
        self._durable_to = 0

    def create(self, beginning: Checkpoint | None = None) -> None:
        """Makes the log: a folder with a checkpoint as segment 1 (an empty one, if none is given), so that a log
        without segments is a damaged one, never a new one. Idempotent; durable after a sync of the folder above."""
        self._fs.make_folders(self.folder)
        genesis = Segment(self.epoch, self._writer_id, beginning or next_record.beginning())
        for attempt in range(_TRIES):
            if self._numbers():
                return
            try:
                self._fs.put_if_absent(f"{self.folder}/{segment_name(1)}", encode_segment(genesis))
            except FileNotFoundError:  # who has made the same log meanwhile, and uses it, swept the temporary file
                if attempt == _TRIES - 1:
                    raise

    def settle(self, decide: Callable[[Fold], Record | None]) -> Fold:
        """`settling`, for this log alone."""
        return alone(self.settling(decide))

    def settling(self, decide: Callable[[Fold], Record | None]) -> Work[Fold]:
        """Appends what `decide` asks for, until it asks for nothing; returns the fold that it was content with.

        That fold is durable, whoever wrote it, and from a `refresh` in this call.

        `decide` is asked first on the fold that was seen last, then again after every put, whatever the put's answer
        was: a put counts only if the fold shows its effect. So it must answer from the fold alone, and None once the
        effect is there or is no longer possible.

        What others wrote is made durable before anything is put above it: of two names of a folder a power loss may
        keep the second alone, and a log with a hole can't be read.

        Raises:
            OutcomeUnknownError: if puts keep failing without the fold showing their effect.
            StorageRefusedError: if the storage is full, read-only or not to be written, and so nothing was put.
            CorruptError: as `refresh`.
        """
        number = unknown = refused = 0
        error: OSError | None = None
        anew = not self._is_known
        while True:
            fold, record = self._decided(decide, anew=anew)
            anew = True
            if self._last >= number:  # what that put did is seen now, whatever it answered
                unknown = refused = 0
            if record is None and self._durable_to >= self._last:
                return fold
            if record is not None and error is not None and refused >= _TRIES and not unknown:
                raise storage_error(error, "a log segment was not written", log=self.folder) from error
            if record is None:
                yield from self.making_durable()
                continue
            if not valid(record, fold):
                raise AssertionError(f"decided on an invalid record: {record!r}")
            number = self._last + 1
            segment = Segment(self.epoch, self._writer_id, record)
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
                if won:
                    self._durable_to, self._own = number, (number, segment)
            if unknown and unknown + refused >= _TRIES:
                raise OutcomeUnknownError(
                    "a log segment may or may not have been written",
                    path=f"{self.folder}/{segment_name(number)}",
                    found=str(error or "temporary files keep disappearing"),
                    todo="mend the storage and run again: the next run reads what is there",
                ) from error

    def _decided(self, decide: Callable[[Fold], Record | None], *, anew: bool) -> tuple[Fold, Record | None]:
        """What follows from the fold that was seen last, if anything does that may follow it; else from another look,
        with the fold that it follows from."""
        fold = self.refresh() if anew else self.latest()
        record = decide(fold)
        if anew or (record is not None and valid(record, fold)):
            return fold, record
        return self._decided(decide, anew=True)

    def checkpoint(self, *, at_least: int = CHECKPOINT_EVERY, decided_from: int = 0) -> None:
        """`checkpointing`, for this log alone."""
        alone(self.checkpointing(at_least=at_least, decided_from=decided_from))

    def checkpointing(self, *, at_least: int = CHECKPOINT_EVERY, decided_from: int = 0) -> Work[None]:
        """Writes the whole fold as one segment if `at_least` segments stand above the newest one, then deletes, by
        listing and in ascending order, what lies below the second newest. Looks at the log only where it writes."""
        due = partial(next_record.checkpoint, at_least=at_least, decided_from=decided_from)
        if due(self.latest()) is not None:
            yield from self.settling(due)
        self._delete_older(self.latest())

    def truncate(self) -> None:
        """Deletes segments below the second newest checkpoint. Safe at any time, by anybody."""
        self._delete_older(self.refresh())

    def _delete_older(self, fold: Fold) -> None:
        keep_from = fold.previous_checkpoint
        for number in sorted(number for number in self._listed if number < keep_from):
            self._fs.delete(f"{self.folder}/{segment_name(number)}")

    def sweep_temporary(self) -> None:
        """Deletes what crashed writers left, as the last look has shown it. A live writer whose file goes decides
        again."""
        self.latest()
        for name in self._temporary:
            self._fs.delete(f"{self.folder}/{name}")

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
