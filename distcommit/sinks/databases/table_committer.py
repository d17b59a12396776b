"""Base class of committers that commit rows and ledger rows of many datasets in one transaction, with a savepoint for
each dataset."""

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
from distcommit.sinks.base.idempotent_commit import allowed_again, answered, committed, of_another_ledger, taken_back
from distcommit.sinks.base.offset_coverage import covered_in
from distcommit.sinks.base.retries import tries

Key: TypeAlias = tuple[str, str]
"""Dataset and branch."""

LEDGER = "distcommit_ledger"
PROOFS = "distcommit_prepared"
"""Table of proofs of two-phase commit, in the same database or schema as the ledger."""
_DATASETS_AT_ONCE = 60
"""Most requests in one transaction. PostgreSQL keeps 64 savepoints in memory, and has locks for some thousand
tables."""
_TRIES = 3


class CollisionError(Exception):
    """Rollback by the database because of a conflict; a retry may succeed."""


class RefusedError(Exception):
    """Error of rows that can't be written unless the rows or the table are changed. Its text has reason and remedy."""


class _NotAtomicError(Exception):
    def __init__(self, outcomes: Sequence[CommitOutcome]) -> None:
        super().__init__(outcomes)
        self.outcomes = outcomes


class TableCommitter(SinkCommitter):
    """Committer of requests that the ledger lacks, in as few transactions as possible."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[object]:
        """Open a transaction that is durable on normal exit and rolled back on an exception. Raises CollisionError on a
        conflict."""

    @abstractmethod
    def savepoint(self) -> AbstractContextManager[object]:
        """Open a savepoint. An exception rolls back to it."""

    @abstractmethod
    def locked(self, keys: Sequence[Key]) -> dict[Key, LedgerRow]:
        """Lock the ledger rows of these keys until the transaction ends; return those that exist."""

    @abstractmethod
    def identity(self) -> str:
        """Return the random text that the ledger got when it was created; empty if the text was removed."""

    @abstractmethod
    def load(self, request: CommitRequest, row: LedgerRow | None) -> None:
        """Insert a request's rows; `row` is its ledger row before the commit. Raises LostError if staged rows are gone,
        and RefusedError if the table can't take them."""

    @abstractmethod
    def unload(self, request: CommitRequest) -> None:
        """Delete a committed request's rows. Raises ConflictError if some are missing or can't be identified."""

    @abstractmethod
    def record(self, row: LedgerRow) -> None: ...

    @abstractmethod
    def outcome_of(self, error: Exception) -> CommitOutcome | None:
        """Return the outcome of a request whose rows caused this error; None if the error concerns other requests,
        too."""

    def roll_back_prepared(self, request: CommitRequest) -> None:
        """Roll back prepared rows of an uncommitted request. Raises ConflictError if visible rows can't be deleted."""

    def require(self, request: CommitRequest) -> None:
        """Raise LostError if prepared rows are gone. Called for all requests of an atomic commit before the first is
        loaded."""

    def delete_unused_rows(self, keys: Iterable[Key]) -> None:
        """Delete rows that `locked` inserted, if the transaction has written no ledger rows for these keys."""

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        outcomes: list[CommitOutcome] = []
        for begin in range(0, len(requests), _DATASETS_AT_ONCE):
            outcomes += self._with_retries(requests[begin : begin + _DATASETS_AT_ONCE])
        return outcomes

    def commit_atomically(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        try:
            return self._with_retries(requests, atomic=True)
        except _NotAtomicError as error:
            return error.outcomes

    def withdraw(self, requests: Sequence[CommitRequest]) -> None:
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
                    self.roll_back_prepared(request)
                self.record(rows[key])

    def allow(self, requests: Sequence[CommitRequest]) -> None:
        with self.transaction():
            rows = self.locked(_keys(requests))
            for request in requests:
                key = (request.dataset_urn, request.branch)
                row = allowed_again(rows.get(key), request)
                if row is not None and row != rows.get(key):
                    self.record(row)

    def _with_retries(self, requests: Sequence[CommitRequest], *, atomic: bool = False) -> list[CommitOutcome]:
        for number in tries(_TRIES):
            self.retry_count += 1 if number > 1 else 0
            try:
                return self._in_one_transaction(requests, atomic=atomic)
            except CollisionError:
                if number == _TRIES:
                    raise
        raise AssertionError("unreachable")

    def _in_one_transaction(self, requests: Sequence[CommitRequest], *, atomic: bool) -> list[CommitOutcome]:
        with self.transaction():
            keys = _keys(requests)
            rows, identity = self.locked(keys), self.identity()
            if atomic:
                _check_committable(requests, [self._prior_outcome(request, rows, identity) for request in requests])
            outcomes = [self._commit(request, rows, identity) for request in requests]
            if atomic:
                _check_committable(requests, outcomes)
            self.delete_unused_rows(key for key in keys if key not in rows)
        return outcomes

    def _prior_outcome(self, request: CommitRequest, rows: Mapping[Key, LedgerRow], identity: str) -> CommitOutcome:
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
    outcome, noted = answered(row, request), of_another_ledger(request, identity)
    return FailedForGood(_other_ledger(noted, identity)) if outcome is None and noted else outcome


def _check_ledger(request: CommitRequest, row: LedgerRow | None, identity: str) -> None:
    """Raise ConflictError if another ledger may have committed the rows, and this one has not."""
    noted = of_another_ledger(request, identity)
    if noted and (row is None or row.epoch < request.epoch):
        raise ConflictError(
            "it is unknown whether the commit was made",
            id="COMMIT_UNCONFIRMED",
            dataset=request.dataset_urn,
            epoch=request.epoch,
            found=_other_ledger(noted, identity),
        )


def _other_ledger(noted: str, identity: str) -> str:
    return (
        f"the rows were written for the ledger {noted}, but the present ledger is {identity or 'without identity'}. The"
        " old ledger was removed, and the present one does not know whether the rows are committed. Nothing was"
        " written. Look for the rows in the table. If it has them, release the dataset with accept; if not, make this"
        f" ledger count as the old one (UPDATE {LEDGER} SET commit_id = '{noted}' WHERE store = '') and release the"
        " dataset with retry"
    )


def _check_committable(requests: Sequence[CommitRequest], outcomes: Sequence[CommitOutcome]) -> None:
    for refusal, retryable in ((FailedForGood, (Committed, RetryLater)), (RetryLater, (Committed,))):
        for request, refused in zip(requests, outcomes, strict=True):
            if isinstance(refused, refusal):
                by = HeldBack(request.dataset_urn)
                raise _NotAtomicError([by if isinstance(outcome, retryable) else outcome for outcome in outcomes])


def _keys(requests: Sequence[CommitRequest]) -> list[Key]:
    """Return the keys in the order of locking, which prevents deadlocks."""
    return sorted({(request.dataset_urn, request.branch) for request in requests})
