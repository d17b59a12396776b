"""Creation and widening of many Iceberg tables at once, when a task that will write them starts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import ValidationError
from pyiceberg.table import Table
from sqlalchemy import event

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.committer import Committed
from distcommit.sinks.iceberg.catalog.open_catalogs import close_opened, opened
from distcommit.sinks.iceberg.catalog.rest_tables import RestTables
from distcommit.sinks.iceberg.catalog.sql_tables import SqlTables
from distcommit.sinks.iceberg.catalog.tables import NewTable, TableCache
from distcommit.sinks.iceberg.sink import IcebergSink
from tests.unit.sinks.iceberg.iceberg_target import Target, ids

NAMES = [f"t{number}" for number in range(30)]
NARROW, WIDE = pa.schema([("id", pa.int32())]), pa.schema([("id", pa.int64()), ("note", pa.string())])
inserting = SqlTables._insert


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    yield Target(tmp_path)
    close_opened()


def tables_of(sink: IcebergSink) -> SqlTables:
    tables = opened(sink.catalog)
    assert isinstance(tables, SqlTables)
    return tables


def statements_of(sink: IcebergSink) -> list[str]:
    """Record the statements sent to the catalog's database from now on, including commits."""
    statements, engine = list[str](), tables_of(sink)._engine
    event.listen(engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    event.listen(engine, "commit", lambda *args: statements.append("COMMIT"))
    return statements


def metadata_files(target: Target, name: str) -> list[Path]:
    return list((target.folder / "warehouse" / "n" / name / "metadata").glob("*.metadata.json"))


def test_missing_tables_are_created_in_one_transaction_and_writers_query_nothing_more(target: Target) -> None:
    sink = target.sink(partition_by=["id"], sort_by=["note"], properties={"owner": "us"})
    statements = statements_of(sink)
    sink.announce(NAMES, WIDE, "run-1")
    creation_count = len(statements)
    assert creation_count <= 13, statements
    assert sum(text.startswith("INSERT INTO iceberg_tables") for text in statements) == 1
    requests = [target.prepare(sink, name, 1, ids(1, note=["x"])) for name in NAMES]
    assert len(statements) == creation_count, statements[creation_count:]
    assert set(target.commit(sink, *requests)) == {Committed()}
    table = target.table("t7")
    assert [field.name for field in table.spec().fields] == ["id"]
    assert len(table.sort_order().fields) == 1
    assert table.properties["owner"] == "us"
    assert target.rows("t7") == [1]


def test_second_task_creates_only_missing_tables_and_queries_the_others_once(target: Target) -> None:
    sink = target.sink()
    sink.announce(NAMES[:20], NARROW, "run-1")
    statements = statements_of(sink)
    sink.announce(NAMES, NARROW, "run-1")
    assert len(statements) <= 3, statements
    sink.announce(NAMES, NARROW, "run-1")
    assert len(statements) <= 3, "all tables are known"


def test_table_created_by_a_single_writer_takes_few_statements(target: Target) -> None:
    sink = target.sink()
    target.prepare(sink, "first", 1, ids(1))
    statements = statements_of(sink)
    target.prepare(sink, "second", 1, ids(1))
    assert len(statements) <= 3, statements


def test_narrow_tables_are_widened_in_one_transaction(target: Target) -> None:
    sink = target.sink(evolve="add_columns")
    sink.announce(NAMES, NARROW, "run-1")
    statements = statements_of(sink)
    sink.announce(NAMES, WIDE, "run-2")
    assert len(statements) <= 6, statements
    assert sum(text.startswith("UPDATE iceberg_tables") for text in statements) == 1
    before = len(statements)
    requests = [target.prepare(sink, name, 2, ids(2**40, note=["x"])) for name in NAMES]
    assert len(statements) == before, "writers query nothing more"
    assert set(target.commit(sink, *requests)) == {Committed()}
    assert target.table("t3").scan().to_arrow().to_pydict() == {"id": [2**40], "note": ["x"]}


def test_change_forbidden_by_policy_fails_only_the_writer_that_needs_it(target: Target) -> None:
    target.sink().announce(NAMES[:2], NARROW, "run-1")
    fixed = target.sink(create=False)
    fixed.announce(NAMES, WIDE, "run-2")
    assert target.table("t0").schema().column_names == ["id"]
    assert not (target.folder / "warehouse" / "n" / "t2").exists()
    with pytest.raises(ConfigurationError, match="the table does not exist"):
        target.prepare(fixed, "t2", 2, ids(1))
    evolving = target.sink(evolve="add_columns")
    evolving.announce(NAMES[:3], pa.schema([("id", pa.string())]), "run-3")
    with pytest.raises(ConfigurationError, match="column id is int, and records have string"):
        target.prepare(evolving, "t0", 3, pa.table({"id": ["x"]}))
    assert target.table("t2").schema().as_arrow().field("id").type == pa.large_string()


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (Path.unlink, FileNotFoundError),
        (lambda path: path.write_text("{}"), ValidationError),
        (lambda path: path.write_text("["), ValidationError),
        (lambda path: path.write_bytes(b"\xff"), UnicodeDecodeError),
    ],
    ids=["gone", "of no version", "torn", "not text"],
)
def test_table_with_unloadable_metadata_does_not_affect_other_tables(
    target: Target, damage: Callable[[Path], object], error: type[Exception]
) -> None:
    target.sink().announce(NAMES[:3], NARROW, "run-1")
    for path in metadata_files(target, "t1"):
        damage(path)
    close_opened()
    sink = target.sink(evolve="add_columns")
    sink.announce(NAMES[:4], WIDE, "run-2")
    assert target.table("t0").schema().column_names == target.table("t3").schema().column_names == ["id", "note"]
    with pytest.raises(error):
        target.prepare(sink, "t1", 2, ids(1))
    requests = [target.prepare(sink, name, 2, ids(1, note=["x"])) for name in ("t0", "t2", "t3")]
    assert target.commit(sink, *requests) == [Committed()] * 3


