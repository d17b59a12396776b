"""Tables of a REST catalog: each is asked for, and changed, by a call of its own, many at a time.

Not by one request for several tables (`transactions/commit`): Iceberg's own server answers that with success also where
one of them had changed meanwhile, and then leaves that table's change out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from requests.adapters import HTTPAdapter

from distcommit.model.parallel import in_flight
from distcommit.sinks.iceberg.catalogs import Change, Identifier, Tables

_CALLS = 64


class RestTables(Tables):
    """Has many calls in flight at once."""

    def __init__(self, catalog: Catalog) -> None:
        assert isinstance(catalog, RestCatalog)
        super().__init__(catalog)
        self._rest = catalog
        catalog._session.mount(catalog.uri, HTTPAdapter(pool_maxsize=_CALLS))

    def load(self, names: Sequence[Identifier]) -> dict[Identifier, Table]:
        found = in_flight(_CALLS, self._load, list(names))
        return {name: table for name, table in zip(names, found, strict=True) if table is not None}

    def commit(self, changes: Sequence[Change], sync: Callable[[], None]) -> list[bool]:
        sync()
        return in_flight(_CALLS, self._commit, changes)

    def listed(self, namespace: Identifier) -> Mapping[Identifier, Callable[[], Table]]:
        return {}

    def names(self, namespace: Identifier) -> list[Identifier]:
        try:
            return [tuple(name) for name in self._rest.list_tables(namespace)]
        except NoSuchNamespaceError:  # a job that has not committed anything yet
            return []

    def probe(self, namespace: Identifier) -> None:
        self._rest.namespace_exists(namespace)

    def _load(self, name: Identifier) -> Table | None:
        try:
            found: Table = self._rest.load_table(name)
        except NoSuchTableError:
            return None
        return found

    def _commit(self, change: Change) -> bool:
        try:
            self._rest.commit_table(change.table, change.requirements, change.updates)
        except (CommitFailedException, NoSuchTableError):
            return False
        return True
