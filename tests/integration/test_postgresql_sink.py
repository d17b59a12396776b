"""What goes wrong at a PostgreSQL server: each problem is one dataset's own, is told, and leaves nothing half there."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from distcommit.fs.local import LocalFileSystem
from distcommit.model.committer import (
    AlreadyCommitted,
    CommitOutcome,
    CommitRequest,
    Committed,
    CommitterContext,
    FailedForGood,
    RetryLater,
)
from distcommit.model.errors import ConflictError, TransientError
from distcommit.model.sink import Origin
from distcommit.model.source import Provenance
from distcommit.sinks.postgresql.connection import transaction
from distcommit.sinks.postgresql.sink import PostgresqlSink
from distcommit.sinks.postgresql.tables import Table
from tests.servers.lossy_proxy import LossyProxy
from tests.servers.postgresql import PostgresServer
from tests.unit.sinks.committing import Committing, numbers, refused


class Target(Committing):
    """A schema of its own, and what a job would do with it."""

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        super().__init__(folder)
        self.server, self.schema = server, f"t{uuid.uuid4().hex[:12]}"
        self.sql("CREATE SCHEMA {schema}")

    def sink(self, **settings: Any) -> PostgresqlSink:
        where = {"url": self.server.url, "password": self.server.password, "schema": self.schema}
        return PostgresqlSink.model_validate({"type": "postgresql", **where, **settings})

    def sql(self, statement: Any, connection: psycopg.Connection | None = None) -> list[tuple[Any, ...]]:
        """A statement of the tests' own; `{schema}` in it is this target's."""
        made = sql.SQL(statement).format(schema=sql.Identifier(self.schema))
        with connection or self.server.connect() as own:
            cursor = own.execute(made)
            return cursor.fetchall() if cursor.description else []

    def rows(self, table: str, columns: str = "n") -> list[tuple[Any, ...]]:
        return self.sql(f'SELECT {columns} FROM {{schema}}."{table}" ORDER BY 1')

    def ledger(self) -> list[tuple[Any, ...]]:
        return self.sql("SELECT dataset, epoch FROM {schema}.distcommit_ledger ORDER BY 1")


@pytest.fixture
def target(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[Target]:
    made = Target(postgres_server, tmp_path)
    yield made
    made.sql("DROP SCHEMA {schema} CASCADE")


def beside_others(target: Target, sink: PostgresqlSink, bad: CommitRequest) -> CommitOutcome:
    """The outcome of a request between two good ones, which are committed with it; it leaves nothing."""
    good = [target.prepare(sink, urn, bad.epoch) for urn in ("good one", "other")]
    before = target.ledger() if target.sql("SELECT to_regclass('{schema}.distcommit_ledger')")[0][0] else []
    first, outcome, last = target.commit(sink, good[0], bad, good[1])
    assert (first, last) == (Committed(), Committed())
    assert target.rows("good one") == target.rows("other") == [(1,), (2,), (3,)]
    assert {row for row in target.ledger() if row[0] == bad.dataset_urn} <= set(before)
    return outcome


# -- what the rows are


BAD_ROWS: list[tuple[str, pa.RecordBatch, str]] = [
    ("n bigint UNIQUE", numbers(7, 7), "duplicate key"),
    ("n bigint UNIQUE DEFERRABLE INITIALLY DEFERRED", numbers(7, 7), "duplicate key"),
    ("n bigint NOT NULL", numbers(1, None), "null value"),
    ("n bigint CHECK (n < 2)", numbers(1, 2), "check constraint"),
    ("n integer", numbers(1, 2**40), "'n' does not go into the table's n integer"),
    ("n smallint", numbers(40_000), "'n' does not go into the table's n smallint"),
    ("n numeric(3, 0)", numbers(1000), "'n' does not go into the table's n numeric(3,0)"),
    ("n double precision", numbers(1), "has the type int64, which does not go into the table's n double precision"),
    ("n timestamptz", numbers(1), "has the type int64"),
    ("n varchar(3)", pa.record_batch({"n": ["abcd"]}), "too long"),
    ("n text", pa.record_batch({"n": ["a\0b"]}), "invalid byte sequence"),
    ("n bigint", pa.record_batch({"n": [1.5]}), "has the type double"),
    ("n numeric(5, 1)", pa.record_batch({"n": [Decimal("1.25")]}), "'n' does not go into the table's n numeric(5,1)"),
    ("n timestamp", pa.record_batch({"n": pa.array([-(2**63)], pa.timestamp("us"))}), "can't be written"),
    ("n jsonb", pa.record_batch({"n": ["{"]}), "invalid input syntax"),
    ("m bigint", numbers(1), "has no column 'n'"),
]


@pytest.mark.parametrize(("columns", "rows", "said"), BAD_ROWS, ids=[each[0] for each in BAD_ROWS])
def test_rows_that_the_table_does_not_take_fail_alone(
    target: Target, columns: str, rows: pa.RecordBatch, said: str
) -> None:
    target.sql(f"CREATE TABLE {{schema}}.bad ({columns})")
    sink = target.sink()
    refused(beside_others(target, sink, target.prepare(sink, "bad", 1, rows)), said)
    assert target.rows("bad", "*") == []


def test_binary_copy_by_itself_takes_a_float_for_another_number(target: Target) -> None:
    """Why types are compared here: the server does not."""
    target.sql("CREATE TABLE {schema}.naive (n bigint)")
    with target.server.connect() as connection, connection.cursor() as cursor:
        naive = sql.SQL("COPY {} FROM STDIN (FORMAT BINARY)").format(sql.Identifier(target.schema, "naive"))
        with cursor.copy(naive) as copy:
            copy.set_types(["float8"])
            copy.write_row([1.5])
    assert target.rows("naive") == [(4609434218613702656,)]


def test_each_type_is_read_back_as_it_was(target: Target) -> None:
    now = datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)
    columns: dict[str, tuple[pa.Array, list[Any]]] = {
        "bool": (pa.array([True, None]), [True, None]),
        "uint8": (pa.array([255, None], pa.uint8()), [255, None]),
        "int32": (pa.array([-(2**31), None], pa.int32()), [-(2**31), None]),
        "uint32": (pa.array([2**32 - 1, None], pa.uint32()), [2**32 - 1, None]),
        "uint64": (pa.array([2**64 - 1, None], pa.uint64()), [Decimal(2**64 - 1), None]),
        "float32": (pa.array([0.5, None], pa.float32()), [0.5, None]),
        "decimal": (pa.array([Decimal("-12.340"), None]), [Decimal("-12.340"), None]),
        "text": (pa.array(["ü", None], pa.large_string()), ["ü", None]),
        "words": (pa.array(["a", None]).dictionary_encode(), ["a", None]),
        "bytes": (pa.array([b"\0\xff", None]), [b"\0\xff", None]),
        "sixteen": (pa.array([b"0123456789abcdef", None], pa.binary(16)), [b"0123456789abcdef", None]),
        "date": (pa.array([now.date(), None]), [now.date(), None]),
        "time": (pa.array([now.time(), None]), [now.time(), None]),
        "zoned": (pa.array([now, None], pa.timestamp("ns", "Europe/Berlin")), [now, None]),
        "naive": (pa.array([now.replace(tzinfo=None), None]), [now.replace(tzinfo=None), None]),
        "list": (pa.array([[1, None], None]), [[1, None], None]),
        "struct": (pa.array([{"a": [{"b": 1}]}, None]), [{"a": [{"b": 1}]}, None]),
        "map": (pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())), [[{"key": "k", "value": 1}], None]),
        "nothing": (pa.nulls(2), [None, None]),
    }
    batch = pa.record_batch({"n": [0, 1], **{name: array for name, (array, _) in columns.items()}})
    again = pa.concat_batches([batch, batch]).slice(2, 2)  # with offsets into what it is a part of
    sink = target.sink()
    sink.check_schema(batch.schema)
    assert target.commit(sink, target.prepare(sink, "a", 1, batch, again)) == [Committed()]
    for name, (_, expected) in columns.items():
        found = target.rows("a", f'n, "{name}"')
        assert [value for _, value in found] == [expected[0], expected[0], expected[1], expected[1]], name


def test_integers_go_into_columns_with_fewer_digits_than_their_type_could_have(target: Target) -> None:
    target.sql("CREATE TABLE {schema}.a (n numeric(3, 0))")
    sink = target.sink()
    assert target.commit(sink, target.prepare(sink, "a", 1, numbers(-999, None, 999))) == [Committed()]
    assert target.rows("a") == [(Decimal(-999),), (Decimal(999),), (None,)]


def test_columns_are_added_if_that_is_allowed(target: Target) -> None:
    wider = pa.record_batch({"n": [4], "more": ["x"]})
    plain, adding = target.sink(), target.sink(evolve="add_columns")
    assert target.commit(plain, target.prepare(plain, "a", 1)) == [Committed()]
    refused(beside_others(target, plain, target.prepare(plain, "a", 2, wider)), "has no column 'more'")
    assert target.commit(adding, target.prepare(adding, "a", 3, numbers(3), wider, numbers(5))) == [Committed()]
    assert target.rows("a", "n, more") == [(1, None), (2, None), (3, None), (3, None), (4, "x"), (5, None)]


# -- modes


def test_upsert_leaves_the_last_row_of_each_key(target: Target) -> None:
    sink = target.sink(mode="upsert", keys=["k"])
    first = pa.record_batch({"k": [1, 2, 1], "v": ["a", "b", "c"]})
    second = pa.record_batch({"k": [2, 3], "v": ["d", "e"]})
    assert target.commit(sink, target.prepare(sink, "a", 1, first)) == [Committed()]
    assert target.rows("a", "k, v") == [(1, "c"), (2, "b")]
    assert target.commit(sink, target.prepare(sink, "a", 2, second)) == [Committed()]
    assert target.rows("a", "k, v") == [(1, "c"), (2, "d"), (3, "e")]
    null = pa.record_batch({"k": pa.array([None], pa.int64()), "v": ["f"]})
    refused(target.commit(sink, target.prepare(sink, "a", 3, null))[0], "null value")
    target.sql("CREATE TABLE {schema}.without (k bigint, v text)")
    (outcome,) = target.commit(sink, target.prepare(sink, "without", 1, first))
    assert isinstance(outcome, RetryLater), "until somebody makes the index"
    assert "no unique or exclusion constraint" in outcome.reason


@pytest.mark.parametrize("settings", [{}, {"table": "shared", "tags": True}])
def test_replace_leaves_what_the_newest_run_has_read(target: Target, settings: dict[str, Any]) -> None:
    sink = target.sink(mode="replace", **settings)
    table = settings.get("table", "a")
    assert target.commit(sink, target.prepare(sink, "a", 1)) == [Committed()]
    if settings:
        assert target.commit(sink, target.prepare(sink, "b", 1, numbers(100))) == [Committed()]
    others = [(100,)] if settings else []
    newest = target.prepare(sink, "a", 2, numbers(4))
    assert target.commit(sink, newest) == [Committed()]
    assert target.rows(table) == [(4,), *others]
    with pytest.raises(ConflictError, match="can't be taken back"):
        target.abort(sink, newest)
    assert target.rows(table) == [(4,), *others]


def test_what_has_no_tags_or_not_all_of_its_rows_any_more_is_not_taken_back(target: Target) -> None:
    sink, tagged = target.sink(), target.sink(tags=True, evolve="add_columns")
    request = target.prepare(sink, "a", 1)
    assert target.commit(sink, request) == [Committed()]
    with pytest.raises(ConflictError, match="can't be taken back"):
        target.abort(sink, request)
    target.sql("ALTER TABLE {schema}.a ADD _distcommit_of bigint, ADD _distcommit_epoch bigint")
    with pytest.raises(ConflictError, match="not all there any more"):
        target.abort(tagged, request)
    assert target.rows("a") == [(1,), (2,), (3,)]
    assert target.ledger() == [("a", 1)]


# -- what the tables are


def test_a_missing_table_is_made_only_if_that_is_allowed(target: Target) -> None:
    sink = target.sink(create=False)
    refused(target.commit(sink, target.prepare(sink, "a", 1))[0], "there is none")
    assert target.ledger() == []
    making = target.sink()
    assert target.commit(making, target.prepare(making, "a", 1)) == [Committed()]


@pytest.mark.parametrize("made_again", [False, True])
def test_a_table_that_was_dropped_is_not_made_in_silence(target: Target, made_again: bool) -> None:
    sink = target.sink()
    assert target.commit(sink, target.prepare(sink, "a", 1)) == [Committed()]
    second = target.prepare(sink, "a", 2)
    target.sql("DROP TABLE {schema}.a")
    if made_again:
        target.sql("CREATE TABLE {schema}.a (n bigint)")
    refused(beside_others(target, sink, second), "made again" if made_again else "there is none", "target_oid")
    target.sql("UPDATE {schema}.distcommit_ledger SET target_oid = NULL WHERE dataset = 'a'")
    assert target.commit(sink, second) == [Committed()]
    assert target.rows("a") == [(1,), (2,), (3,)]


def test_a_shared_table_that_was_dropped_is_not_made_for_a_new_dataset(target: Target) -> None:
    sink = target.sink(table="shared")
    assert target.commit(sink, target.prepare(sink, "a", 1)) == [Committed()]
    target.sql("DROP TABLE {schema}.shared")
    refused(target.commit(sink, target.prepare(sink, "b", 1))[0], "there is none")


@pytest.mark.parametrize("made", ["UNLOGGED TABLE {schema}.bad (n bigint)", "VIEW {schema}.bad AS SELECT 1 AS n"])
def test_what_does_not_keep_rows_is_refused(target: Target, made: str) -> None:
    target.sql(f"CREATE {made}")
    sink = target.sink()
    refused(beside_others(target, sink, target.prepare(sink, "bad", 1)), "no ordinary table")


def test_a_trigger_that_leaves_rows_out_is_found(target: Target) -> None:
    target.sql("CREATE TABLE {schema}.bad (n bigint)")
    body = "BEGIN IF NEW.n = 2 THEN RETURN NULL; END IF; RETURN NEW; END"
    target.sql(f"CREATE FUNCTION {{schema}}.leaves() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
    target.sql("CREATE TRIGGER leaves BEFORE INSERT ON {schema}.bad FOR EACH ROW EXECUTE FUNCTION {schema}.leaves()")
    sink = target.sink()
    refused(beside_others(target, sink, target.prepare(sink, "bad", 1)), "3 were sent, 2 came in")
    assert target.rows("bad") == []


def test_names_that_the_database_would_shorten_are_tables_of_their_own(target: Target) -> None:
    sink, urns = target.sink(), ["x" * 63, "x" * 64, "x" * 65, "distcommit_ledger", "Case", "case", 'a"b; --', "a.b/c"]
    assert target.commit(sink, *(target.prepare(sink, urn, 1) for urn in urns)) == [Committed()] * len(urns)
    asked = f"SELECT count(*) FROM pg_tables WHERE schemaname = '{target.schema}'"
    assert target.sql(asked) == [(len(urns) + 1,)]


# -- rights, locks, servers


def test_without_rights_a_dataset_waits_for_them(target: Target) -> None:
    user = f"u{uuid.uuid4().hex[:8]}"
    plain = target.sink()
    assert target.commit(plain, target.prepare(plain, "a", 1), target.prepare(plain, "b", 1)) == [Committed()] * 2
    target.sql(f"CREATE ROLE {user} LOGIN PASSWORD 'secret'")
    target.sql(f"GRANT USAGE ON SCHEMA {{schema}} TO {user}")
    target.sql(f"GRANT ALL ON {{schema}}.distcommit_ledger, {{schema}}.b TO {user}")
    sink = target.sink(url=target.server.url.replace("reader", user), password="secret")
    second = [target.prepare(sink, urn, 2) for urn in ("a", "b", "new")]
    outcomes = target.commit(sink, *second)
    assert outcomes[1] == Committed()
    for outcome in (outcomes[0], outcomes[2]):
        assert isinstance(outcome, RetryLater)
        assert "permission denied" in outcome.reason
    target.sql(f"GRANT ALL ON {{schema}}.a TO {user}")
    target.sql(f"GRANT ALL ON SCHEMA {{schema}} TO {user}")
    assert target.commit(sink, *second) == [Committed(), AlreadyCommitted(), Committed()]
    assert len(target.rows("a")) == len(target.rows("b")) == 6
    target.sql(f"DROP OWNED BY {user}; DROP ROLE {user}")


def test_what_is_committed_is_on_disk_whatever_the_role_says(target: Target) -> None:
    """`synchronous_commit = off` answers before anything is written: a crash would take what counts as committed."""
    target.sql("CREATE TABLE {schema}.a (n bigint, s text DEFAULT current_setting('synchronous_commit'))")
    target.sql("ALTER ROLE reader SET synchronous_commit = off")
    try:
        sink = target.sink()
        assert target.commit(sink, target.prepare(sink, "a", 1)) == [Committed()]
    finally:
        target.sql("ALTER ROLE reader RESET synchronous_commit")
    assert {setting for _, setting in target.rows("a", "n, s")} == {"on"}


def test_commit_of_a_failed_transaction_says_nothing_by_itself(target: Target) -> None:
    """Why the tag of COMMIT is looked at."""

    def fails(connection: psycopg.Connection) -> None:
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1 / 0")

    with target.server.connect() as naive:
        naive.autocommit = False
        fails(naive)
        naive.commit()  # raises nothing
    with (
        target.server.connect() as connection,
        pytest.raises(TransientError, match="not committed"),
        transaction(connection),
    ):
        fails(connection)


def test_a_table_can_not_be_altered_between_the_look_and_the_rows(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = target.sink()
    target.sql("CREATE TABLE {schema}.a (n bigint)")
    copy, seen = Table.copy, []

    def after_an_alter(self: Table, *arguments: Any, **named: Any) -> None:
        with target.server.connect() as other:
            other.execute("SET lock_timeout = '200ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable) as caught:
                target.sql("ALTER TABLE {schema}.a ALTER n TYPE double precision", other)
            seen.append(caught)
        copy(self, *arguments, **named)

    monkeypatch.setattr(Table, "copy", after_an_alter)
    assert target.commit(sink, target.prepare(sink, "a", 1)) == [Committed()]
    assert seen
    assert target.rows("a") == [(1,), (2,), (3,)]


def test_two_committers_at_once_in_any_order_of_datasets(target: Target) -> None:
    sink, urns = target.sink(table="shared", evolve="add_columns"), [f"d{number}" for number in range(20)]
    requests = [target.prepare(sink, urn, 1) for urn in urns]
    answers: list[list[CommitOutcome]] = []

    def commits(mine: list[CommitRequest]) -> None:
        answers.append(target.commit(sink, *mine))

    both = [threading.Thread(target=commits, args=(mine,)) for mine in (requests, requests[::-1])]
    for each in both:
        each.start()
    for each in both:
        each.join()
    assert len(answers) == 2
    assert sum(outcome == Committed() for answer in answers for outcome in answer) == len(urns)
    assert len(target.rows("shared")) == 3 * len(urns)


def test_an_answer_that_is_lost_after_the_commit_is_found_in_the_ledger(target: Target) -> None:
    with LossyProxy(target.server.port) as proxy:
        sink = target.sink(url=target.server.url.replace(f":{target.server.port}/", f":{proxy.port}/"))
        assert target.commit(sink, target.prepare(sink, "b", 1)) == [Committed()]
        request = target.prepare(sink, "a", 1)
        proxy.lose_answer_to(rb"COMMIT\0")
        with pytest.raises(psycopg.OperationalError):
            target.commit(sink, request)
        assert proxy.wait_for_loss()
        for _ in range(2):
            assert target.commit(sink, request) == [AlreadyCommitted()]
    assert target.rows("a") == [(1,), (2,), (3,)]


def test_a_server_that_is_killed_and_back_loses_nothing(target: Target) -> None:
    sink = target.sink()
    first, second = target.prepare(sink, "a", 1), target.prepare(sink, "a", 2, numbers(4))
    assert target.commit(sink, first) == [Committed()]
    committer = sink.open_committer(target.context)
    target.server.kill()
    with pytest.raises(psycopg.OperationalError):
        committer.commit([second])
    with pytest.raises(psycopg.OperationalError):
        committer.probe()
    committer.close()
    target.server.restart()
    assert target.commit(sink, first, second) == [AlreadyCommitted(), Committed()]
    assert target.rows("a") == [(1,), (2,), (3,), (4,)]


# -- another target than the store knows


def drop_ledger(target: Target) -> None:
    target.sql("DROP TABLE {schema}.distcommit_ledger")


def put_back(target: Target) -> None:
    target.sql("UPDATE {schema}.distcommit_ledger SET epoch = 1, base = 0")


@pytest.mark.parametrize("harm", [drop_ledger, put_back])
def test_a_target_that_is_not_the_one_the_store_knows_is_refused(
    target: Target, harm: Callable[[Target], None]
) -> None:
    sink = target.sink()
    for epoch, bases in ((1, (0,)), (2, (1,))):
        assert target.commit(sink, target.prepare(sink, "a", epoch, bases=bases)) == [Committed()]
    harm(target)
    third = target.prepare(sink, "a", 3, bases=(2,))
    refused(beside_others(target, sink, third), "not the target that the store knows")
    assert len(target.rows("a")) == 6


def test_a_zombie_of_an_older_run_changes_nothing(target: Target) -> None:
    sink = target.sink()
    old, new = target.prepare(sink, "a", 1, bases=(0,)), target.prepare(sink, "a", 2, numbers(9), bases=(0,))
    assert target.commit(sink, new) == [Committed()]
    assert isinstance(target.commit(sink, old)[0], FailedForGood)  # what it says of it counts nowhere: it is fenced
    assert target.rows("a") == [(9,)]


def test_the_ledger_is_of_one_store_and_does_not_grow_with_runs(target: Target) -> None:
    sink, origin = target.sink(), Origin(Provenance("partition", "offset"))
    for epoch in range(1, 8):
        batch = pa.record_batch({"partition": ["0"], "offset": [epoch]})
        assert target.commit(sink, target.prepare(sink, "a", epoch, batch, origin=origin)) == [Committed()]
    committer = sink.open_committer(target.context)
    (row,) = committer.ledger()
    committer.close()
    assert (row.epoch, row.base, row.covered[0].rows, row.covered[0].twice) == (7, 6, 7, 0)
    (size,) = target.sql("SELECT pg_column_size(covered) FROM {schema}.distcommit_ledger")[0]
    assert size < 400
    other = sink.open_committer(CommitterContext(LocalFileSystem(), "", "", "another store"))
    assert [*other.ledger()] == []
    other.close()
