"""A Delta table's ledger. For each store, an app transaction (name and number) of the table names the file with the
ledger's text. The transaction outlives old log entries, and, unlike a property, can be set in one commit with data. Its
number is the beginning of the file's SHA-256.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

import msgspec
from deltalake import DeltaTable

from distcommit.core.interfaces.committer import CommitterContext
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.sinks.base.file_names import ledger_text_name
from distcommit.sinks.delta.tables import table_id
from distcommit.sinks.table_formats.ledger_files import Ledger, LedgerFile, Ledgers


class _File(LedgerFile, frozen=True, kw_only=True):
    """The file that a transaction names.

    Attributes:
        text: text of the ledger, which `Ledgers.read` decodes.
    """

    text: str


@dataclass(frozen=True, slots=True)
class LedgerChange:
    """A change of a ledger that is ready to commit.

    Attributes:
        transaction: name and number of the app transaction.
        put: files that were written for the change.
        superseded: files that become unused by the change.
    """

    transaction: tuple[str, int]
    put: tuple[str, ...]
    superseded: tuple[str, ...]


class TableLedgers:
    def __init__(self, context: CommitterContext) -> None:
        self._files = Ledgers(context.fs, context.output_root, context.store_id)
        self._store = context.store_id

    def is_in(self, table: DeltaTable) -> bool:
        return table.transaction_version(self._files.name) is not None

    def read(self, table: DeltaTable) -> Ledger:
        """Return the ledger of the loaded version. Its `files` begin with the file that the transaction names. Raises
        UnknownVersionError, CorruptError for a missing or damaged file, and OSError if a file can't be read now."""
        number = table.transaction_version(self._files.name)
        if number is None:
            return Ledger({})
        name, identity = ledger_text_name(number), table_id(table)
        data = self._files.get(name)
        if _number_of(data) != number:
            raise self._files.corrupt(f"other bytes in {name}")
        file = self._files.decoded(data, _File, path=name)
        if (file.table, file.store) != (identity, self._store):
            raise self._files.corrupt(f"{name} of the table {file.table} and the store {file.store}")
        ledger = self._files.read(file.text, identity)
        return Ledger(ledger.rows, (name, *ledger.files))

    def changed(self, ledger: Ledger, rows: Iterable[LedgerRow], table: DeltaTable) -> LedgerChange:
        """Return the change of these rows, whose files are durable; the caller commits it."""
        own, below = ledger.files[:1], ledger.files[1:]
        change = self._files.changed(Ledger(ledger.rows, below), rows, table_id(table))
        data = msgspec.json.encode(
            _File(table=table_id(table), store=self._store, nonce=uuid.uuid4().hex, text=change.text)
        )
        number = _number_of(data)
        self._files.put(ledger_text_name(number), data)
        put = (ledger_text_name(number), *filter(None, [change.put]))
        return LedgerChange((self._files.name, number), put, (*own, *change.superseded))

    def delete(self, names: Iterable[str]) -> None:
        self._files.delete(names)


def _number_of(data: bytes) -> int:
    return int.from_bytes(sha256(data).digest()[:8], "big") >> 1
