"""Tables of a catalog in a database, in the schema of pyiceberg's `SqlCatalog` and Java's JDBC catalog."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias, cast

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.io import load_file_io
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.update import update_table_metadata
from sqlalchemy import Connection, bindparam, false, func, insert, select, update
from sqlalchemy import Table as SqlTable
from sqlalchemy.exc import IntegrityError

from distcommit.core.errors import TransientError
from distcommit.core.support.parallel import run_parallel
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.base.retries import tries
from distcommit.sinks.iceberg.catalog.tables import Change, Identifier, NewTable, Tables, results_or_errors
from distcommit.sinks.table_formats.data_files import sync_locations

logger = logging.getLogger(__name__)
_NAMES_IN_QUERY = 1000
_ROWS = cast(SqlTable, IcebergTables.__table__)


_Written: TypeAlias = tuple[str, TableMetadata]
"""Location and content of a metadata file."""


class SqlTables(Tables):
    """The tables of a catalog in a database. A call changes all tables in one transaction."""

    def __init__(self, catalog: Catalog) -> None:
        assert isinstance(catalog, SqlCatalog)
        super().__init__(catalog)
        self._sql, self._engine, self._catalog_name = catalog, catalog.engine, catalog.name
        self._folders: dict[Identifier, str] = {}
        self._io = load_file_io(catalog.properties, catalog.properties.get("warehouse"))

    def read(self, names: Sequence[Identifier]) -> dict[Identifier, Table | Exception]:
        with self._engine.connect() as connection:
            locations = self._locations(connection, names)
        tables = results_or_errors(self.parallel_calls, lambda item: self._read(*item), list(locations.items()))
        return dict(zip(locations, tables, strict=True))

    def commit(self, changes: Sequence[Change], sync: Callable[[], None]) -> list[bool]:
        """Apply changes. If a metadata file can't be written, raise the error after all other changes were tried."""
        written = results_or_errors(self.parallel_calls, self._write, changes)
        created = [
            (change, result) for change, result in zip(changes, written, strict=True) if isinstance(result, tuple)
        ]
        same = self._moved(created, sync) if created else []
        for result in written:
            if isinstance(result, Exception):
                raise result
        return same

    def _moved(self, created: Sequence[tuple[Change, _Written]], sync: Callable[[], None]) -> list[bool]:
        sync()
        for _ in tries():
            with self._engine.connect() as connection:
                now = self._locations(connection, [change.table.name() for change, _ in created], lock=True)
                same = [now.get(change.table.name()) == change.table.metadata_location for change, _ in created]
                moves = [
                    self._move(change, target) for (change, (target, _)), ok in zip(created, same, strict=True) if ok
                ]
                if not moves:
                    return same
                moved = connection.execute(_MOVE, moves).rowcount
                if moved in (len(moves), -1):
                    connection.commit()
                    break
            # a pointer has moved between query and update: query again
        else:
            raise TransientError(
                "other writers changed the tables during each try",
                id="TABLE_CHANGED_CONCURRENTLY",
                catalog=self._catalog_name,
            )
        moved_on = [(change, after) for (change, (_, after)), ok in zip(created, same, strict=True) if ok]
        run_parallel(self.parallel_calls, self._delete_old_metadata_files, moved_on)
        return same

    def _delete_old_metadata_files(self, moved: tuple[Change, TableMetadata]) -> None:
        change, after = moved
        try:
            self.catalog._delete_old_metadata(self._io, change.table.metadata, after)
        except Exception:  # the change is committed; removal of orphan files deletes them
            logger.warning("old metadata of %s could not be deleted", change.table.name(), exc_info=True)

    def create(self, definitions: Sequence[NewTable]) -> dict[Identifier, Table | Exception]:
        for namespace in {new.name[:-1] for new in definitions} - self._folders.keys():
            self.ensure_namespace(namespace)
            self._folders[namespace] = self._sql._get_default_warehouse_location(".".join(namespace), "")
        # in one order, so that two sessions that create the same tables do not deadlock
        ordered = sorted(definitions, key=lambda new: new.name)
        results = results_or_errors(self.parallel_calls, self._write_first_metadata, ordered)
        errors = {new.name: error for new, error in zip(ordered, results, strict=True) if isinstance(error, Exception)}
        remaining = started = [table for table in results if isinstance(table, Table)]
        sync_locations(LocalFileSystem(), (table.metadata_location.rpartition("/")[0] for table in remaining))
        for _ in tries():
            try:
                self._insert(remaining)
                break
            except IntegrityError:  # another client was first with one of the tables
                with self._engine.connect() as connection:
                    present = self._locations(connection, [table.name() for table in remaining])
                remaining = [table for table in remaining if table.name() not in present]
        else:
            raise TransientError(
                "other writers created some of the tables during each try",
                id="TABLE_CHANGED_CONCURRENTLY",
                catalog=self._catalog_name,
            )
        created = {table.name() for table in remaining}
        unused = [table.metadata_location for table in started if table.name() not in created]
        run_parallel(self.parallel_calls, self._delete_quietly, unused)
        return {**errors, **{table.name(): table for table in remaining}}

    def _write_first_metadata(self, new: NewTable) -> Table:
        location = f"{self._folders[new.name[:-1]]}{new.name[-1]}"
        properties = dict(new.properties)
        target = load_location_provider(location, properties).new_table_metadata_file_location()
        metadata = new_table_metadata(
            location=location,
            schema=new.schema,
            partition_spec=new.spec,
            sort_order=new.order,
            properties=properties,
        )
        ToOutputFile.table_metadata(metadata, self._io.new_output(target))
        return Table(new.name, metadata, target, self._io, self.catalog)

    def _insert(self, tables: Sequence[Table]) -> None:
        rows = [
            self._sql._create_table_row(".".join(table.name()[:-1]), table.name()[-1], table.metadata_location)
            for table in tables
        ]
        if rows:
            with self._engine.begin() as connection:
                connection.execute(insert(_ROWS), rows)

    def _delete_quietly(self, location: str) -> None:
        with suppress(Exception):  # removal of orphan files deletes it
            self._io.delete(location)

    def listed(self, namespace: Identifier) -> Mapping[Identifier, Callable[[], Table]]:
        query = select(_ROWS.c.table_name, _ROWS.c.metadata_location).where(
            _ROWS.c.catalog_name == self._catalog_name, _ROWS.c.table_namespace == ".".join(namespace)
        )
        no_views = self._sql._iceberg_type_filter()  # other clients store views in the same table
        query = query if no_views is None else query.where(no_views)
        with self._engine.connect() as connection:
            rows = connection.execute(query).all()
        return {(*namespace, name): partial(self._read, (*namespace, name), location) for name, location in rows}

    def names(self, namespace: Identifier) -> list[Identifier]:
        return list(self.listed(namespace))

    def probe(self, namespace: Identifier) -> None:
        with self._engine.connect() as connection:
            connection.execute(select(func.count()).select_from(_ROWS).where(_ROWS.c.metadata_location == ""))
            connection.execute(update(_ROWS).where(false()).values(metadata_location=""))
            connection.commit()

    def _locations(
        self, connection: Connection, names: Sequence[Identifier], *, lock: bool = False
    ) -> dict[Identifier, str]:
        locations: dict[Identifier, str] = {}
        by_namespace: dict[Identifier, list[str]] = {}
        for *namespace, name in names:
            by_namespace.setdefault(tuple(namespace), []).append(name)
        for space, requested in sorted(by_namespace.items()):
            for some in _batched(sorted(set(requested))):
                query = (
                    select(_ROWS.c.table_name, _ROWS.c.metadata_location)
                    .where(
                        _ROWS.c.catalog_name == self._catalog_name,
                        _ROWS.c.table_namespace == ".".join(space),
                        _ROWS.c.table_name.in_(some),
                    )
                    .order_by(_ROWS.c.table_name)
                )
                if lock:  # in one order, so that two sessions do not deadlock
                    query = query.with_for_update()
                locations |= {(*space, name): location for name, location in connection.execute(query)}
        return locations

    def _read(self, name: Identifier, location: str) -> Table:
        metadata = FromInputFile.table_metadata(self._io.new_input(location))
        return Table(name, metadata, location, self._io, self.catalog)

    def _write(self, change: Change) -> _Written:
        table = change.table
        for requirement in change.requirements:
            requirement.validate(table.metadata)
        metadata = update_table_metadata(table.metadata, change.updates, metadata_location=table.metadata_location)
        provider = load_location_provider(metadata.location, metadata.properties)
        number = table.metadata_location.rpartition("/")[2].partition("-")[0]
        target = provider.new_table_metadata_file_location(int(number) + 1 if number.isdecimal() else 0)
        ToOutputFile.table_metadata(metadata, self._io.new_output(target))
        return target, metadata

    def _move(self, change: Change, target: str) -> dict[str, str]:
        *namespace, name = change.table.name()
        return {
            "of_catalog": self._catalog_name,
            "of_namespace": ".".join(namespace),
            "of_name": name,
            "was": change.table.metadata_location,
            "then": target,
            "before": change.table.metadata_location,
        }


_MOVE = (
    update(_ROWS)
    .where(
        _ROWS.c.catalog_name == bindparam("of_catalog"),
        _ROWS.c.table_namespace == bindparam("of_namespace"),
        _ROWS.c.table_name == bindparam("of_name"),
        _ROWS.c.metadata_location == bindparam("was"),
    )
    .values(metadata_location=bindparam("then"), previous_metadata_location=bindparam("before"))
)


def _batched(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for begin in range(0, len(names), _NAMES_IN_QUERY):
        yield names[begin : begin + _NAMES_IN_QUERY]
