"""Catalogs: where tables' pointers are, of many tables at a time.

A catalog of a database is asked by one query for many tables, and moves all their pointers in one transaction, each by
compare-and-set. A REST catalog is asked for each table, for many of them at once, and gets many changes in one request
if it makes all of them or none.
"""

from __future__ import annotations

import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import ClassVar

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate

from distcommit.core.support.parallel import in_flight
from distcommit.protocol.paths.temporary import table_probe_name
from distcommit.sinks.table_formats.data_files import PROBE_BYTES, local_path, probe_folder

Identifier = tuple[str, ...]
_REMOTE_CALLS = 32


@dataclass(frozen=True, slots=True)
class Change:
    """What is to become of a table as it was loaded: `requirements` say again, for a catalog that checks them, what the
    comparison of the pointer says."""

    table: Table
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table that is to be made, and what of."""

    name: Identifier
    schema: Schema
    spec: PartitionSpec
    order: SortOrder
    properties: Mapping[str, str]


class Tables(ABC):
    """The tables of a catalog. Shared by the threads of a process; not by processes, so not across a fork."""

    lends_credentials: ClassVar[bool] = False
    """Whether the catalog may give each table credentials of its own for where its files are."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    @property
    def parallel_calls(self) -> int:
        """How many calls to where tables' files are, are worth having in flight at once."""
        warehouse = self.catalog.properties.get("warehouse", "")
        return 1 if local_path(warehouse) else _REMOTE_CALLS

    def load(self, names: Sequence[Identifier]) -> dict[Identifier, Table]:
        """Those of the tables that there are, as they are now."""
        return {name: readable(table) for name, table in self.read(names).items()}

    @abstractmethod
    def read(self, names: Sequence[Identifier]) -> dict[Identifier, Table | Exception]:
        """As `load`, with the error in the place of a table that alone can't be read."""

    @abstractmethod
    def commit(self, changes: Sequence[Change], sync: Callable[[], None]) -> list[bool]:
        """Makes the changes: for each whether it was made, and not if the table had changed meanwhile.

        Args:
            changes: at most one for each table.
            sync: called when all new files are written, before any pointer moves.

        Raises:
            Exception: it is not known which were made.
        """

    @abstractmethod
    def create(self, wanted: Sequence[NewTable]) -> dict[Identifier, Table | Exception]:
        """Makes tables, and their namespaces: those that were made, with the error in the place of one that alone can't
        be. Those that somebody else has made meanwhile stay as they are, and are not among them.

        Args:
            wanted: each name once.
        """

    @abstractmethod
    def listed(self, namespace: Identifier) -> Mapping[Identifier, Callable[[], Table]]:
        """All tables of a namespace as they are now, each read when it is asked for; empty where a catalog would have
        to be asked for each."""

    @abstractmethod
    def names(self, namespace: Identifier) -> list[Identifier]:
        """All tables of a namespace."""

    @abstractmethod
    def probe(self, namespace: Identifier) -> None:
        """Raises if the catalog can't be asked, or takes no change."""

    def probe_places(self, locations: Iterable[str]) -> None:
        """Raises if one of these takes no bytes. What is no location is passed over, and so is one that is elsewhere
        than on this machine if only a table's own credentials may write there."""
        for location in {*filter(None, locations)}:
            if folder := local_path(location):
                probe_folder(folder)
            elif "://" in location and not self.lends_credentials:
                file = load_file_io(self.catalog.properties, location).new_output(
                    f"{location}/{table_probe_name(uuid.uuid4().hex)}"
                )
                try:
                    with file.create() as stream:
                        stream.write(os.urandom(PROBE_BYTES))
                finally:
                    with suppress(FileNotFoundError):
                        load_file_io(self.catalog.properties, location).delete(file.location)

    def ensure_namespace(self, namespace: Identifier) -> None:
        """Makes the namespace if it is missing."""
        try:
            if not self.catalog.namespace_exists(namespace):
                self.catalog.create_namespace(namespace)
        except NamespaceAlreadyExistsError:
            pass
        except Exception:
            if not self.catalog.namespace_exists(
                namespace
            ):  # somebody else was first, which each database says in its way
                raise


def readable(found: Table | Exception) -> Table:
    """The table that was read. Raises the error in its place."""
    if isinstance(found, Exception):
        raise found
    return found


class KnownTables:
    """Tables as a run's writers have seen them: what a writer needs of a table does not change while it is there, and
    the committer compares it. A database is asked once for all tables of a namespace.

    Args:
        tables: the catalog's.
        namespace: the sink's.
    """

    def __init__(self, tables: Tables, namespace: Identifier) -> None:
        self._tables, self._namespace, self._lock = tables, namespace, Lock()
        self._known: dict[Identifier, Table] = {}
        self._listed: Mapping[Identifier, Callable[[], Table]] | None = None
        self._missing: set[Identifier] = set()

    def get(self, name: Identifier) -> Table | None:
        """The table, None if there is none, or was none as it was looked up; asked once more it looks again."""
        with self._lock:
            if name in self._missing:
                self._missing.remove(name)
                return None
        found = self.read([name]).get(name)
        return readable(found) if found is not None else None

    def read(self, names: Sequence[Identifier]) -> dict[Identifier, Table | Exception]:
        """Those of the tables that there are, with the error in the place of one that alone can't be read."""
        with self._lock:
            asked = [name for name in names if name not in self._known]
            if asked and self._listed is None:
                self._listed = self._tables.listed(self._namespace)
            found = dict(zip(asked, in_flight(self._tables.parallel_calls, self._from_list, asked), strict=True))
            self._known.update((name, table) for name, table in found.items() if table is not None)
            left = self._tables.read([name for name, table in found.items() if table is None])
            self._known.update((name, table) for name, table in left.items() if isinstance(table, Table))
            return left | {name: self._known[name] for name in names if name in self._known}

    def look_up(self, names: Sequence[Identifier]) -> None:
        """Reads those of the tables that there are, and notes which there are not."""
        with self._lock:
            new = [name for name in names if name not in self._known]
        there = {*self._tables.names(self._namespace)} if new else set[Identifier]()
        self.read([name for name in new if name in there])
        with self._lock:
            self._missing.update(name for name in new if name not in there)

    def put(self, name: Identifier, table: Table) -> None:
        """The table as it is after a change."""
        with self._lock:
            self._known[name] = table
            self._missing.discard(name)

    def _from_list(self, name: Identifier) -> Table | None:
        assert self._listed is not None
        try:
            return self._listed[name]()
        except Exception:  # noqa: BLE001 - read again by itself: it was made or changed since, or its error is its own
            return None
