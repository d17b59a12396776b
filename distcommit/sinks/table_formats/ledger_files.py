"""The ledger of a table: a text that changes in one commit with the data.

The rows of a large ledger are in files, which the text names by SHA-256: a base, and at most 16 deltas with later rows.
The files are in the job's output, so removal of a table's orphan files keeps them. A file is deleted once a text that
does not name it is committed.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeVar

import msgspec

from distcommit.core.errors import CorruptError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.interfaces.ledger import LEDGER_VERSION, LedgerRow, check_json_version
from distcommit.core.support.decoding import from_json
from distcommit.protocol.paths.output import LEDGERS
from distcommit.sinks.base.file_names import ledger_file_name

Part = TypeVar("Part")
Key = tuple[str, str]
"""Dataset and branch."""
_INLINE_BYTES = 4096
_MOST_DELTAS = 16


class _LedgerRoot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The text of a ledger, which contains the rows or names the files with the rows.

    Attributes:
        version: format version of the ledger.
        rows: all rows, if they are in the text.
        base: name of a file with all rows at the time of its commit; empty if the text has the rows.
        deltas: names of files with rows that later commits changed, oldest first.
    """

    version: int = LEDGER_VERSION
    rows: tuple[LedgerRow, ...] = ()
    base: str = ""
    deltas: tuple[str, ...] = ()


class LedgerFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a ledger. A reader verifies that `table` and `store` are those of the ledger.

    Attributes:
        version: format version of the ledger.
        table: unique id of the table.
        store: id of the store whose job commits to the table.
        nonce: random text, so that no two files have the same name.
    """

    version: int = LEDGER_VERSION
    table: str
    store: str
    nonce: str


class _File(LedgerFile, frozen=True, kw_only=True):
    """A file with rows of a ledger.

    Attributes:
        rows: in a base all rows, in a delta the changed rows.
    """

    rows: tuple[LedgerRow, ...]


@dataclass(frozen=True, slots=True)
class Ledger:
    """A table's ledger.

    Attributes:
        rows: the rows by dataset and branch.
        files: names of the files that the rows were read from; empty if the text has the rows.
    """

    rows: Mapping[Key, LedgerRow]
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a ledger that is ready to commit.

    Attributes:
        text: the new text.
        put: name of the file that was written for the change; empty if none was necessary.
        superseded: names of the files that only the old text names.
    """

    text: str
    put: str = ""
    superseded: tuple[str, ...] = ()


class Ledgers:
    """The ledgers of a store's tables, and their changes."""

    def __init__(self, fs: FileSystem, output_root: str, store_id: str) -> None:
        self._fs, self._root, self._store = fs, output_root, store_id
        self._folder = f"{output_root}/{LEDGERS}"

    @property
    def name(self) -> str:
        return f"distcommit.{self._store}"

    def read(self, text: str | None, table_uuid: str) -> Ledger:
        """Return the ledger of a text; empty if `text` is None. Raises UnknownVersionError, CorruptError for an invalid
        text or a missing or damaged file, and OSError if a file can't be read now."""
        if text is None:
            return Ledger({})
        named = self.decoded(text, _LedgerRoot)
        if not named.base:
            return Ledger(_by_key(named.rows))
        rows: dict[Key, LedgerRow] = {}
        files = (named.base, *named.deltas)
        for name in files:
            rows.update(_by_key(self._read_file(name, table_uuid)))
        return Ledger(rows, files)

    def changed(self, ledger: Ledger, changed: Iterable[LedgerRow], table_uuid: str) -> Change:
        """Return the change of these rows, whose file is durable; the caller commits the text."""
        new = _by_key(changed)
        rows = {**ledger.rows, **new}
        inline = msgspec.json.encode(_LedgerRoot(rows=tuple(rows.values())))
        if len(inline) <= _INLINE_BYTES:
            return Change(inline.decode(), superseded=ledger.files)
        base, *deltas = ledger.files or ("",)
        if base and len(deltas) < _MOST_DELTAS:
            put = self._put(new, table_uuid)
            return Change(msgspec.json.encode(_LedgerRoot(base=base, deltas=(*deltas, put))).decode(), put)
        put = self._put(rows, table_uuid)
        return Change(msgspec.json.encode(_LedgerRoot(base=put)).decode(), put, ledger.files)

    def delete(self, names: Iterable[str]) -> None:
        """Delete files that no text will name again, ignoring errors."""
        for name in names:
            with contextlib.suppress(OSError):  # a file that stays costs a few bytes
                self._fs.delete(f"{self._folder}/{name}")

    def _put(self, rows: Mapping[Key, LedgerRow], table_uuid: str) -> str:
        data = msgspec.json.encode(
            _File(table=table_uuid, store=self._store, nonce=uuid.uuid4().hex, rows=tuple(rows.values()))
        )
        name = _name_of(data)
        self.put(name, data)
        return name

    def put(self, name: str, data: bytes) -> None:
        if self._fs.status(self._folder) is None:
            self._fs.make_folders(self._folder)
            self._fs.sync([self._folder], self._root)
        self._fs.put_if_absent(f"{self._folder}/{name}", data)

    def get(self, name: str) -> bytes:
        try:
            return self._fs.read(f"{self._folder}/{name}")
        except FileNotFoundError as error:
            raise self.corrupt(f"no file {self._folder}/{name}") from error

    def _read_file(self, name: str, table_uuid: str) -> tuple[LedgerRow, ...]:
        data = self.get(name)
        if name != _name_of(data):
            raise self.corrupt(f"other bytes in {self._folder}/{name}")
        file = self.decoded(data, _File, path=f"{self._folder}/{name}")
        if (file.table, file.store) != (table_uuid, self._store):
            raise self.corrupt(f"{self._folder}/{name} of the table {file.table} and the store {file.store}")
        return file.rows

    def decoded(self, data: bytes | str, kind: type[Part], **path: str) -> Part:
        """Decode a part; raises UnknownVersionError or CorruptError."""
        try:
            check_json_version(data, ledger=self.name, **path)
            return from_json(data, kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self.corrupt(f"{data[:80]!r}: {error}") from error

    def corrupt(self, actual: str) -> CorruptError:
        return CorruptError(
            "the table's commits are unknown: its ledger is damaged or gone",
            id="LEDGER_CORRUPT",
            ledger=self.name,
            expected="the ledger's text and files as they were written",
            found=actual,
            todo="restore the file from a copy of the output; if the table was restored from a copy, restore its newest"
            " version instead. Nothing was written",
        )


def _name_of(data: bytes) -> str:
    return ledger_file_name(sha256(data).hexdigest())


def _by_key(rows: Iterable[LedgerRow]) -> dict[Key, LedgerRow]:
    return {(row.dataset_urn, row.branch): row for row in rows}
