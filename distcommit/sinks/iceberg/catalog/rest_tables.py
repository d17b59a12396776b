"""Tables of a REST catalog, of which one request can change many.

Some catalogs apply only a part of such a request. Iceberg's own server skips a table that has changed meanwhile, and
still reports success. So the catalog is tested before the first such request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    ServerError,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table
from pyiceberg.table.update import AddSnapshotUpdate, AssertTableUUID, RemovePropertiesUpdate, SetPropertiesUpdate
from requests.adapters import HTTPAdapter

from distcommit.core.errors import TransientError
from distcommit.core.support.parallel import run_parallel
from distcommit.sinks.base.retries import tries
from distcommit.sinks.iceberg.catalog.tables import Change, Identifier, NewTable, Tables, results_or_errors
from distcommit.sinks.iceberg.catalog.transactions import NoSuchCallError, commit_together, has_transactions

logger = logging.getLogger(__name__)
_CALLS = 64
_READS = 3
_MOST_TOGETHER = 250
_FEWER = 8
_REFUSED = (CommitFailedException, NoSuchTableError, BadRequestError, ForbiddenError, NoSuchCallError)
"""Errors of a request for several tables that has changed none of them."""
_PROBE = "distcommit.probe"


class RestTables(Tables):
    """The tables of a REST catalog, with many concurrent requests.

    A request changes at most `_most` tables, or one if the catalog may skip changes. After a request with an unknown
    outcome, each of its tables gets a separate request (`_alone`), and `_most` is reduced.
    """

    lends_credentials = True

    def __init__(self, catalog: Catalog) -> None:
        assert isinstance(catalog, RestCatalog)
        super().__init__(catalog)
        self._rest = catalog
        self._most = _MOST_TOGETHER if has_transactions(catalog) else 1
        self._tried = False
        self._alone: set[Identifier] = set()
        catalog._session.mount(catalog.uri, HTTPAdapter(pool_maxsize=_CALLS))

    def read(self, names: Sequence[Identifier]) -> dict[Identifier, Table | Exception]:
        tables = run_parallel(_CALLS, self._read, list(names))
        return {name: table for name, table in zip(names, tables, strict=True) if table is not None}

    def commit(self, changes: Sequence[Change], sync: Callable[[], None]) -> list[bool]:
        """Apply changes. If an outcome is unknown, raise the error after all other changes were tried."""
        sync()
        remaining = [change for change in changes if change.table.name() not in self._alone]
        parts = [[change] for change in changes if change.table.name() in self._alone]
        answers: dict[Identifier, bool | Exception] = {}
        if (
            len(remaining) > 1
            and self._most > 1
            and not self._tried
            and (first := next(filter(_adds, remaining), None))
        ):
            remaining = [change for change in remaining if change is not first]
            answers[first.table.name()] = self._try(first)
        most = self._most if self._tried else 1
        parts += [remaining[begin : begin + most] for begin in range(0, len(remaining), most)]
        for part, created in zip(parts, run_parallel(_CALLS, self._commit_some, parts), strict=True):
            answers.update(zip((change.table.name() for change in part), created, strict=True))
        unknown = {name: answer for name, answer in answers.items() if isinstance(answer, Exception)}
        self._alone = self._alone - answers.keys() | unknown.keys()
        for error in unknown.values():
            raise error
        return [answers[change.table.name()] is True for change in changes]

    def create(self, definitions: Sequence[NewTable]) -> dict[Identifier, Table | Exception]:
        tables = results_or_errors(_CALLS, self._create, list(definitions))
        return {new.name: table for new, table in zip(definitions, tables, strict=True) if table is not None}

    def _create(self, new: NewTable) -> Table | None:
        make: partial[Table] = partial(
            self._rest.create_table,
            new.name,
            new.schema,
            partition_spec=new.spec,
            sort_order=new.order,
            properties=dict(new.properties),
        )
        with suppress(TableAlreadyExistsError):
            try:
                return make()
            except NoSuchNamespaceError:
                self.ensure_namespace(new.name[:-1])
                return make()
        return None

    def listed(self, namespace: Identifier) -> Mapping[Identifier, Callable[[], Table]]:
        return {}

    def names(self, namespace: Identifier) -> list[Identifier]:
        try:
            return [tuple(name) for name in self._rest.list_tables(namespace)]
        except NoSuchNamespaceError:  # the job has not committed anything yet
            return []

    def probe(self, namespace: Identifier) -> None:
        self._rest.namespace_exists(namespace)

    def _read(self, name: Identifier) -> Table | Exception | None:
        failed: Exception | None = None
        for _ in tries(_READS):
            try:
                table: Table = self._rest.load_table(name)
            except NoSuchTableError:
                return None
            except (ForbiddenError, ValueError) as error:
                return error
            except ServerError as error:
                failed = error
            else:
                return table
        return failed

    def _commit_some(self, changes: Sequence[Change]) -> list[bool | Exception]:
        """Apply changes by one request. If it is refused, use one request for each half."""
        if len(changes) == 1:
            return [self._commit(changes[0])]
        try:
            commit_together(self._rest, changes)
        except _REFUSED:
            half = len(changes) // 2
            parts = run_parallel(_CALLS, self._commit_some, [changes[:half], changes[half:]])
            return [answer for part in parts for answer in part]
        except Exception as error:  # noqa: BLE001 - the outcome is unknown; the caller looks it up
            self._most = max(2, len(changes) // _FEWER)
            return [error] * len(changes)
        if len(changes) == self._most:
            self._most = min(_MOST_TOGETHER, 2 * self._most)
        return [True] * len(changes)

    def _commit(self, change: Change) -> bool | Exception:
        try:
            self._rest.commit_table(change.table, change.requirements, change.updates)
        except (CommitFailedException, NoSuchTableError):
            return False
        except Exception as error:  # noqa: BLE001 - the outcome is unknown; the caller looks it up
            return error
        return True

    def _try(self, change: Change) -> bool | Exception:
        """Apply a change, and test whether the catalog applies every change of a request.

        The test adds a second change of the same table, and checks both. A catalog that rejects this passes, too,
        because it skips nothing silently.
        """
        marked = SetPropertiesUpdate(updates={_PROBE: "the catalog has left a change out"})
        unmarked = RemovePropertiesUpdate(removals=[_PROBE])
        same_table = AssertTableUUID(uuid=change.table.metadata.table_uuid)
        first = Change(change.table, (*change.updates, marked), change.requirements)
        try:
            commit_together(self._rest, [first, Change(change.table, (unmarked,), (same_table,))])
        except _REFUSED as error:
            answer = self._commit(change)
            if answer is True and isinstance(error, CommitFailedException | BadRequestError):
                self._tried = True
            elif answer is True:  # the request does not exist, or is forbidden
                self._most = 1
            return answer
        except Exception as error:  # noqa: BLE001 - the outcome is unknown, as of any change
            return error
        return self._is_applied(change, unmarked)

    def _is_applied(self, change: Change, unmarked: RemovePropertiesUpdate) -> bool | Exception:
        """Return whether a change was applied. Set `_tried` if the change that removes the test property was applied,
        too."""
        table = self._read(change.table.name())
        if not isinstance(table, Table):
            return table or TransientError(
                "the table is gone", id="TABLE_CHANGED_CONCURRENTLY", table=".".join(change.table.name())
            )
        added = _adds(change)
        is_there = added <= {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
        is_marked = _PROBE in table.metadata.properties
        if is_there and not is_marked:
            self._tried = True
            return True
        self._most = 1
        logger.warning(
            "the catalog %s reported success for a request, but has skipped one of its changes: each table is changed"
            " by a request of its own from now on",
            self._rest.uri,
        )
        if is_marked:
            self._commit(Change(table, (unmarked,), ()))
        return is_there or TransientError(
            "the catalog has not applied the change",
            id="TABLE_CHANGED_CONCURRENTLY",
            table=".".join(change.table.name()),
        )


def _adds(change: Change) -> set[int]:
    return {update.snapshot.snapshot_id for update in change.updates if isinstance(update, AddSnapshotUpdate)}