def test_views_in_the_catalog_are_not_tables(target: Target) -> None:
    sink = target.sink()
    assert target.commit(sink, target.prepare(sink, "a", 1, ids(1))) == [Committed()]
    with tables_of(sink)._engine.begin() as connection:
        columns = "catalog_name, table_namespace, table_name, metadata_location, iceberg_type"
        view = "VALUES ('default', 'n', 'v', 'file:///none.json', 'VIEW')"
        connection.exec_driver_sql(f"INSERT INTO iceberg_tables ({columns}) {view}")
    assert tables_of(sink).names(("n",)) == [("n", "a")]
    assert [row.dataset_urn for row in target.committer(sink).ledger()] == ["a"]


def test_table_created_concurrently_is_kept_and_the_others_are_created(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, others = target.sink(), list[str]()

    def overtaken(self: SqlTables, tables: Any) -> None:
        if not others:
            with load_catalog("default", type="sql", **target.catalog) as catalog:
                foreign_table = catalog.create_table(
                    ("n", "t1"), pa.schema([("id", pa.int64()), ("theirs", pa.string())])
                )
            others.append(str(foreign_table.metadata.table_uuid))
        inserting(self, tables)

    monkeypatch.setattr(SqlTables, "_insert", overtaken)
    sink.announce(NAMES[:3], ids(1).schema, "run-1")
    assert [str(target.table("t1").metadata.table_uuid)] == others
    assert [len(metadata_files(target, name)) for name in NAMES[:3]] == [1, 1, 1], "the losing creation left no files"
    requests = [target.prepare(sink, name, 1, ids(5)) for name in NAMES[:3]]
    assert target.commit(sink, *requests) == [Committed()] * 3
    assert target.rows("t1") == [5]


def test_concurrent_creators_create_each_table_once(target: Target) -> None:
    sink = target.sink()
    tables = tables_of(sink)
    sink.announce(["begun"], NARROW, "run-1")
    schema, created = target.table("begun").schema(), list[dict[Any, Any]]()
    spec, order = target.table("begun").spec(), target.table("begun").sort_order()
    requested = [NewTable(("n", name), schema, spec, order, {}) for name in NAMES]
    threads = [threading.Thread(target=lambda: created.append(tables.create(requested))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(name for tables_of_thread in created for name in tables_of_thread) == sorted(
        ("n", name) for name in NAMES
    )
    assert all(len(metadata_files(target, name)) == 1 for name in NAMES)


def test_tables_that_a_task_may_write_are_looked_up_together_and_not_created(target: Target) -> None:
    target.sink().announce(NAMES[:20], NARROW, "run-1")
    sink = target.sink()
    statements = statements_of(sink)
    sink.look_up(NAMES, "run-2")
    assert len(statements) <= 4, statements
    assert not any((target.folder / "warehouse" / "n" / name).exists() for name in NAMES[20:])
    before = len(statements)
    there = [target.prepare(sink, name, 2, ids(1).cast(NARROW)) for name in NAMES[:20]]
    assert statements[before:] == [], "existing tables are not queried again"
    created = [target.prepare(sink, name, 2, ids(1).cast(NARROW)) for name in NAMES[20:23]]
    assert len(statements) - before <= 2 * len(created) + 2, statements[before:]
    assert set(target.commit(sink, *there, *created)) == {Committed()}


@pytest.mark.parametrize("create", [True, False])
def test_table_created_after_the_lookup_is_found(target: Target, create: bool) -> None:
    sink = target.sink(create=create)
    sink.look_up(NAMES[:1], "run-1")
    with load_catalog("default", type="sql", **target.catalog) as catalog:
        catalog.create_namespace_if_not_exists("n")
        theirs = catalog.create_table(("n", NAMES[0]), ids(1).schema)
    request = target.prepare(sink, NAMES[0], 1, ids(7))
    assert request.infos[0]["uuid"] == str(theirs.metadata.table_uuid)
    assert target.commit(sink, request) == [Committed()]


def test_existing_rest_tables_are_requested_concurrently_and_missing_ones_not_at_all() -> None:
    asked, together = list[str](), threading.Barrier(3)

    def load_table(name: tuple[str, ...]) -> Table:
        asked.append(name[-1])
        together.wait(10)  # waits for the two others
        return Table.__new__(Table)

    tables = RestTables.__new__(RestTables)
    there = [("n", "a"), ("n", "b"), ("n", "c"), ("n", "others")]
    tables._rest = SimpleNamespace(load_table=load_table, list_tables=lambda namespace: there)  # type: ignore[assignment]
    tables.catalog = SimpleNamespace(properties={})  # type: ignore[assignment]
    cache = TableCache(tables, ("n",))
    cache.look_up([("n", name) for name in ("a", "b", "c", "new")])
    assert sorted(asked) == ["a", "b", "c"]
    assert [cache.get(("n", name)) is not None for name in ("a", "new", "b")] == [True, False, True]
    assert len(asked) == 3


def test_table_of_all_datasets_is_created_once(target: Target) -> None:
    sink = target.sink(table="all")
    sink.announce(NAMES, NARROW, "run-1")
    assert len(metadata_files(target, "all")) == 1
    assert target.commit(sink, target.prepare(sink, "t1", 1, ids(1).cast(NARROW))) == [Committed()]


def test_namespace_with_its_own_location_has_its_tables_there(target: Target) -> None:
    with load_catalog("default", type="sql", **target.catalog) as catalog:
        catalog.create_namespace("n", {"location": f"file://{target.folder}/elsewhere"})
    target.sink().announce(NAMES[:2], NARROW, "run-1")
    assert target.table("t1").location() == f"file://{target.folder}/elsewhere/t1"
