"""Interface of a table format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Generic, TypeVar

from distcommit.core.interfaces.committer import AbortedAttempt, CommitRequest
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.sinks.table_formats.ledger_files import Ledger

NameT = TypeVar("NameT", bound="str | tuple[str, ...]")
TableT = TypeVar("TableT")


class TableAccess(ABC, Generic[NameT, TableT]):
    """The tables of one format; a `TableT` is a loaded version."""

    @abstractmethod
    def name_in(self, info: Mapping[str, Any]) -> NameT: ...

    @abstractmethod
    def name_for(self, dataset_urn: str) -> NameT: ...

    @abstractmethod
    def load(self, name: NameT) -> TableT | None: ...

    @abstractmethod
    def has_changed(self, name: NameT, table: TableT) -> bool:
        """Return whether the table was dropped or has a newer version. If so, a missing ledger file may have been
        replaced; otherwise it is corruption."""

    @abstractmethod
    def table_id(self, table: TableT) -> str:
        """Return an id that changes if the table is recreated."""

    @abstractmethod
    def read_ledger(self, table: TableT) -> Ledger: ...

    @abstractmethod
    def has_ledger(self, table: TableT) -> bool: ...

    @abstractmethod
    def has_rows(self, table: TableT) -> bool: ...

    @abstractmethod
    def count(self, table: TableT) -> int: ...

    @abstractmethod
    def live_files(self, table: TableT, paths: AbstractSet[str]) -> set[str]:
        """Return the paths that this version has."""

    @abstractmethod
    def missing_files(self, table: TableT, request: CommitRequest) -> Sequence[str]:
        """Return the request's data files that are missing or were replaced."""

    @abstractmethod
    def alterations(self, table: TableT, request: CommitRequest) -> Iterator[str]:
        """Yield later changes of the table that would hide values of the request's files from readers."""

    @abstractmethod
    def tables(self) -> Iterable[tuple[NameT, Callable[[], TableT | None]]]:
        """Return all tables that may have a ledger, each with its loader."""

    @abstractmethod
    def orphaned_files(self, aborted: Sequence[AbortedAttempt]) -> Mapping[NameT, Mapping[str, int]]:
        """Return aborted attempts' data files by table, each with the table's sequence number when the file was created
        (0 if unknown)."""

    @abstractmethod
    def existing(self, paths: Iterable[str]) -> set[str]: ...

    @abstractmethod
    def needed(self, name: NameT, table: TableT, files: Mapping[str, int]) -> set[str]:
        """Return and log `files` that a version of the table has. `files` have the sequence numbers of
        `orphaned_files`."""

    @abstractmethod
    def delete(self, paths: Iterable[str], table: TableT | None) -> None:
        """Delete data files that exist, and parts of unfinished uploads."""

    @abstractmethod
    def put(
        self,
        name: NameT,
        table: TableT,
        ledger: Ledger,
        rows: Sequence[LedgerRow],
        removed: Sequence[Mapping[str, Any]],
        trace: Mapping[str, str],
    ) -> bool:
        """Change ledger rows and remove data files durably, on the version that was loaded. `trace` are properties for
        operators. Return False, without any change, if another writer was first. Raises ConflictError if a data file
        can't be removed."""

    def make_durable(self, name: NameT) -> None:
        """Make the present version durable, because another process may not have synced it."""
