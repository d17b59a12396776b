"""Proofs of two-phase commit: rows that prepared transactions insert, which are visible once the transactions are
committed.

The column `what` of the table of proofs is one of:

- `proof`: its transaction is committed.
- `barred`: inserted by `abort` under the id of an aborted attempt's proof, so that the proof can't be inserted.
- `newest`: one row for each store, with the newest epoch whose writers have begun. Writers of older epochs are fenced.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping

from distcommit.core.interfaces.sink import AttemptIdentity
from distcommit.sinks.databases.ledger_table_committer import LedgerTableCommitter, placeholders
from distcommit.sinks.databases.table_committer import Key


class ProofCommitter(LedgerTableCommitter):
    @abstractmethod
    def prove(self, attempt: AttemptIdentity, proof: str) -> bool:
        """Insert the proof of an attempt. Return False if `bar` has taken its id. If another session is inserting it,
        wait for that transaction."""

    @abstractmethod
    def bar(self, aborted_epochs: Mapping[str, int]) -> None:
        """Insert rows with the proof ids of aborted attempts, so that the attempts can't insert their proofs any more.
        `aborted_epochs` has epochs by proof id. If another session is inserting an id, wait for the end of that
        transaction."""

    @abstractmethod
    def make_newest(self, epoch: int) -> None:
        """Raise `newest` to at least this epoch, and delete `barred` rows of older epochs."""

    # -- proofs

    def proven(self, proofs: Collection[str]) -> set[str]:
        if not proofs:
            return set()
        statement = f"SELECT id FROM {{proofs}} WHERE what = 'proof' AND id IN ({placeholders(proofs)})"
        return {proof for (proof,) in self.execute(statement, [*proofs]).fetchall()}

    def proofs_before(self, epoch: int) -> dict[str, tuple[Key, int]]:
        """Return this store's proofs of older epochs: key and epoch by id."""
        rows = self.execute(
            "SELECT id, dataset, branch, epoch FROM {proofs} WHERE store = %s AND what = 'proof' AND epoch < %s",
            (self._context.store_id, epoch),
        )
        return {proof: ((dataset, branch), of) for proof, dataset, branch, of in rows.fetchall()}

    def delete_proofs(self, proofs: Collection[str]) -> None:
        if proofs:
            self.execute(f"DELETE FROM {{proofs}} WHERE id IN ({placeholders(proofs)})", [*proofs])

    def newest(self) -> int:
        row = self.execute("SELECT epoch FROM {proofs} WHERE id = %s", (self._context.store_id,)).fetchone()
        return int(row[0]) if row else 0
