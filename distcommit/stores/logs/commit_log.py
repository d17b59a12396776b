"""A commit log: numbered segments in one folder, which together give the state.

Any process may append by put-if-absent; `protocol.record_validity` and the numbering decide which records count.
"""

from __future__ import annotations

import logging
import posixpath
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from distcommit.core.error_handling.storage_errors import storage_error
from distcommit.core.errors import OutcomeUnknownError
from distcommit.core.interfaces.file_system import FileSystem, NotPutError, not_put
from distcommit.core.records.log_records import Checkpoint, Record
from distcommit.core.support.io_batching import BatchedWork, IoRequest
from distcommit.protocol import next_log_record
from distcommit.protocol.log_state import Fold
from distcommit.protocol.paths.store import segment_name
from distcommit.protocol.record_validity import valid
from distcommit.stores.logs.log_view import LogView
from distcommit.stores.logs.segment_format import Segment, checksum_in, encode_segment

logger = logging.getLogger(__name__)

CHECKPOINT_EVERY = 32
"""Number of segments above the newest checkpoint at which any log gets a new checkpoint."""
_CHEAP_EVERY, _DATASETS_A_SEGMENT = 8, 32
_TRIES = 3


class PutIfAbsent(IoRequest):
    """A put of a segment, batched with puts of other logs."""

    def __init__(self, fs: FileSystem, path: str, data: bytes) -> None:
        self._fs, self._path, self._data = fs, path, data

    @classmethod
    def answer_batch(cls, requests: Sequence[PutIfAbsent]) -> list[bool | OSError]:
        return requests[0]._fs.put_all_if_absent([(request._path, request._data) for request in requests])


class MakeDurable(IoRequest):
    """A sync of a log's folder, batched with those of other logs."""

    def __init__(self, fs: FileSystem, folder: str) -> None:
        self._fs, self._folder = fs, folder

    @classmethod
    def answer_batch(cls, requests: Sequence[MakeDurable]) -> list[None]:
        folders = [request._folder for request in requests]
        requests[0]._fs.sync(folders, posixpath.commonpath(folders))
        return [None] * len(folders)


def checkpoint_every(fold: Fold) -> int:
    """Return the number of segments until a checkpoint.

    Every reader reads all segments above the newest checkpoint, so a checkpoint with few datasets saves more than it
    costs.
    """
    return min(CHECKPOINT_EVERY, max(_CHEAP_EVERY, len(fold.datasets) // _DATASETS_A_SEGMENT))


class CommitLog(LogView):
    """One log, as one process reads it and appends to it.

    Args:
        folder: folder of the log, created by the job store.
        epoch: epoch of the writer; 0 for an operator.
    """

    def __init__(self, fs: FileSystem, folder: str, epoch: int = 0) -> None:
        super().__init__(fs, folder)
        self.epoch, self._writer_id = epoch, uuid.uuid4().hex
        self._durable_to = 0

    def create(self, beginning: Checkpoint | None = None) -> None:
        """Create the log with a checkpoint as segment 1, so that a log without segments counts as damaged.

        Idempotent; durable after a sync of the parent folder.
        """
        self._fs.make_folders(self.folder)
        genesis = Segment(self.epoch, self._writer_id, beginning or next_log_record.beginning())
        for attempt in range(_TRIES):
            if self._numbers():
                return
            try:
                self._fs.put_if_absent(f"{self.folder}/{segment_name(1)}", encode_segment(genesis))
            except FileNotFoundError:  # another process created the log and swept this writer's temporary file
                if attempt == _TRIES - 1:
                    raise

    def settle(self, decide: Callable[[Fold], Record | None]) -> BatchedWork[Fold]:
        """Append the records that `decide` returns, until it returns None; return the state at that point.

        The returned state is durable, including other writers' records, and was read in this call.

        `decide` is called on the last known state, and again after each put, whatever its result: a put counts only if
        the state shows its effect. So it must depend on the state alone, and return None once the effect is there or
        impossible.

        Other writers' records are made durable before a segment is put above them. Otherwise a power loss could leave a
        gap, which makes a log unreadable.

        Raises:
            OutcomeUnknownError: if puts keep failing without the state showing their effect.
            StorageRefusedError: if the storage is full, read-only or forbidden; nothing was put.
            CorruptError: if a segment is truncated, foreign or missing.
        """
        number = unknown = refused = 0
        error: OSError | None = None
        refresh = not self._is_refreshed
        while True:
            fold, record = self._decided(decide, refresh=refresh)
            refresh = True
            if self._last >= number:  # the effect of the last put is visible now, whatever it returned
                unknown = refused = 0
            if record is None and self._durable_to >= self._last:
                return fold
            if record is not None and error is not None and refused >= _TRIES and not unknown:
                raise storage_error(error, "a log segment was not written", log=self.folder) from error
            if record is None:
                yield from self.make_durable()
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
                    todo="repair the storage and run again: the next run reads the current state",
                ) from error

    def _decided(self, decide: Callable[[Fold], Record | None], *, refresh: bool) -> tuple[Fold, Record | None]:
        fold = self.refresh() if refresh else self.latest()
        record = decide(fold)
        if refresh or (record is not None and valid(record, fold)):
            return fold, record
        return self._decided(decide, refresh=True)

    def checkpoint(self, *, at_least: int = CHECKPOINT_EVERY, decided_from: int = 0) -> BatchedWork[None]:
        """Write a checkpoint, if at least `at_least` segments are above the newest one.

        Then delete the segments below the second newest, in ascending order. Only a due checkpoint refreshes the log.
        """
        due_checkpoint = partial(next_log_record.checkpoint, at_least=at_least, decided_from=decided_from)
        if due_checkpoint(self.latest()) is not None:
            yield from self.settle(due_checkpoint)
        self._delete_older(self.latest())

    def truncate(self) -> None:
        """Delete segments below the second newest checkpoint; safe at any time, in any process."""
        self._delete_older(self.refresh())

    def _delete_older(self, fold: Fold) -> None:
        keep_from = fold.previous_checkpoint
        for number in sorted(number for number in self._listed if number < keep_from):
            self._fs.delete(f"{self.folder}/{segment_name(number)}")

    def sweep_temporary(self) -> None:
        """Delete the temporary files of crashed writers in the last listing.

        If the file of a live writer is deleted, its put fails, and the writer decides again.
        """
        self.latest()
        for name in self._temporary:
            self._fs.delete(f"{self.folder}/{name}")

    def make_durable(self) -> BatchedWork[None]:
        """Sync the folder if the state contains other writers' records, so that the state is durable."""
        if self._durable_to < self._last:
            durable_to = self._last
            yield MakeDurable(self._fs, self.folder)
            self._durable_to = durable_to

    def _putting(self, path: str, data: bytes) -> BatchedWork[bool]:
        try:
            yield from self.make_durable()
        except OSError as error:
            raise not_put(error, path) from error
        won: bool = yield PutIfAbsent(self._fs, path, data)
        return won
