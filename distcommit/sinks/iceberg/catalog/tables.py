"""The tables of a catalog, loaded, created and changed many at a time.

A catalog in a database changes all pointers to metadata files in one transaction, each by compare-and-set.
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

from distcommit.core.support.parallel import Item, Result, run_parallel
from distcommit.protocol.paths.temporary_and_probes import table_probe_name
from distcommit.sinks.table_formats.data_files import PROBE_BYTES, local_path, probe_folder

Identifier = tuple[str, ...]
_REMOTE_CALLS = 32


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the loaded version of a table.

    Attributes:
        table: the loaded version, which the change must replace.
        updates: the changes of its metadata, in order.
        requirements: conditions that some catalogs check instead of comparing the pointer.
    """

    table: Table
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]


@dataclass(frozen=True, slots=True)
class NewTable:
    """The definition of a table to create.

    Attributes:
        name: namespaces and name.
        schema: columns of the table.
        spec: partitioning; unpartitioned without fields.
        order: sort order of the rows in a file; unsorted without fields.
        properties: table properties: the defaults, overridden by those of the settings.
    """

    name: Identifier
    schema: Schema
    spec: PartitionSpec
    order: SortOrder
    properties: Mapping[str, str]


class Tables(ABC):
    """The tables of a catalog, which threads may share, but not forked processes."""

    lends_credentials: ClassVar[bool] = False
    """Whether the catalog may return credentials for each table's files."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    @property
    def parallel_calls(self) -> int:
        """Useful number of concurrent calls to the tables' files."""
        warehouse = self.catalog.properties.get("warehouse", "")
        return 1 if local_path(warehouse) else _REMOTE_CALLS

    def load(self, names: Sequence[Identifier]) -> dict[Identifier, Table]:
        """Return the tables that exist. If a table can't be read, raise its error."""
        return {name: readable(table) for name, table in self.read(names).items()}

    @abstractmethod
    def read(self, names: Sequence[Identifier]) -> dict[Identifier, Table | Exception]:
        """Return each table that exists, or its error if it can't be read."""

    @abstractmethod
    def commit(self, changes: Sequence[Change], sync: Callable[[], None]) -> list[bool]:
        """Apply changes, at most one for each table. Return False for tables that have changed meanwhile.

        `sync` is called once all new files are written. After an exception the outcome is unknown.
        """

    @abstractmethod
    def create(self, definitions: Sequence[NewTable]) -> dict[Identifier, Table | Exception]:
        """Create tables and missing namespaces. Return each created table, or its error. Tables that another client has
        created are left out."""

    @abstractmethod
    def listed(self, namespace: Identifier) -> Mapping[Identifier, Callable[[], Table]]:
        """Return a function for each table of a namespace that loads it. Return nothing if each needs a request to the
        catalog."""

    @abstractmethod
    def names(self, namespace: Identifier) -> list[Identifier]: ...

    @abstractmethod
    def probe(self, namespace: Identifier) -> None:
        """Raise the catalog's error unless it answers and, in a database, accepts changes."""

    def probe_locations(self, locations: Iterable[str]) -> None:
        """Write and delete a file at each location. Remote locations are skipped if the catalog lends credentials for
        each table."""
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
        try:
            if not self.catalog.namespace_exists(namespace):
                self.catalog.create_namespace(namespace)
        except NamespaceAlreadyExistsError:
            pass
        except Exception:
            if not self.catalog.namespace_exists(namespace):  # else another client was first
                raise


def readable(read: Table | Exception) -> Table:
    if isinstance(read, Exception):
        raise read
    return read


def results_or_errors(calls: int, act: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | Exception]:
    def attempt(item: Item) -> Result | Exception:
        try:
            return act(item)
        except Exception as error:  # noqa: BLE001 - of one table: the others continue
            return error

    return run_parallel(calls, attempt, items)


class TableCache:
    """A cache of tables for a run's writers. Its versions may be outdated; the committer loads present ones."""

    def __init__(self, tables: Tables, namespace: Identifier) -> None:
        self._tables, self._namespace, self._lock = tables, namespace, Lock()
        self._known: dict[Identifier, Table] = {}
        self._listed: Mapping[Identifier, Callable[[], Table]] | None = None
        self._missing: set[Identifier] = set()

    def get(self, name: Identifier) -> Table | None:
        """Return the table, or None; raises the catalog's error.

        If `look_up` has not found the table, the next call returns None without a request.
        """
        with self._lock:
            if name in self._missing:
                self._missing.remove(name)
                return None
        table = self.read([name]).get(name)
        return readable(table) if table is not None else None

    def read(self, names: Sequence[Identifier]) -> dict[Identifier, Table | Exception]:
        with self._lock:
            uncached = [name for name in names if name not in self._known]
            if uncached and self._listed is None:
                self._listed = self._tables.listed(self._namespace)
            tables = dict(
                zip(uncached, run_parallel(self._tables.parallel_calls, self._from_list, uncached), strict=True)
            )
            self._known.update((name, table) for name, table in tables.items() if table is not None)
            remaining = self._tables.read([name for name, table in tables.items() if table is None])
            self._known.update((name, table) for name, table in remaining.items() if isinstance(table, Table))
            return remaining | {name: self._known[name] for name in names if name in self._known}

    def look_up(self, names: Sequence[Identifier]) -> None:
        """Cache the tables that exist, and record the missing ones for the next `get`."""
        with self._lock:
            new = [name for name in names if name not in self._known]
        present = {*self._tables.names(self._namespace)} if new else set[Identifier]()
        self.read([name for name in new if name in present])
        with self._lock:
            self._missing.update(name for name in new if name not in present)

    def put(self, name: Identifier, table: Table) -> None:
        with self._lock:
            self._known[name] = table
            self._missing.discard(name)

    def _from_list(self, name: Identifier) -> Table | None:
        assert self._listed is not None
        try:
            return self._listed[name]()
        except Exception:  # noqa: BLE001 - it is read again by itself
            return None
