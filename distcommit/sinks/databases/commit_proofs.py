"""The table of proofs of two-phase commit: rows that prepared transactions insert, which exist once they are committed.

The column `what` of the table of proofs is one of:

- `proof`: a transaction that is committed.
- `barred`: inserted by `discard` with the key of an aborted attempt's proof, which therefore can't be inserted any
  more.
- `newest`: one row for each store; its epoch is the newest whose writers have begun. Writers of older epochs are
  fenced.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping

from distcommit.core.interfaces.sink import AttemptIdentity
from distcommit.sinks.databases.sql_committer import SqlCommitter, placeholders
from distcommit.sinks.databases.table_committer import Key


class ProofCommitter(SqlCommitter):
    """Reads and changes proofs on the connection that has the ledger."""

    @abstractmethod
    def prove(self, attempt: AttemptIdentity, proof: str) -> bool:
        """Insert a proof, after any other session that is inserting the same one; False if it exists."""

    @abstractmethod
    def bar(self, aborted_epochs: Mapping[str, int]) -> None:
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
        statement = f"SELECT id FROM {{proofs}} WHERE what = 'proof' AND id IN ({placeholders(proofs)})"
        return {proof for (proof,) in self.execute(statement, [*proofs]).fetchall()}

    def proofs_before(self, epoch: int) -> dict[str, tuple[Key, int]]:
        """Return this store's proofs of older epochs, each with its dataset and branch, and its epoch."""
        rows = self.execute(
            "SELECT id, dataset, branch, epoch FROM {proofs} WHERE store = %s AND what = 'proof' AND epoch < %s",
            (self._context.store_id, epoch),
        )
        return {proof: ((dataset, branch), of) for proof, dataset, branch, of in rows.fetchall()}

    def forget(self, proofs: Collection[str]) -> None:
        """Delete these proofs."""
        if proofs:
            self.execute(f"DELETE FROM {{proofs}} WHERE id IN ({placeholders(proofs)})", [*proofs])

    def newest(self) -> int:
        """Return the newest epoch whose writers have begun, as of now."""
        row = self.execute("SELECT epoch FROM {proofs} WHERE id = %s", (self._context.store_id,)).fetchone()
        return int(row[0]) if row else 0
