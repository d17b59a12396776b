"""A table's ledger: what of a store's datasets is committed to it, as a text that changes in one commit with the data.

A small ledger is in the text; a larger one is in files of the job's output, which the text names by their SHA-256: a
base, and at most 16 deltas that rows of later commits came with. Not in the table's folder, from which removing orphan
files would take them. Where the text is, the sink says: in a property of an Iceberg table, in a file that a Delta
table's transaction names. Files that no text names any more are deleted once the commit that took their place is known
to be done; one that is named and gone is never guessed.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

import msgspec

from distcommit.core.errors import CorruptError
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.ports import FileSystem
from distcommit.decoding import from_json
from distcommit.protocol.paths.output import LEDGERS
from distcommit.sinks.base.target_files import ledger_file_name

Key = tuple[str, str]
"""A dataset and a branch."""
_VERSION = 1
_INLINE_BYTES = 4096
_MOST_DELTAS = 16


class _Named(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The text: the rows, or the names of the files that they are in."""

    version: int = _VERSION
    rows: tuple[LedgerRow, ...] = ()
    base: str = ""
    deltas: tuple[str, ...] = ()


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """Rows as a file. `nonce`: so that no two files have a name, and none comes back that was deleted."""

    version: int = _VERSION
    table: str
    store: str
    nonce: str
    rows: tuple[LedgerRow, ...]


@dataclass(frozen=True, slots=True)
class Ledger:
    """As a table's text has it.

    Attributes:
        rows: by dataset and branch.
        files: what the text names.
    """

    rows: Mapping[Key, LedgerRow]
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """What the text becomes. `put`: the file that was put for it; `superseded`: those that it names no more."""

    text: str
    put: str = ""
    superseded: tuple[str, ...] = ()


class Ledgers:
    """The ledgers that tables keep for one store.

    Args:
        fs: of the job's output.
        output_root: the job's output.
        store_id: the store's.
    """

    def __init__(self, fs: FileSystem, output_root: str, store_id: str) -> None:
        self._fs, self._root, self._store = fs, output_root, store_id
        self._folder = f"{output_root}/{LEDGERS}"

    @property
    def name(self) -> str:
        """What this store's ledger is called at a table."""
        return f"distcommit.{self._store}"

    def read(self, text: str | None, table_uuid: str) -> Ledger:
        """The ledger of a table whose text is this; None: it has none.

        Raises:
            CorruptError: if a file that it names is gone or another one, or the text is not one of ours.
            OSError: if a file can't be read now.
        """
        if text is None:
            return Ledger({})
        try:
            named = from_json(text, _Named)
        except msgspec.MsgspecError as error:
            raise self.corrupt(f"{text[:80]!r}: {error}") from error
        if named.version != _VERSION:
            raise self.corrupt(f"format version {named.version}")
        if not named.base:
            return Ledger(_by_key(named.rows))
        rows: dict[Key, LedgerRow] = {}
        files = (named.base, *named.deltas)
        for name in files:
            rows.update(_by_key(self._read_file(name, table_uuid)))
        return Ledger(rows, files)

    def changed(self, ledger: Ledger, changed: Iterable[LedgerRow], table_uuid: str) -> Change:
        """The ledger with these rows in place of those that it has, durable as far as it is in files."""
        new = _by_key(changed)
        rows = {**ledger.rows, **new}
        inline = msgspec.json.encode(_Named(rows=tuple(rows.values())))
        if len(inline) <= _INLINE_BYTES:
            return Change(inline.decode(), superseded=ledger.files)
        base, *deltas = ledger.files or ("",)
        if base and len(deltas) < _MOST_DELTAS:
            put = self._put(new, table_uuid)
            return Change(msgspec.json.encode(_Named(base=base, deltas=(*deltas, put))).decode(), put)
        put = self._put(rows, table_uuid)
        return Change(msgspec.json.encode(_Named(base=put)).decode(), put, ledger.files)

    def delete(self, names: Iterable[str]) -> None:
        """Deletes files that no text names, and none will."""
        for name in names:
            with contextlib.suppress(OSError):  # it costs a few bytes
                self._fs.delete(f"{self._folder}/{name}")

    def _put(self, rows: Mapping[Key, LedgerRow], table_uuid: str) -> str:
        data = msgspec.json.encode(
            _File(table=table_uuid, store=self._store, nonce=uuid.uuid4().hex, rows=tuple(rows.values()))
        )
        name = _name_of(data)
        self.put(name, data)
        return name

    def put(self, name: str, data: bytes) -> None:
        """Puts a file beside those of the ledgers, durably."""
        if self._fs.status(self._folder) is None:
            self._fs.make_folders(self._folder)
            self._fs.sync([self._folder], self._root)
        self._fs.put_if_absent(f"{self._folder}/{name}", data)

    def get(self, name: str) -> bytes:
        """Its bytes.

        Raises:
            CorruptError: if there is none.
            OSError: if it can't be read now.
        """
        try:
            return self._fs.read(f"{self._folder}/{name}")
        except FileNotFoundError as error:
            raise self.corrupt(f"no file {self._folder}/{name}") from error

    def _read_file(self, name: str, table_uuid: str) -> tuple[LedgerRow, ...]:
        data = self.get(name)
        if name != _name_of(data):
            raise self.corrupt(f"other bytes in {self._folder}/{name}")
        found = from_json(data, _File)
        if (found.table, found.store) != (table_uuid, self._store):
            raise self.corrupt(f"{self._folder}/{name} of the table {found.table} and the store {found.store}")
        return found.rows

    def corrupt(self, found: str) -> CorruptError:
        """The error that says so."""
        return CorruptError(
            "what is committed to the table can't be told: its ledger is damaged or gone",
            ledger=self.name,
            expected="what the table says, and the files that it names, as they were written",
            found=found,
            todo="restore the file from a copy of the output, or, if the table was put back from a copy, the newest"
            " one; nothing was written",
        )


def _name_of(data: bytes) -> str:
    return ledger_file_name(sha256(data).hexdigest())


def _by_key(rows: Iterable[LedgerRow]) -> dict[Key, LedgerRow]:
    return {(row.dataset_urn, row.branch): row for row in rows}
