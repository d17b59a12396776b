"""Two-phase commit of PostgreSQL.

psycopg's methods `tpc_*` are not used: they ignore that PREPARE may roll back, and their rollback may end another
transaction of the same name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import psycopg
from psycopg import sql

from distcommit.core.errors import ConfigurationError, TransientError
from distcommit.core.interfaces.committer import CommitterContext
from distcommit.core.interfaces.sink import AttemptIdentity
from distcommit.sinks.databases.connection_pool import Lease
from distcommit.sinks.databases.two_phase_commit.prepared_transactions import Name, TwoPhaseCommitter
from distcommit.sinks.postgresql.committer import PostgresqlCommitter
from distcommit.sinks.postgresql.sessions import manual_transaction
from distcommit.sinks.postgresql.settings import PostgresqlSettings

_CREATED = """
CREATE TABLE IF NOT EXISTS {proofs} (
    id text PRIMARY KEY, store text NOT NULL, what text NOT NULL, epoch bigint NOT NULL, dataset text, branch text,
    changed_at timestamptz NOT NULL DEFAULT now())
"""
_TODO = "set max_prepared_transactions above the number of work units that all jobs read at a time, and restart it"


class TwoPhasePostgresql(TwoPhaseCommitter, PostgresqlCommitter):
    """Two-phase committer to PostgreSQL."""

    def __init__(self, leased: Lease, settings: PostgresqlSettings, context: CommitterContext) -> None:
        super().__init__(leased, settings, context)
        self.create_missing("proofs", _CREATED)

    def begin(self, epoch: int) -> None:
        require_prepared(self._connection)
        super().begin(epoch)

    def in_doubt(self) -> frozenset[Name]:
        rows = self.execute("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()").fetchall()
        return frozenset(name for (gid,) in rows if (name := Name.parsed(gid)) is not None)

    def end_prepared(self, name: Name, *, commit: bool) -> bool:
        statement = sql.SQL("COMMIT PREPARED {}" if commit else "ROLLBACK PREPARED {}")
        try:
            self.second().connection.execute(statement.format(sql.Literal(name.text)))
        except psycopg.errors.UndefinedObject:
            return False
        except BaseException:
            self.close_second()
            raise
        return True

    def prepared_transaction(self, name: Name) -> AbstractContextManager[object]:
        return _prepared_transaction(self._connection, name)

    def prove(self, attempt: AttemptIdentity, proof: str) -> bool:
        of = (proof, self._context.store_id, attempt.epoch, attempt.dataset_urn, attempt.branch)
        inserted = self.execute(
            "INSERT INTO {proofs} (id, store, what, epoch, dataset, branch) VALUES (%s, %s, 'proof', %s, %s, %s)"
            " ON CONFLICT DO NOTHING",
            of,
        )
        return inserted.rowcount == 1

    def bar(self, aborted_epochs: Mapping[str, int]) -> None:
        self.execute(
            "INSERT INTO {proofs} (id, store, what, epoch)"
            " SELECT p, %s, 'barred', e FROM unnest(%s::text[], %s::bigint[]) AS lost (p, e) ORDER BY p"
            " ON CONFLICT DO NOTHING",
            (self._context.store_id, [*aborted_epochs], [*aborted_epochs.values()]),
        )

    def make_newest(self, epoch: int) -> None:
        store = self._context.store_id
        with self.transaction():
            self.execute(
                "INSERT INTO {proofs} AS there (id, store, what, epoch) VALUES (%s, %s, 'newest', %s)"
                " ON CONFLICT (id) DO UPDATE SET epoch = EXCLUDED.epoch WHERE there.epoch < EXCLUDED.epoch",
                (store, store, epoch),
            )
            self.execute("DELETE FROM {proofs} WHERE store = %s AND what = 'barred' AND epoch < %s", (store, epoch))


def require_prepared(connection: psycopg.Connection) -> None:
    """Raise ConfigurationError if the server does not allow prepared transactions."""
    (most,) = connection.execute("SELECT current_setting('max_prepared_transactions')::int").fetchone() or (0,)
    if not most:
        raise ConfigurationError(
            "the server does not allow prepared transactions",
            id="TARGET_SETUP_INVALID",
            expected="max_prepared_transactions above 0",
            found=str(most),
            todo=f"{_TODO}; or leave out `two_phase`",
        )


@contextmanager
def _prepared_transaction(connection: psycopg.Connection, name: Name) -> Iterator[None]:
    """Prepare the transaction on normal exit; raises TransientError if the server has rolled it back."""
    with manual_transaction(connection):
        yield
        try:
            tag = connection.execute(sql.SQL("PREPARE TRANSACTION {}").format(sql.Literal(name.text))).statusmessage
        except psycopg.errors.OutOfMemory as error:  # there is no free slot for a prepared transaction
            raise TransientError(
                "the server has prepared as many transactions as it can",
                id="TARGET_UNAVAILABLE",
                found=str(error),
                todo=_TODO,
            ) from error
    if tag != "PREPARE TRANSACTION":
        raise TransientError(
            "PostgreSQL rolled the transaction back instead of preparing it",
            id="TARGET_UNAVAILABLE",
            transaction=name.text,
            epoch=name.epoch,
            expected="the answer PREPARE TRANSACTION",
            found=str(tag),
            todo="run again: the rows are inserted again. If the error persists, find the failed statement in the"
            " server's log",
        )
