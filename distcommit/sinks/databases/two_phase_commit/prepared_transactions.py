"""Two-phase commit: writers prepare transactions, and the committer commits them by name.

A database does not report whether a missing prepared transaction was committed. So each transaction inserts a proof, a
row that is visible once it is committed. Then the ledger row is changed and the proofs are deleted in one transaction.
All committers of a dataset lock its ledger row first.

The name of a transaction belongs to one attempt. A newer run fences the aborted attempts of older runs, and therefore
deletes their `barred` rows.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from hashlib import blake2b
from typing import Any, NamedTuple

import pyarrow as pa

from distcommit.core.errors import (
    ConfigurationError,
    ConflictError,
    DistcommitError,
    FencedError,
    LostError,
    TransientError,
    printable,
)
from distcommit.core.interfaces.committer import AbortedAttempt, CommitRequest, FailedForGood
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.interfaces.sink import AttemptIdentity
from distcommit.sinks.base.error_collection import ErrorCollector
from distcommit.sinks.base.retries import tries
from distcommit.sinks.databases.staged_rows import files_of, rows_of, staged_batches, staged_runs
from distcommit.sinks.databases.table_committer import CollisionError, RefusedError
from distcommit.sinks.databases.two_phase_commit.two_phase_proofs import ProofCommitter

logger = logging.getLogger(__name__)

_OURS = "distcommit"
_TRIES = 5


class Name(NamedTuple):
    """The name of a prepared transaction.

    Attributes:
        key: hash of store, dataset and branch.
        epoch: the run's epoch.
        attempt: the task attempt's id.
    """

    key: str
    epoch: int
    attempt: str

    @property
    def begin(self) -> str:
        return f"{_OURS}-{self.key}"

    @property
    def end(self) -> str:
        return f"{self.epoch}-{self.attempt}"

    @property
    def text(self) -> str:
        return f"{self.begin}-{self.end}"

    @classmethod
    def parsed(cls, text: str) -> Name | None:
        match text.split("-", 3):
            case [begin, key, epoch, attempt] if begin == _OURS and epoch.isdigit():
                return cls(key, int(epoch), attempt)
        return None


class TwoPhaseCommitter(ProofCommitter):
    """Committer of prepared transactions, to be combined with the database's own committer.

    It commits on a second connection, because the first one's transaction locks the ledger row.
    """

    @abstractmethod
    def in_doubt(self) -> frozenset[Name]:
        """Return the prepared transactions of all stores."""

    @abstractmethod
    def end_prepared(self, name: Name, *, commit: bool) -> bool:
        """Roll back or commit a prepared transaction, durably, on the second connection. Return whether it existed."""

    @abstractmethod
    def prepared_transaction(self, name: Name) -> AbstractContextManager[object]:
        """Open a transaction that is prepared durably on normal exit. On an exception the transaction is rolled back,
        at the latest by `close`. Afterwards the committer can only be closed or released."""

    def _end(self, name: Name, *, commit: bool) -> bool:
        is_ended = self.end_prepared(name, commit=commit)
        if is_ended:
            logger.info("transaction %s: %s", name.text, "committed" if commit else "rolled back")
        return is_ended

    # -- called by writers

    def begin(self, epoch: int) -> None:
        """Announce a run before its writers prepare transactions. Raises FencedError if a newer run has begun, and
        ConfigurationError if the server can't prepare transactions."""
        self.make_newest(epoch)
        self._require_newest(epoch)
        self._forget_overtaken(epoch)

    def _forget_overtaken(self, epoch: int) -> None:
        """Delete proofs that accepted requests left, once a later epoch is committed."""
        proofs = self.proofs_before(epoch)
        rows = self.ledger() if proofs else ()
        committed = {(row.dataset_urn, row.branch): row.epoch for row in rows}
        self.delete_proofs([proof for proof, (key, of) in proofs.items() if of < committed.get(key, 0)])

    def prepare(self, attempt: AttemptIdentity, staged: Mapping[str, Any]) -> dict[str, Any]:
        """Prepare a transaction with staged rows durably, and return its commit info. Raises ConfigurationError if the
        table does not take the rows, FencedError if a newer run has begun or the attempt was aborted, LostError if
        staged rows are gone, and TransientError if the database fails or the table was recreated meanwhile."""
        request = CommitRequest(attempt.dataset_urn, attempt.epoch, (dict(staged),), attempt.branch)
        name = Name(self._key_of(request), attempt.epoch, attempt.attempt)
        try:
            (path, checksum), *_ = files_of(request.infos)
            table = self._ready(request, next(staged_batches(self._context, path, checksum)).schema)
            with _logged(name, attempt.dataset_urn), self.prepared_transaction(name):
                self._write(attempt, request, table)
        except RefusedError as error:
            raise _refused(request, str(error)) from error
        except (DistcommitError, OSError):
            raise
        except Exception as error:
            raise TransientError(
                "the database could not prepare rows",
                id="TARGET_UNAVAILABLE",
                dataset=attempt.dataset_urn,
                branch=attempt.branch,
                found=f"{type(error).__name__}: {error}",
                todo="a later attempt prepares the rows again; if the error persists, repair the database",
            ) from error
        copied = {name: staged[name] for name in ("rows", "covered", "ledger")}
        return {"attempt": attempt.attempt, "table": table, **copied}

    def ready(self, request: CommitRequest, rows: pa.Schema) -> int:
        """Return the table's identity. Create a missing table in a separate transaction, because a prepared transaction
        would lock the table. Raises RefusedError if the table was recreated since a commit, or is missing and may not
        be created, and CollisionError on a conflict."""
        key = (request.dataset_urn, request.branch)
        with self.transaction():
            rows_by_key = self.locked([key])
            table = self._table(request, rows_by_key.get(key), rows)
            self.delete_unused_rows([key] if key not in rows_by_key else [])
        return table.identity

    def _ready(self, request: CommitRequest, rows: pa.Schema) -> int:
        for number in tries(_TRIES):
            try:
                return self.ready(request, rows)
            except CollisionError:
                if number == _TRIES:
                    raise
        raise AssertionError("unreachable")

    def _write(self, attempt: AttemptIdentity, request: CommitRequest, identity: int) -> None:
        """Insert the proof, check for a newer run, then insert the rows. So either a newer run's `abort` finds the
        proof, or the writer finds the newer run and fails."""
        if not self.prove(attempt, self._proof(attempt.attempt)):
            raise FencedError(
                "this attempt was aborted: its transaction would neither be committed nor rolled back",
                dataset=attempt.dataset_urn,
                attempt=attempt.attempt,
            )
        self._require_newest(attempt.epoch)
        try:
            with self.savepoint():
                self._fill(request, identity)
        except (DistcommitError, RefusedError):
            raise
        except Exception as error:
            outcome = self.outcome_of(error)
            if isinstance(outcome, FailedForGood):
                raise _refused(request, outcome.reason) from error
            raise

    def _fill(self, request: CommitRequest, identity: int) -> None:
        table = self.find(self._settings.table_of(request.dataset_urn), self._tags(request))
        if table is None or table.identity != identity:
            raise TransientError(
                "the table was dropped or recreated just now",
                id="TABLE_CHANGED_CONCURRENTLY",
                dataset=request.dataset_urn,
            )
        for path, checksum in files_of(request.infos):
            for batches in staged_runs(self._context, path, checksum):
                table.fit(batches[0].schema, add_columns=False)
                table.copy(batches)

    def _require_newest(self, epoch: int) -> None:
        newest = self.newest()
        if newest > epoch:
            raise FencedError("a newer run writes to this database", expected=f"epoch {epoch}", found=f"epoch {newest}")

    # -- called by the base class

    def load(self, request: CommitRequest, row: LedgerRow | None) -> None:
        waiting = self._waiting(request)
        self._targets[request.dataset_urn, request.branch] = (
            self.shown(self._settings.table_of(request.dataset_urn)),
            request.infos[-1]["table"],
        )
        for name in waiting:
            if not self._end(name, commit=True) and not self.proven([self._proof(name.attempt)]):
                raise _lost(request, [name])
        self.delete_proofs([self._proof(name.attempt) for name in self._names(request)])

    def require(self, request: CommitRequest) -> None:
        self._waiting(request)

    def roll_back_prepared(self, request: CommitRequest) -> None:
        """Roll back prepared transactions in the order of commits, so that a process that is still committing misses
        the first one and stops. If the request has no commit infos, roll back all transactions of the dataset and
        branch up to the epoch. Raises ConflictError if a transaction is committed and its rows have no tags."""
        names = self._names(request)
        visible = self.proven([self._proof(name.attempt) for name in names])
        if visible and not self._settings.takes_back:
            raise _visible(request)
        rows = 0
        for info, name in zip(request.infos, names, strict=True):
            if self._end(name, commit=False):
                continue
            if self.proven([self._proof(name.attempt)]):
                rows += rows_of([info])
                if not self._settings.takes_back:
                    raise _visible(request)
        if rows:
            self.delete_committed(request, rows)
        self.delete_proofs([self._proof(name.attempt) for name in names])
        if not request.infos:
            key = self._key_of(request)
            for name in sorted(self.in_doubt()):
                if name.key == key and name.epoch <= request.epoch:
                    self._end(name, commit=False)

    def allow(self, requests: Sequence[CommitRequest]) -> None:
        raise NotImplementedError(
            "prepared transactions are rolled back when a commit is taken back, and can't be committed again"
        )

    def abort(self, aborted_attempts: Sequence[AbortedAttempt]) -> None:
        """Roll back prepared transactions of aborted attempts, and bar the attempts. An attempt whose rollback fails is
        not barred, because that would wait for its lock; TransientError is raised at the end."""
        attempts, still_prepared = {attempt.attempt for attempt in aborted_attempts}, set[Name]()
        one_by_one = ErrorCollector("prepared transactions can't be rolled back", self.probe)
        for name in sorted(self.in_doubt()):
            if name.attempt in attempts:
                still_prepared.add(name)
                with one_by_one.collecting(name.text):
                    self._end(name, commit=False)
                    still_prepared.remove(name)
        not_ended = {name.attempt for name in still_prepared}
        with self.transaction():
            self.bar(
                {
                    self._proof(attempt.attempt): attempt.epoch
                    for attempt in aborted_attempts
                    if attempt.attempt not in not_ended
                }
            )
        one_by_one.raise_collected()

    # -- a request's transactions

    def _names(self, request: CommitRequest) -> list[Name]:
        key = self._key_of(request)
        return [Name(key, request.epoch, info["attempt"]) for info in request.infos]

    def _waiting(self, request: CommitRequest) -> list[Name]:
        """Return a request's prepared transactions; raises LostError if a transaction is neither prepared nor
        committed.

        Prepared transactions are listed before proofs, so that a transaction that is committed in between has a proof.
        """
        names, in_doubt = self._names(request), self.in_doubt()
        proofs = self.proven([self._proof(name.attempt) for name in names])
        waiting = [name for name in names if self._proof(name.attempt) not in proofs]
        gone = [name for name in waiting if name not in in_doubt]
        if gone:
            raise _lost(request, gone)
        return waiting

    def _key_of(self, request: CommitRequest) -> str:
        named = "\0".join((self._context.store_id, request.branch, request.dataset_urn))
        return blake2b(named.encode(), digest_size=16).hexdigest()

    def _proof(self, attempt: str) -> str:
        """Return the id of an attempt's proof. It has a hash of the sink's name, because branches may share a
        ledger."""
        return f"{attempt}-{blake2b(self._settings.name.encode(), digest_size=8).hexdigest()}"


