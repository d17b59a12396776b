"""Two-phase commit: writers have the database prepare a transaction each, and the committer has it commit them by name.

What has become of a prepared transaction that is not there any more only what it wrote can tell. So each inserts a row,
its proof, which is there once it is committed; the ledger's row is changed afterwards, and proofs go with that. All
committers of a dataset wait for each other at its ledger's row. In the table of proofs `what` is `proof`, or `barred`
where none may come any more, or `newest` of a store, whose epoch is the newest one that writers have come of.

A name is that of one attempt, and is never used again. Nobody prepares under a name that was taken away: what `discard`
leaves in the place of a proof is in the way of one, until a newer run's writers have said that no older ones may.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
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
)
from distcommit.core.interfaces.committer import CommitRequest, FailedForGood, LostAttempt
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.interfaces.sink import AttemptIdentity
from distcommit.sinks.base.error_collection import OneByOne
from distcommit.sinks.base.retries import tries
from distcommit.sinks.databases.sql_committer import SqlCommitter, places
from distcommit.sinks.databases.staged_rows import files_of, rows_of, staged_batches, staged_runs
from distcommit.sinks.databases.table_committer import CollisionError, Key, RefusedError

_OURS = "distcommit"
_TRIES = 5


class Name(NamedTuple):
    """Of a prepared transaction: of which store, dataset and branch, as a hash, which epoch, and which attempt."""

    key: str
    epoch: int
    attempt: str

    @property
    def begin(self) -> str:
        """The first part of the name; it has no `-` but one."""
        return f"{_OURS}-{self.key}"

    @property
    def end(self) -> str:
        """The other part."""
        return f"{self.epoch}-{self.attempt}"

    @property
    def text(self) -> str:
        """All of it, at most 63 characters in front of the attempt's id."""
        return f"{self.begin}-{self.end}"

    @classmethod
    def parsed(cls, text: str) -> Name | None:
        """The name; None if it is not one of these."""
        match text.split("-", 3):
            case [begin, key, epoch, attempt] if begin == _OURS and epoch.isdigit():
                return cls(key, int(epoch), attempt)
        return None


