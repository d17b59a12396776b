"""The rule of all sinks that put rows into a database's tables: rows and their ledger row in one transaction.

A transaction takes many datasets at once. Each has a savepoint, so that one that fails takes nothing of the others with
it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias

from distcommit.core.errors import ConfigurationError, ConflictError, LostError
from distcommit.core.interfaces.committer import (
    CommitOutcome,
    CommitRequest,
    Committed,
    FailedForGood,
    HeldBack,
    RetryLater,
    SinkCommitter,
)
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.sinks.base.ledgers import allowed_again, answered, committed, of_another_ledger, taken_back
from distcommit.sinks.base.offset_coverage import covered_in
from distcommit.sinks.base.retries import tries

Key: TypeAlias = tuple[str, str]
"""Dataset and branch."""

LEDGER = "distcommit_ledger"
PROOFS = "distcommit_prepared"
"""The table of proofs of two-phase commit, which stands beside the ledger."""
_DATASETS_AT_ONCE = 60
"""Of one transaction: PostgreSQL keeps 64 savepoints of each in memory, and has locks for some thousand tables."""
_TRIES = 3


class CollisionError(Exception):
    """The database has undone the whole transaction, as another one was in its way: the same again may well do."""


class RefusedError(Exception):
    """What is to be written can't be, whatever is tried: the text says what and why."""


class _NotWholeError(Exception):
    """Requests that are committed all or none can't all be: what each is answered. The transaction is undone."""

    def __init__(self, outcomes: Sequence[CommitOutcome]) -> None:
        super().__init__(outcomes)
        self.outcomes = outcomes


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
    def identity(self) -> str:
        """The ledger's: a text that it got as it was made, and no other one has; empty if somebody took it away. Within
        a transaction that has locked rows, of the ledger that these are in."""

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

    def require(self, request: CommitRequest) -> None:
        """Looks whether what a request is loaded from is all there: asked of all that are committed all or none before
        any of them is loaded. For databases where loading is not undone with the transaction.

        Raises:
            LostError: if it is not.
        """

    def unlocked(self, keys: Iterable[Key]) -> None:
        """Told of keys that have no ledger row, and get none, as the transaction ends."""

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        outcomes: list[CommitOutcome] = []
        for begin in range(0, len(requests), _DATASETS_AT_ONCE):
            outcomes += self._tried(requests[begin : begin + _DATASETS_AT_ONCE])
        return outcomes

    def commit_whole(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """All of them in one transaction, however many there are; it is undone if one of them can't be."""
        try:
            return self._tried(requests, whole=True)
        except _NotWholeError as error:
            return error.outcomes

    def abort(self, requests: Sequence[CommitRequest]) -> None:
        with self.transaction():
            rows = self.locked(_keys(requests))
            identity = self.identity()
            for request in requests:
                key = (request.dataset_urn, request.branch)
                row = rows.get(key)
                _check_ledger(request, row, identity)
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

    def _tried(self, requests: Sequence[CommitRequest], *, whole: bool = False) -> list[CommitOutcome]:
        for number in tries(_TRIES):
            self.tried_again += 1 if number > 1 else 0
            try:
                return self._in_one_transaction(requests, whole=whole)
            except CollisionError:
                if number == _TRIES:
                    raise
        raise AssertionError("unreachable")

    def _in_one_transaction(self, requests: Sequence[CommitRequest], *, whole: bool) -> list[CommitOutcome]:
        with self.transaction():
            keys = _keys(requests)
            rows, identity = self.locked(keys), self.identity()
            if whole:
                _check_whole(requests, [self._looked_at(request, rows, identity) for request in requests])
            outcomes = [self._commit(request, rows, identity) for request in requests]
            if whole:
                _check_whole(requests, outcomes)
            self.unlocked(key for key in keys if key not in rows)
        return outcomes

    def _looked_at(self, request: CommitRequest, rows: Mapping[Key, LedgerRow], identity: str) -> CommitOutcome:
        outcome = _answered(rows.get((request.dataset_urn, request.branch)), request, identity)
        try:
            if outcome is None:
                self.require(request)
        except LostError as error:
            return FailedForGood(str(error))
        return outcome or Committed()

    def _commit(self, request: CommitRequest, rows: dict[Key, LedgerRow], identity: str) -> CommitOutcome:
        key = (request.dataset_urn, request.branch)
        outcome = _answered(rows.get(key), request, identity)
        if outcome is not None:
            return outcome
        row = committed(rows.get(key), request, covered_in(request.infos))
        try:
            with self.savepoint():
                self.load(request, rows.get(key))
                self.record(row)
        except (ConfigurationError, LostError, RefusedError) as error:
            return FailedForGood(str(error))
        except Exception as error:
            outcome = self.outcome_of(error)
            if outcome is None:
                raise
            return outcome
        rows[key] = row
        return Committed()


def _answered(row: LedgerRow | None, request: CommitRequest, identity: str) -> CommitOutcome | None:
    """As `answered`, by a ledger of that identity."""
    outcome, noted = answered(row, request), of_another_ledger(request, identity)
    return FailedForGood(_other_ledger(noted, identity)) if outcome is None and noted else outcome


def _check_ledger(request: CommitRequest, row: LedgerRow | None, identity: str) -> None:
    """Raises:
    ConflictError: if a request that the ledger knows nothing of may be committed, by another ledger.
    """
    noted = of_another_ledger(request, identity)
    if noted and (row is None or row.epoch < request.epoch):
        raise ConflictError(
            "whether it is committed can't be told",
            dataset=request.dataset_urn,
            epoch=request.epoch,
            found=_other_ledger(noted, identity),
        )


def _other_ledger(noted: str, identity: str) -> str:
    """What is said of rows that were written for the ledger that was noted, where there is another one."""
    return (
        f"this is not the ledger that was there as rows were written, {noted}, but {identity or 'one without a name'}:"
        " that one was removed, and this one can't tell whether they are committed. Nothing was written. Look for them"
        " in the table. If they are there, release the dataset with accept; if not, have this one count as the same"
        f" (UPDATE {LEDGER} SET commit_id = '{noted}' WHERE store = '') and release the dataset with retry"
    )


def _check_whole(requests: Sequence[CommitRequest], outcomes: Sequence[CommitOutcome]) -> None:
    """Raises:
    _NotWholeError: if one of them can't be committed, ever or now.
    """
    for refusal, held in ((FailedForGood, (Committed, RetryLater)), (RetryLater, (Committed,))):
        for request, refused in zip(requests, outcomes, strict=True):
            if isinstance(refused, refusal):
                by = HeldBack(request.dataset_urn)
                raise _NotWholeError([by if isinstance(outcome, held) else outcome for outcome in outcomes])


def _keys(requests: Sequence[CommitRequest]) -> list[Key]:
    """Each once, in the order in which all lock them."""
    return sorted({(request.dataset_urn, request.branch) for request in requests})
