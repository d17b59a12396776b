"""Tables of a REST catalog: many changes go in one request, where the catalog takes that."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import CommitTableRequest, Table, TableIdentifier

from distcommit.model.parallel import in_flight
from distcommit.sinks.iceberg.catalogs import Change, Identifier, Tables

_CALLS = 32
_CHANGES_IN_REQUEST = 50
_REFUSED = (400, 404, 405, 409, 422, 501)
"""Answers that say of a request for several tables that none was changed, or that the catalog takes no such one: each
is tried by itself."""


class RestTables(Tables):
    """Asks for many tables at once, and sends their changes together (`transactions/commit`)."""

    def __init__(self, catalog: Catalog) -> None:
        assert isinstance(catalog, RestCatalog)
        super().__init__(catalog)
        self._rest = catalog

    def load(self, names: Sequence[Identifier]) -> dict[Identifier, Table]:
        found = in_flight(_CALLS, self._load, list(names))
        return {name: table for name, table in zip(names, found, strict=True) if table is not None}

    def commit(self, changes: Sequence[Change], sync: Callable[[], None]) -> list[bool]:
        sync()
        parts = [changes[at : at + _CHANGES_IN_REQUEST] for at in range(0, len(changes), _CHANGES_IN_REQUEST)]
        return [made for part in in_flight(_CALLS, self._commit, parts) for made in part]

    def listed(self, namespace: Identifier) -> Mapping[Identifier, Callable[[], Table]]:
        return {}

    def names(self, namespace: Identifier) -> list[Identifier]:
        return [tuple(name) for name in self._rest.list_tables(namespace)]

    def probe(self, namespace: Identifier) -> None:
        self._rest.namespace_exists(namespace)

    def _load(self, name: Identifier) -> Table | None:
        try:
            return self._rest.load_table(name)
        except NoSuchTableError:
            return None

    def _commit(self, changes: Sequence[Change]) -> list[bool]:
        if len(changes) > 1:
            requests = [_request(change).model_dump(mode="json", by_alias=True) for change in changes]
            answer = self._rest._session.post(  # the client has no call for it
                self._rest.url("transactions/commit"),
                data=json.dumps({"table-changes": requests}),
                headers={"Content-Type": "application/json"},
            )
            if answer.status_code not in _REFUSED:
                answer.raise_for_status()
                return [True] * len(changes)
        return in_flight(_CALLS, self._commit_one, changes)

    def _commit_one(self, change: Change) -> bool:
        try:
            self._rest.commit_table(change.table, change.requirements, change.updates)
        except (CommitFailedException, NoSuchTableError):
            return False
        return True


def _request(change: Change) -> CommitTableRequest:
    *namespace, name = change.table.name()
    return CommitTableRequest(
        identifier=TableIdentifier(namespace=namespace, name=name),
        requirements=change.requirements,
        updates=change.updates,
    )