class TwoPhaseCommitter(SqlCommitter):
    """Commits what writers have prepared. Stands in front of the database's own committer, which has the ledger.

    It commits and rolls back on a second connection, as neither can be done within the transaction that holds the
    ledger's row.
    """

    @abstractmethod
    def in_doubt(self) -> frozenset[Name]:
        """All that is prepared, by anybody's stores."""

    @abstractmethod
    def settle(self, name: Name, *, commit: bool) -> bool:
        """Commits one that is prepared, or rolls it back, durably, beside the transaction; False if it is not there."""

    @abstractmethod
    def preparing(self, name: Name) -> AbstractContextManager[object]:
        """A transaction that is prepared when the block ends, durably, and undone if it raises, at the latest as the
        committer is closed. Nothing else is asked of it afterwards."""

    @abstractmethod
    def prove(self, attempt: AttemptIdentity, proof: str) -> bool:
        """Inserts a proof; waits for who is about to insert the same. False if there is one."""

    @abstractmethod
    def bar(self, lost: Mapping[str, int]) -> None:
        """Prevent these proofs of aborted attempts from being inserted; the values are the attempts' epochs. Waits for
        other sessions as `prove` does."""

    @abstractmethod
    def make_newest(self, epoch: int) -> None:
        """Raise `newest` to at least this epoch, and then delete the bars of older epochs."""

    # -- proofs

    def proven(self, proofs: Collection[str]) -> set[str]:
        """Return those of the proofs that exist now."""
        if not proofs:
            return set()
        asked = f"SELECT id FROM {{proofs}} WHERE what = 'proof' AND id IN ({places(proofs)})"
        return {proof for (proof,) in self.execute(asked, [*proofs]).fetchall()}

    def proofs_before(self, epoch: int) -> dict[str, tuple[Key, int]]:
        """Return this store's proofs of older epochs, each with its dataset and branch, and its epoch."""
        found = self.execute(
            "SELECT id, dataset, branch, epoch FROM {proofs} WHERE store = %s AND what = 'proof' AND epoch < %s",
            (self._context.store_id, epoch),
        )
        return {proof: ((dataset, branch), of) for proof, dataset, branch, of in found.fetchall()}

    def forget(self, proofs: Collection[str]) -> None:
        """Delete these proofs."""
        if proofs:
            self.execute(f"DELETE FROM {{proofs}} WHERE id IN ({places(proofs)})", [*proofs])

    def newest(self) -> int:
        """Return the newest epoch whose writers have begun, as of now."""
        found = self.execute("SELECT epoch FROM {proofs} WHERE id = %s", (self._context.store_id,)).fetchone()
        return int(found[0]) if found else 0

    # -- what writers ask for

    def begin(self, epoch: int) -> None:
        """Told of a run before its writers prepare anything."""
        self.make_newest(epoch)
        self._require_newest(epoch)
        self._forget_overtaken(epoch)

    def _forget_overtaken(self, epoch: int) -> None:
        """Deletes proofs of what was committed in part and then accepted by hand, once a later epoch of the dataset is
        committed: nobody asks for them any more, and no writer of their epoch comes."""
        proofs = self.proofs_before(epoch)
        rows = self.ledger() if proofs else ()
        committed = {(row.dataset_urn, row.branch): row.epoch for row in rows}
        self.forget([proof for proof, (key, of) in proofs.items() if of < committed.get(key, 0)])

    def prepare(self, attempt: AttemptIdentity, staged: Mapping[str, Any]) -> dict[str, Any]:
        """As `Preparing.prepare`.

        Raises:
            ConfigurationError: if the table does not take the rows.
            FencedError: if a newer run has begun.
            TransientError: if the database could not do it now.
        """
        asked = CommitRequest(attempt.dataset_urn, attempt.epoch, (dict(staged),), attempt.branch)
        name = Name(self._key_of(asked), attempt.epoch, attempt.attempt)
        try:
            (path, checksum), *_ = files_of(asked.infos)
            table = self._ready(asked, next(staged_batches(self._context, path, checksum)).schema)
            with self.preparing(name):
                self._write(attempt, asked, table)
        except RefusedError as error:
            raise _refused(asked, str(error)) from error
        except (DistcommitError, OSError):
            raise
        except Exception as error:
            raise TransientError(
                "the database could not prepare rows",
                dataset=attempt.dataset_urn,
                branch=attempt.branch,
                found=f"{type(error).__name__}: {error}",
                todo="nothing now: another attempt prepares them; if that goes on, mend the database",
            ) from error
        kept = {name: staged[name] for name in ("rows", "covered", "ledger")}
        return {"attempt": attempt.attempt, "table": table, **kept}

    def ready(self, request: CommitRequest, rows: pa.Schema) -> int:
        """Has the table there that the rows go to; its identity. It is made by a transaction of its own: one that is
        prepared would keep all others from it.

        Raises:
            CollisionError: if another one was in the way.
            RefusedError: as `Table` says.
        """
        key = (request.dataset_urn, request.branch)
        with self.transaction():
            found = self.locked([key])
            table = self._table(request, found.get(key), rows)
            self.unlocked([key] if key not in found else [])
        return table.identity

    def _ready(self, request: CommitRequest, rows: pa.Schema) -> int:
        for number in tries(_TRIES):
            try:
                return self.ready(request, rows)
            except CollisionError:
                if number == _TRIES:
                    raise
        raise AssertionError("unreachable")

    def _write(self, attempt: AttemptIdentity, asked: CommitRequest, identity: int) -> None:
        """The proof first, and only then a look whether a newer run has begun: whoever finds neither is in front."""
        if not self.prove(attempt, self._proof(attempt.attempt)):
            raise FencedError(
                "this attempt was given up: what it prepares would never be committed, or taken away",
                dataset=attempt.dataset_urn,
                attempt=attempt.attempt,
            )
        self._require_newest(attempt.epoch)
        try:
            with self.savepoint():
                self._fill(asked, identity)
        except (DistcommitError, RefusedError):
            raise
        except Exception as error:
            outcome = self.outcome_of(error)
            if isinstance(outcome, FailedForGood):
                raise _refused(asked, outcome.reason) from error
            raise

    def _fill(self, asked: CommitRequest, identity: int) -> None:
        table = self.find(self._settings.table_of(asked.dataset_urn), self._tags(asked))
        if table is None or table.identity != identity:
            raise TransientError("the table was dropped, or made again, just now", dataset=asked.dataset_urn)
        for path, checksum in files_of(asked.infos):
            for batches in staged_runs(self._context, path, checksum):
                table.fit(batches[0].schema, add_columns=False)
                table.copy(batches)

    def _require_newest(self, epoch: int) -> None:
        newest = self.newest()
        if newest > epoch:
            raise FencedError("a newer run writes to this database", expected=f"epoch {epoch}", found=f"epoch {newest}")

    # -- what committers do

    def load(self, request: CommitRequest, row: LedgerRow | None) -> None:
        """Commits what was prepared for a request, in the order of its infos."""
        waiting = self._waiting(request)
        self._targets[request.dataset_urn, request.branch] = (
            self.shown(self._settings.table_of(request.dataset_urn)),
            request.infos[-1]["table"],
        )
        for name in waiting:
            if not self.settle(name, commit=True) and not self.proven([self._proof(name.attempt)]):
                raise _lost(request, [name])
        self.forget([self._proof(name.attempt) for name in self._names(request)])

    def require(self, request: CommitRequest) -> None:
        self._waiting(request)

    def forgo(self, request: CommitRequest) -> None:
        """Rolls back what was prepared for a request, in the order in which it is committed: whoever still commits it
        finds the first one gone, and stops. Of one without infos, all of the dataset and branch up to its epoch."""
        names = self._names(request)
        visible = self.proven([self._proof(name.attempt) for name in names])
        if visible and not self._settings.takes_back:
            raise _visible(request)
        rows = 0
        for info, name in zip(request.infos, names, strict=True):
            if self.settle(name, commit=False):
                continue
            if self.proven([self._proof(name.attempt)]):
                rows += rows_of([info])
                if not self._settings.takes_back:
                    raise _visible(request)
        if rows:
            self.take_out(request, rows)
        self.forget([self._proof(name.attempt) for name in names])
        if not request.infos:
            key = self._key_of(request)
            for name in sorted(self.in_doubt()):
                if name.key == key and name.epoch <= request.epoch:
                    self.settle(name, commit=False)

    def allow(self, requests: Sequence[CommitRequest]) -> None:
        raise NotImplementedError(
            "what was prepared is rolled back as it is taken back, and can't be committed any more"
        )

    def discard(self, lost: Sequence[LostAttempt]) -> None:
        """One that can't be rolled back keeps none of the others from it. It holds its proof, so that it is not barred:
        that would wait for it."""
        attempts, held = {each.attempt for each in lost}, set[Name]()
        one_by_one = OneByOne("prepared transactions can't be rolled back", self.probe)
        for name in sorted(self.in_doubt()):
            if name.attempt in attempts:
                held.add(name)
                with one_by_one.to(name.text):
                    self.settle(name, commit=False)
                    held.remove(name)
        kept = {name.attempt for name in held}
        with self.transaction():
            self.bar({self._proof(each.attempt): each.epoch for each in lost if each.attempt not in kept})
        one_by_one.tell()

    # -- of a request

    def _names(self, request: CommitRequest) -> list[Name]:
        key = self._key_of(request)
        return [Name(key, request.epoch, info["attempt"]) for info in request.infos]

    def _waiting(self, request: CommitRequest) -> list[Name]:
        """What is prepared for a request and not committed. First it asks what is prepared, and then for proofs: so
        what somebody commits in between is proven.

        Raises:
            LostError: if some of it is neither.
        """
        names, there = self._names(request), self.in_doubt()
        proofs = self.proven([self._proof(name.attempt) for name in names])
        waiting = [name for name in names if self._proof(name.attempt) not in proofs]
        gone = [name for name in waiting if name not in there]
        if gone:
            raise _lost(request, gone)
        return waiting

    def _key_of(self, request: CommitRequest) -> str:
        named = "\0".join((self._context.store_id, request.branch, request.dataset_urn))
        return blake2b(named.encode(), digest_size=16).hexdigest()

    def _proof(self, attempt: str) -> str:
        """Of an attempt in this sink: where another branch goes to the same ledger, it is another sink."""
        return f"{attempt}-{blake2b(self._settings.name.encode(), digest_size=8).hexdigest()}"


def _lost(request: CommitRequest, gone: Sequence[Name]) -> LostError:
    return LostError(
        "prepared rows are neither there nor committed: somebody has rolled them back, or the database was put back"
        " from a copy",
        dataset=request.dataset_urn,
        epoch=request.epoch,
        expected=f"prepared: {', '.join(name.text for name in gone)}; or their proofs",
        found="neither",
        todo="release the dataset with abandon: the next run reads it again",
    )


def _visible(request: CommitRequest) -> ConflictError:
    return ConflictError(
        "what is committed to this table can't be taken back",
        dataset=request.dataset_urn,
        epoch=request.epoch,
        expected="nothing of it committed, or a sink with `tags: true`, so that its rows can be told",
        found="some of its prepared transactions are committed",
        todo="release the dataset with retry, or accept",
    )


def _refused(request: CommitRequest, why: str) -> ConfigurationError:
    return ConfigurationError(
        "the table does not take the rows",
        dataset=request.dataset_urn,
        branch=request.branch,
        found=why,
        todo="alter the table; or convert such records, or reject them by a row checker",
    )
