"""Two-phase commit of MariaDB by XA.

A prepared transaction belongs to its session until the server has ended the session. Until then, another session's XA
COMMIT fails with "unknown XID". A prepared transaction prevents ALTER and DROP of its table, also after a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import pyarrow as pa
from pymysql.connections import Connection
from pymysql.cursors import Cursor
from pymysql.err import MySQLError

from distcommit.core.errors import TransientError
from distcommit.core.interfaces.committer import CommitOutcome, CommitRequest, CommitterContext, RetryLater
from distcommit.core.interfaces.sink import AttemptIdentity
from distcommit.sinks.base.retries import tries
from distcommit.sinks.databases.connection_pool import Lease
from distcommit.sinks.databases.server_sink import ServerSink
from distcommit.sinks.databases.table_committer import PROOFS
from distcommit.sinks.databases.two_phase_commit.prepared_transactions import Name, TwoPhaseCommitter
from distcommit.sinks.mariadb.committer import MariadbCommitter
from distcommit.sinks.mariadb.sessions import code_of, execute
from distcommit.sinks.mariadb.table_writes import AlterTableFirst

_CREATED = """
CREATE TABLE IF NOT EXISTS {proofs} (
    id varchar(255) PRIMARY KEY, store varchar(255) NOT NULL, what varchar(16) NOT NULL, epoch bigint NOT NULL,
    dataset text, branch text, changed_at datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6))
ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
"""
_UNKNOWN_XID, _DUPLICATE_KEY = 1397, 1062
_FORMAT = 1


class XaMariadb(TwoPhaseCommitter, MariadbCommitter):
    """Two-phase committer to MariaDB."""

    def __init__(self, leased: Lease, settings: ServerSink, context: CommitterContext) -> None:
        super().__init__(leased, settings, context)
        self.create_missing(PROOFS, _CREATED)

    def ready(self, request: CommitRequest, rows: pa.Schema) -> int:
        """Return the table's identity. A missing table is created after the transaction, because CREATE would end
        it."""
        try:
            return super().ready(request, rows)
        except AlterTableFirst as error:
            execute(self._connection, error.statement)
        return super().ready(request, rows)

    def in_doubt(self) -> frozenset[Name]:
        rows = execute(self._connection, "XA RECOVER").fetchall()
        names = (_name(begin, data) for kind, begin, _, data in rows if kind == _FORMAT)
        return frozenset(name for name in names if name is not None)

    def end_prepared(self, name: Name, *, commit: bool) -> bool:
        for _ in tries():  # until the server has ended the writer's session
            try:
                execute(self.second().connection, f"XA {'COMMIT' if commit else 'ROLLBACK'} {_xid(name)}")
            except BaseException as error:
                if not isinstance(error, MySQLError) or code_of(error) != _UNKNOWN_XID:
                    self.close_second()
                    raise
            else:
                return True
            if name not in self.in_doubt():
                return False
        raise TransientError(
            "the session that has prepared a transaction does not end",
            id="TARGET_UNAVAILABLE",
            found=name.text,
            todo="end the writer's session at the server (KILL), or wait until the server does",
        )

    def prepared_transaction(self, name: Name) -> AbstractContextManager[object]:
        self.is_reusable = False  # other sessions can commit the transaction once this one has ended
        return _prepared_transaction(self._connection, name)

    def prove(self, attempt: AttemptIdentity, proof: str) -> bool:
        of = (proof, self._context.store_id, attempt.epoch, attempt.dataset_urn, attempt.branch)
        inserted = "INSERT INTO {proofs} (id, store, what, epoch, dataset, branch) VALUES (%s, %s, 'proof', %s, %s, %s)"
        try:
            self.execute(inserted, of)
        except MySQLError as error:
            if code_of(error) != _DUPLICATE_KEY:
                raise
            return False
        return True

    def bar(self, aborted_epochs: Mapping[str, int]) -> None:
        for proof, epoch in sorted(aborted_epochs.items()):
            self.execute(
                "INSERT IGNORE INTO {proofs} (id, store, what, epoch) VALUES (%s, %s, 'barred', %s)",
                (proof, self._context.store_id, epoch),
            )

    def make_newest(self, epoch: int) -> None:
        store = self._context.store_id
        with self.transaction():
            self.execute(
                "INSERT INTO {proofs} (id, store, what, epoch) VALUES (%s, %s, 'newest', %s)"
                " ON DUPLICATE KEY UPDATE epoch = GREATEST(epoch, %s)",
                (store, store, epoch, epoch),
            )
        # Deleting by this condition would wait for locks of other rows.
        statement = "SELECT id FROM {proofs} WHERE store = %s AND what = 'barred' AND epoch < %s"
        self.delete_proofs([proof for (proof,) in self.execute(statement, (store, epoch)).fetchall()])

    def outcome_of(self, error: Exception) -> CommitOutcome | None:
        return RetryLater(str(error)) if isinstance(error, TransientError) else super().outcome_of(error)


@contextmanager
def _prepared_transaction(connection: Connection[Cursor], name: Name) -> Iterator[None]:
    """Prepare the transaction on normal exit. Afterwards the session can only be closed. Closing rolls back an
    unprepared transaction, and lets other sessions end a prepared one."""
    execute(connection, f"XA START {_xid(name)}")
    yield
    execute(connection, f"XA END {_xid(name)}")
    execute(connection, f"XA PREPARE {_xid(name)}")


def _xid(name: Name) -> str:
    return f"X'{name.begin.encode().hex()}', X'{name.end.encode().hex()}', {_FORMAT}"


def _name(begin: int, data: str | bytes) -> Name | None:
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    return Name.parsed(f"{text[:begin]}-{text[begin:]}")