@contextmanager
def _logged(name: Name, dataset_urn: str) -> Iterator[None]:
    logger.info("transaction %s: started, dataset %s", name.text, printable(dataset_urn))
    try:
        yield
    except BaseException:
        logger.info("transaction %s: failed before it was confirmed as prepared", name.text)
        raise
    logger.info("transaction %s: prepared", name.text)


def _lost(request: CommitRequest, gone: Sequence[Name]) -> LostError:
    return LostError(
        "transactions are neither prepared nor committed: another client has rolled them back, or the database"
        " was restored from a copy",
        id="PREPARED_ROWS_LOST",
        dataset=request.dataset_urn,
        epoch=request.epoch,
        expected=f"a prepared transaction or a proof of its commit, for {', '.join(name.text for name in gone)}",
        found="neither",
        todo="release the dataset with abandon: the next run reads the dataset again",
    )


def _visible(request: CommitRequest) -> ConflictError:
    return ConflictError(
        "a commit to this table can't be taken back",
        id="COMMIT_NOT_REVERSIBLE",
        dataset=request.dataset_urn,
        epoch=request.epoch,
        expected="none of its transactions committed, or a sink with `tags: true`, which identify its rows",
        found="some of its transactions are committed",
        todo="release the dataset with retry, or accept",
    )


def _refused(request: CommitRequest, reason: str) -> ConfigurationError:
    return ConfigurationError(
        "the table does not take the rows",
        id="RECORDS_NOT_STORABLE",
        dataset=request.dataset_urn,
        branch=request.branch,
        found=reason,
        todo="alter the table, convert such records, or reject them with a row checker",
    )
