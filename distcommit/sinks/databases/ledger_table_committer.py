"""Base class of committers whose ledger is a table in the target database.

Its SQL has `%s` for values; subclasses replace `{ledger}` and `{proofs}`.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Protocol

import msgspec

from distcommit.core.errors import TransientError
from distcommit.core.interfaces.committer import CommitOutcome, RetryLater
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.sinks.databases.row_loading_committer import LEDGER_COLUMNS, RowLoadingCommitter, as_row
from distcommit.sinks.databases.table_committer import Key
from distcommit.sinks.databases.table_sink import tag_of

_PROBED_BYTES = 32_768


class Cursor(Protocol):
    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> Iterable[Any]: ...


class _UndoneError(Exception):
    """Rolls back the transaction of a probe."""


class LedgerTableCommitter(RowLoadingCommitter):
    """Committer whose ledger has one row for each store, dataset and branch. A row with an empty store has the ledger's
    identity.

    Attributes:
        driver_error: base class of the driver's errors.
        identity_column: ledger column with the identity of a commit's table.
        now: SQL expression for the present time.
        row_columns: ledger columns that identify a row.
        row_condition: SQL condition that selects one ledger row, with placeholders for `row_values`.
    """

    driver_error: ClassVar[type[Exception]]
    identity_column: ClassVar[str] = "target_mark"
    now: ClassVar[str]
    row_columns: ClassVar[str] = "store, dataset, branch"
    row_condition: ClassVar[str] = "store = %s AND dataset = %s AND branch = %s"

    # -- the database

    @abstractmethod
    def execute(self, statement: str, values: Sequence[Any] = ()) -> Cursor: ...

    @abstractmethod
    def outcome_of_rows(self, error: Any) -> CommitOutcome | None:
        """Return the outcome of a request whose rows caused this error; None if the error concerns other requests,
        too."""

    @abstractmethod
    def count_rows(self, table: str, tag: int) -> int: ...

    def row_values(self, store: str, key: Key) -> tuple[Any, ...]:
        return (store, *key)

    def row_inserted(self, store: str, key: Key) -> tuple[Any, ...]:
        return (store, *key)

    def as_json(self, covered: Any) -> Any:
        return msgspec.json.encode(covered).decode()

    # -- the ledger

    def identity(self) -> str:
        statement = f"SELECT commit_id FROM {{ledger}} WHERE {self.row_condition}"
        row = self.execute(statement, self.row_values("", ("", ""))).fetchone()
        return "" if row is None else str(row[0])

    def take_rows(self, sequences: Iterable[Sequence[Any]]) -> dict[Key, LedgerRow]:
        """Return locked ledger rows, and remember their tables. Each sequence has the values of `LEDGER_COLUMNS`, the
        table's name, and `identity_column`."""
        rows: dict[Key, LedgerRow] = {}
        self._targets.clear()
        for row in sequences:
            key, target, identity = (row[0], row[1]), row[7], row[8]
            is_forgotten = (identity if self.forgotten == self.identity_column else target) is None
            self._targets[key] = (target, None if is_forgotten else identity or 0)
            if row[2] or row[4]:
                rows[key] = as_row(row)
        return rows

    def record(self, row: LedgerRow) -> None:
        key = (row.dataset_urn, row.branch)
        written = self.execute(
            "UPDATE {ledger} SET epoch = %s, base = %s, revoked = %s, commit_id = %s, covered = %s, target = %s,"
            f" {self.identity_column} = %s, tag = %s, changed_at = {self.now} WHERE {self.row_condition}",
            (*self.recorded(row), *self.row_values(self._context.store_id, key)),
        ).rowcount
        if written != 1:  # another client has deleted the row, whose transaction the lock had waited for
            raise TransientError(
                "a row of the ledger was not written", id="TARGET_UNAVAILABLE", dataset=key[0], found=f"{written} rows"
            )

    def recorded(self, row: LedgerRow) -> tuple[Any, ...]:
        key = (row.dataset_urn, row.branch)
        target, identity = self._targets.get(key, (None, None))
        commit = (row.epoch, row.base, row.revoked, row.commit_id, self.as_json(row.covered))
        return (*commit, target, identity, tag_of(self._context.store_id, *key))

    def ledger(self) -> Iterator[LedgerRow]:
        statement = f"SELECT {LEDGER_COLUMNS} FROM {{ledger}} WHERE store = %s AND (epoch > 0 OR revoked > 0)"
        return map(as_row, self.execute(statement, (self._context.store_id,)).fetchall())

    def had_commits(self, target: str) -> bool:
        condition = f"target = %s AND epoch > 0 AND {self.forgotten} IS NOT NULL"
        (rows,) = self.execute(f"SELECT count(*) FROM {{ledger}} WHERE {condition}", (target,)).fetchone()
        return bool(rows)

    def has_commits_of_others(self, target: str, tag: int) -> bool:
        condition = f"target = %s AND tag <> %s AND epoch > 0 AND {self.forgotten} IS NOT NULL"
        (rows,) = self.execute(f"SELECT count(*) FROM {{ledger}} WHERE {condition}", (target, tag)).fetchone()
        return bool(rows)

    def visible_rows(self, dataset_urn: str, branch: str) -> int | None:
        if not self._settings.takes_back:
            return None
        tag = tag_of(self._context.store_id, dataset_urn, branch)
        return self.count_rows(self._settings.table_of(dataset_urn), tag)

    def outcome_of(self, error: Exception) -> CommitOutcome | None:
        if isinstance(error, self.driver_error):
            return self.outcome_of_rows(error)
        return RetryLater(f"{type(error).__name__}: {error}") if isinstance(error, OSError) else None

    def probe(self) -> None:
        """Insert a large ledger row and roll back, to detect a full disk."""
        row = self.row_inserted("", (uuid.uuid4().hex, ""))
        with contextlib.suppress(_UndoneError), self.transaction():
            self.execute(
                f"INSERT INTO {{ledger}} ({self.row_columns}, covered) VALUES ({placeholders(row)}, %s)",
                (*row, self.as_json(os.urandom(_PROBED_BYTES).hex())),
            )
            raise _UndoneError


def placeholders(values: Collection[Any]) -> str:
    return ", ".join(["%s"] * len(values))
