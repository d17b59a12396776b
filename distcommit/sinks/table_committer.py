"""The rule of all sinks that put rows into a database's tables: rows and their ledger row in one transaction.

A transaction takes many datasets at once. Each has a savepoint, so that one that fails takes nothing of the others with
it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias

from distcommit.model.committer import CommitOutcome, CommitRequest, Committed, FailedForGood, SinkCommitter
from distcommit.model.errors import LostError
from distcommit.model.ledger import LedgerRow
from distcommit.sinks.covering import covered_in
from distcommit.sinks.ledgers import allowed_again, answered, committed, taken_back
from distcommit.sinks.retries import tries

Key: TypeAlias = tuple[str, str]
"""Dataset and branch."""

_DATASETS_AT_ONCE = 60
"""Of one transaction: PostgreSQL keeps 64 savepoints of each in memory, and has locks for some thousand tables."""
_TRIES = 3


class CollisionError(Exception):
    """The database has undone the whole transaction, as another one was in its way: the same again may well do."""


class RefusedError(Exception):
    """What is to be written can't be, whatever is tried: the text says what and why."""


class TableCommitter(SinkCommitter):
    """Asks the ledger, and commits what it does not have yet, in as few transactions as there can be.

    A database's own committer says what these are made of. None of its steps is seen by others before `transaction`
    ends.
    """

    @abstractmethod
    def transaction(self) -> AbstractContextManager[object]:
        """One that is durable when the block ends, and undone if it raises.

        Raises:
            CollisionError: as it says.
        """

    @abstractmethod
    def savepoint(self) -> AbstractContextManager[object]:
        """A part of the transaction that is undone by itself if the block raises."""

    @abstractmethod
    def locked(self, keys: Sequence[Key]) -> dict[Key, LedgerRow]:
        """This store's ledger rows of these keys, as far as there are any. Until the transaction ends nobody else can
        look at them so, nor write them."""

    @abstractmethod
    def load(self, request: CommitRequest, row: LedgerRow | None) -> None:
        """Puts the rows of a request into their table.

        Args:
            request: what is committed.
            row: what the ledger has of it.

        Raises:
            LostError: if staged rows are gone.
            RefusedError: if they can't be put there.
        """

    @abstractmethod
    def unload(self, request: CommitRequest) -> None:
        """Takes the rows of a committed request out of their table.

        Raises:
            ConflictError: if these, and no others, can't be told.
        """

    @abstractmethod
    def record(self, row: LedgerRow) -> None:
        """Writes a locked ledger row."""

    @abstractmethod
    def outcome_of(self, error: Exception) -> CommitOutcome | None:
        """What an error comes to that the database, or reading staged rows, has raised for one request; None: more than
        that one is concerned."""

    def forgo(self, request: CommitRequest) -> None:
        """Takes away what writers have left in the database for a request that is taken back and is not committed. By
        default they leave nothing.

        Raises:
            ConflictError: if readers see a part of it that can't be taken back; nothing was changed.
        """

    def unlocked(self, keys: Iterable[Key]) -> None:
        """Told of keys that have no ledger row, and get none, as the transaction ends."""

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        outcomes: list[CommitOutcome] = []
        for begin in range(0, len(requests), _DATASETS_AT_ONCE):
            outcomes += self._tried(requests[begin : begin + _DATASETS_AT_ONCE])
        return outcomes

    def abort(self, requests: Sequence[CommitRequest]) -> None:
        with self.transaction():
            rows = self.locked(_keys(requests))
            for request in requests:
                key = (request.dataset_urn, request.branch)
                row = rows.get(key)
                rows[key] = taken_back(row, request, covered_in(request.infos))
                if row is not None and row.epoch == request.epoch:
                    self.unload(request)
                else:
                    self.forgo(request)
                self.record(rows[key])

    def allow(self, requests: Sequence[CommitRequest]) -> None:
        with self.transaction():
            rows = self.locked(_keys(requests))
            for request in requests:
                key = (request.dataset_urn, request.branch)
                row = allowed_again(rows.get(key), request)
                if row is not None and row != rows.get(key):
                    self.record(row)

    def _tried(self, requests: Sequence[CommitRequest]) -> list[CommitOutcome]:
        for number in tries(_TRIES):
            try:
                return self._in_one_transaction(requests)
            except CollisionError:
                if number == _TRIES:
                    raise
        raise AssertionError("unreachable")

    def _in_one_transaction(self, requests: Sequence[CommitRequest]) -> list[CommitOutcome]:
        with self.transaction():
            keys = _keys(requests)
            rows = self.locked(keys)
            outcomes = [self._commit(request, rows) for request in requests]
            self.unlocked(key for key in keys if key not in rows)
        return outcomes

    def _commit(self, request: CommitRequest, rows: dict[Key, LedgerRow]) -> CommitOutcome:
        key = (request.dataset_urn, request.branch)
        outcome = answered(rows.get(key), request)
        if outcome is not None:
            return outcome
        row = committed(rows.get(key), request, covered_in(request.infos))
        try:
            with self.savepoint():
                self.load(request, rows.get(key))
                self.record(row)
        except (LostError, RefusedError) as error:
            return FailedForGood(str(error))
        except Exception as error:
            outcome = self.outcome_of(error)
            if outcome is None:
                raise
            return outcome
        rows[key] = row
        return Committed()


def _keys(requests: Sequence[CommitRequest]) -> list[Key]:
    """Each once, in the order in which all lock them."""
    return sorted({(request.dataset_urn, request.branch) for request in requests})
