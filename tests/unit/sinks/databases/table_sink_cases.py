"""Cases for every sink that writes rows to tables of a database: a class to subclass, with a fixture `target` that
provides the database."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from distcommit.core.errors import ConflictError, CorruptError, UnknownVersionError
from distcommit.core.interfaces.committer import (
    AlreadyCommitted,
    CommitOutcome,
    CommitRequest,
    Committed,
    CommitterContext,
    HeldBack,
    RetryLater,
    releasing,
)
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.sink import Origin
from distcommit.core.interfaces.sink_metrics import SinkMetrics
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.databases.connection_pool import close_idle_connections
from distcommit.sinks.databases.ledger_table_committer import LedgerTableCommitter
from distcommit.sinks.databases.table_sink import TableSink
from tests.servers.lossy_proxy import LossyProxy
from tests.unit.sinks.databases.commit_steps import Committing, numbers, refused


class TableTarget(Committing, ABC):
    """A database of one test, which the test inspects with the database's plain client."""

    quote: ClassVar[str] = '"'
    forgotten: ClassVar[str] = "target"
    """The ledger's column that is set to null if a table is to count as the one that was there."""

    @abstractmethod
    def sink(self, **settings: Any) -> TableSink:
        """Return a sink that writes to the database."""

    @abstractmethod
    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Execute the test's statements in one session; return the rows of the last one."""

    @abstractmethod
    def tables(self) -> set[str]:
        """Return the names of all tables."""

    def rows(self, table: str, columns: str = "n") -> list[tuple[Any, ...]]:
        return self.sql(f"SELECT {columns} FROM {self.quoted(table)} ORDER BY 1")

    def ledger(self) -> list[tuple[Any, ...]]:
        return self.sql("SELECT dataset, epoch FROM distcommit_ledger WHERE store <> '' ORDER BY 1")

    def quoted(self, name: str) -> str:
        return f"{self.quote}{name.replace(self.quote, self.quote * 2)}{self.quote}"

    def beside_others(self, sink: TableSink, bad: CommitRequest) -> CommitOutcome:
        """Return the outcome of a request committed between two good ones; check that it wrote nothing."""
        good = [self.prepare(sink, urn, bad.epoch) for urn in ("good one", "other")]
        before = self.ledger() if "distcommit_ledger" in self.tables() else []
        first, outcome, last = self.commit(sink, good[0], bad, good[1])
        assert (first, last) == (Committed(), Committed())
        assert self.rows("good one") == self.rows("other") == [(1,), (2,), (3,)]
        assert {row for row in self.ledger() if row[0] == bad.dataset_urn} <= set(before)
        return outcome

    def refuses_rows(self, columns: str, rows: pa.RecordBatch, message: str) -> None:
        """Check that such rows fail alone in a table of these columns with this message; a table `others` has keys."""
        self.sql("CREATE TABLE others (n bigint PRIMARY KEY)", f"CREATE TABLE bad ({columns})")
        sink = self.sink()
        refused(self.beside_others(sink, self.prepare(sink, "bad", 1, rows)), message)
        assert self.rows("bad", "*") == []

    def reads_back(self, columns: Mapping[str, tuple[pa.Array, Any]]) -> None:
        """Check that columns of a value and a null are read back by the plain client."""
        batch = pa.record_batch({"n": [0, 1], **{name: array for name, (array, _) in columns.items()}})
        again = pa.concat_batches([batch, batch]).slice(2, 2)  # with offsets into the array of which it is a slice
        sink = self.sink()
        sink.check_schema(batch.schema)
        assert self.commit(sink, self.prepare(sink, "a", 1, batch, again)) == [Committed()]
        for name, (_, expected) in columns.items():
            values = [value for _, value in self.rows("a", f"n, {self.quoted(name)}")]
            assert values == [expected, expected, None, None], name


class ServerTarget(TableTarget):
    """A database of a server.

    Attributes:
        server: The server, which a test can kill and start again.
        url: The database's URL with the server's own port.
    """

    raised: ClassVar[type[Exception]]
    """What the client raises once the server is gone."""
    narrow_float: ClassVar[str] = "real"
    """The type of floats of 32 bits."""
    commit_sent: ClassVar[bytes]
    """How COMMIT looks on the wire, as a regular expression."""
    schema_prefix: str = ""
    """The qualifier of table names in a committer's session."""
    session_id: ClassVar[str]
    """The expression of the session's id."""
    session_state: ClassVar[Mapping[str, str]]
    """Statements that change a session, each with a query of what it changes."""
    server: Any
    url: str

    def session(self, sink: TableSink, *statements: str) -> tuple[Any, Any]:
        """Execute statements by a committer, and release it. Return its session's id and the last result."""
        with releasing(sink.open_committer(self.context)) as committer:
            assert isinstance(committer, LedgerTableCommitter)
            results = [committer.execute(statement) for statement in (f"SELECT {self.session_id}", *statements)]
            return results[0].fetchone(), results[-1].fetchone()


def drop_ledger(target: TableTarget) -> None:
    target.sql("DROP TABLE distcommit_ledger")


def put_back(target: TableTarget) -> None:
    target.sql("UPDATE distcommit_ledger SET epoch = 1, base = 0")


class TableSinkCases:
    """Cases to subclass where a fixture `target` is a `TableTarget`."""

    # -- columns

    def test_columns_are_added_if_allowed(self, target: TableTarget) -> None:
        wider = pa.record_batch({"n": [4], "more": ["x"], "and more": [1]})
        widest = pa.record_batch({"n": [6], "last": ["y"]})
        plain, adding = target.sink(), target.sink(evolve="add_columns")
        assert target.commit(plain, target.prepare(plain, "a", 1)) == [Committed()]
        refused(target.beside_others(plain, target.prepare(plain, "a", 2, wider)), "has no column 'more'")
        third = target.prepare(adding, "a", 3, numbers(3), wider, numbers(5), widest)
        assert target.commit(adding, third) == [Committed()]
        before = [(number, None, None) for number in (1, 2, 3, 3)]
        assert target.rows("a", "n, more, last") == [*before, (4, "x", None), (5, None, None), (6, None, "y")]
        assert target.commit(adding, third) == [AlreadyCommitted()]

    # -- modes

    def test_upsert_keeps_the_last_row_of_each_key(self, target: TableTarget) -> None:
        sink = target.sink(mode="upsert", keys=["k", "l"])
        first = pa.record_batch({"k": ["a", "A", "a ", "a"], "l": [1, 1, 1, 1], "v": ["1", "2", "3", "4"]})
        assert target.commit(sink, target.prepare(sink, "a", 1, first)) == [Committed()]
        assert set(target.rows("a", "k, v")) == {("a", "4"), ("A", "2"), ("a ", "3")}, "keys are compared bytewise"
        second = pa.record_batch({"k": ["A", "b"], "l": [1, 1], "v": ["5", "6"]})
        assert target.commit(sink, target.prepare(sink, "a", 2, second)) == [Committed()]
        assert set(target.rows("a", "k, v")) == {("a", "4"), ("A", "5"), ("a ", "3"), ("b", "6")}
        null = pa.record_batch({"k": pa.array([None], pa.string()), "l": [1], "v": ["f"]})
        refused(target.commit(sink, target.prepare(sink, "a", 3, null))[0], "null")

    @pytest.mark.parametrize("settings", [{}, {"table": "shared", "tags": True}])
    def test_replace_keeps_only_the_rows_of_the_newest_run(self, target: TableTarget, settings: dict[str, Any]) -> None:
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
            target.withdraw(sink, newest)
        assert target.rows(table) == [(4,), *others]

    def test_commit_without_tags_or_with_missing_rows_is_not_rolled_back(self, target: TableTarget) -> None:
        plain, tagged = target.sink(), target.sink(tags=True)
        requests = {sink: target.prepare(sink, urn, 1) for sink, urn in ((plain, "a"), (tagged, "b"))}
        assert [target.commit(sink, request) for sink, request in requests.items()] == [[Committed()]] * 2
        with pytest.raises(ConflictError, match="can't be taken back"):
            target.withdraw(plain, requests[plain])
        target.sql("DELETE FROM b WHERE n = 2")
        with pytest.raises(ConflictError, match="some of the committed rows are missing"):
            target.withdraw(tagged, requests[tagged])
        assert (target.rows("a"), target.rows("b")) == ([(1,), (2,), (3,)], [(1,), (3,)])
        assert target.ledger() == [("a", 1), ("b", 1)]

    @pytest.mark.parametrize("version", [0, 2])
    def test_ledger_row_of_another_version_is_refused_by_name_and_left_alone(
        self, target: TableTarget, version: int
    ) -> None:
        sink = target.sink(tags=True)
        first = target.prepare(sink, "a", 1)
        assert target.commit(sink, first) == [Committed()]
        covered = f'{{"version": {version}, "entries": [1]}}'
        target.sql(f"UPDATE distcommit_ledger SET covered = '{covered}' WHERE dataset = 'a'")
        before = target.sql("SELECT * FROM distcommit_ledger ORDER BY dataset, store")
        expected = rf"unknown format version.*dataset=a.*expected version 1; found version {version}\b"
        for request in (first, target.prepare(sink, "a", 2, numbers(4))):
            with pytest.raises(UnknownVersionError, match=expected):
                target.commit(sink, request)
        with pytest.raises(UnknownVersionError, match=expected):
            target.withdraw(sink, first)
        committer = sink.open_committer(target.context)
        with pytest.raises(UnknownVersionError, match=expected):
            [*committer.ledger()]
        committer.close()
        assert target.rows("a") == [(1,), (2,), (3,)]
        assert target.sql("SELECT * FROM distcommit_ledger ORDER BY dataset, store") == before

    @pytest.mark.parametrize("covered", ["{}", '{"version": "2"}', "[1]"])
    def test_damaged_ledger_row_is_reported_as_damage(self, target: TableTarget, covered: str) -> None:
        sink = target.sink()
        request = target.prepare(sink, "a", 1)
        assert target.commit(sink, request) == [Committed()]
        target.sql(f"UPDATE distcommit_ledger SET covered = '{covered}' WHERE dataset = 'a'")
        with pytest.raises(CorruptError, match=r"LEDGER_CORRUPT: .*dataset=a") as caught:
            target.commit(sink, request)
        assert type(caught.value) is CorruptError

    def test_deep_audit_counts_rows_only_where_they_are_tagged(self, target: TableTarget) -> None:
        tagged, plain = target.sink(tags=True, table="shared"), target.sink()
        assert target.commit(tagged, *(target.prepare(tagged, urn, 1) for urn in ("a", "b"))) == [Committed()] * 2
        assert target.commit(plain, target.prepare(plain, "c", 1)) == [Committed()]
        target.sql("INSERT INTO shared (n) VALUES (5)")
        of_a = "(SELECT tag FROM distcommit_ledger WHERE dataset = 'a')"
        target.sql(f"DELETE FROM shared WHERE n = 1 AND _distcommit_of = {of_a}")
        for sink, urn, rows in ((tagged, "a", 2), (tagged, "b", 3), (plain, "c", None)):
            committer = sink.open_committer(target.context)
            assert committer.visible_rows(urn, "main") == rows
            committer.close()

    # -- what the tables are

    def test_missing_table_is_created_only_if_allowed(self, target: TableTarget) -> None:
        sink, making = target.sink(create=False), target.sink()
        refused(target.commit(sink, target.prepare(sink, "a", 1))[0], "does not exist")
        assert target.ledger() == []
        assert target.commit(making, target.prepare(making, "a", 1)) == [Committed()]

    @pytest.mark.parametrize("made_again", [False, True])
    def test_dropped_table_is_not_recreated_silently(self, target: TableTarget, made_again: bool) -> None:
        sink = target.sink()
        assert target.commit(sink, target.prepare(sink, "a", 1)) == [Committed()]
        second = target.prepare(sink, "a", 2)
        target.sql("DROP TABLE a")
        if made_again:
            target.sql("CREATE TABLE a (n bigint)")
        problem = "was dropped and recreated" if made_again else "does not exist"
        refused(target.beside_others(sink, second), problem, f"set {target.forgotten} to null")
        target.sql(f"UPDATE distcommit_ledger SET {target.forgotten} = NULL WHERE dataset = 'a'")
        assert target.commit(sink, second) == [Committed()]
        assert target.rows("a") == [(1,), (2,), (3,)]

    def test_altered_table_is_still_the_same_table(self, target: TableTarget) -> None:
        sink, adding = target.sink(), target.sink(evolve="add_columns")
        assert target.commit(sink, target.prepare(sink, "a", 1)) == [Committed()]
        target.sql("ALTER TABLE a ADD COLUMN by_hand bigint")
        wider = pa.record_batch({"n": [4], "more": [5]})
        assert target.commit(adding, target.prepare(adding, "a", 2, wider)) == [Committed()]
        assert target.commit(sink, target.prepare(sink, "a", 3, numbers(5))) == [Committed()]
        assert target.rows("a") == [(number,) for number in range(1, 6)]

    def test_column_dropped_and_added_again_receives_the_staged_values(self, target: TableTarget) -> None:
        sink = target.sink()
        rows = pa.record_batch({"n": [1, 2], "more": [10, 20]})
        assert target.commit(sink, target.prepare(sink, "a", 1, rows)) == [Committed()]
        staged = target.prepare(sink, "a", 2, pa.record_batch({"n": [3], "more": [30]}))
        target.sql(*(f"ALTER TABLE a {change}" for change in ("DROP COLUMN more", "ADD COLUMN more bigint")))
        assert target.commit(sink, staged) == [Committed()]
        assert target.rows("a", "n, more") == [(1, None), (2, None), (3, 30)], "the staged value is written"

    def test_missing_column_fails_the_commit_until_it_is_added_again(self, target: TableTarget) -> None:
        sink = target.sink()
        rows = pa.record_batch({"n": [1], "more": ["x"]})
        assert target.commit(sink, target.prepare(sink, "a", 1, rows)) == [Committed()]
        staged = target.prepare(sink, "a", 2, pa.record_batch({"n": [2], "more": ["y"]}))
        target.sql("ALTER TABLE a DROP COLUMN more")
        refused(target.commit(sink, staged)[0], "has no column 'more'", "release the dataset with retry")
        target.sql("ALTER TABLE a ADD COLUMN more varchar(9)")
        assert target.commit(sink, staged) == [Committed()]
        assert target.rows("a", "n, more") == [(1, None), (2, "y")]

    def test_dropped_shared_table_is_not_created_for_a_new_dataset(self, target: TableTarget) -> None:
        sink = target.sink(table="shared")
        assert target.commit(sink, target.prepare(sink, "a", 1)) == [Committed()]
        target.sql("DROP TABLE shared")
        new = target.prepare(sink, "b", 1)
        refused(target.commit(sink, new)[0], "does not exist")
        target.sql(f"UPDATE distcommit_ledger SET {target.forgotten} = NULL")
        assert target.commit(sink, new) == [Committed()]

    # -- all or none

    def test_requests_of_one_table_are_committed_atomically(self, target: TableTarget) -> None:
        """Also if they need more than one transaction, and if the table is created and widened for them."""
        sink = target.sink(table="shared", evolve="add_columns")
        wider = pa.record_batch({"n": [1], "more": [1]})
        good = [target.prepare(sink, f"d{number:02}", 1, numbers(0), wider) for number in range(70)]
        bad = target.prepare(sink, "bad", 1, pa.record_batch({"n": ["no number"]}))
        ready = target.prepare(sink, "first", 1)
        assert target.commit_atomically(sink, ready) == [Committed()]
        for requests in ([*good, bad], [bad, *good]):
            outcomes = target.commit_atomically(sink, ready, *requests)
            assert outcomes[0] == AlreadyCommitted()
            for request, outcome in zip(requests, outcomes[1:], strict=True):
                if request is bad:
                    refused(outcome, "'n'")
                else:
                    assert outcome == HeldBack("bad")
            assert target.rows("shared") == [(1,), (2,), (3,)]
            assert target.ledger() == [("first", 1)]
        assert target.commit_atomically(sink, *good) == [Committed()] * 70
        assert target.commit_atomically(sink, *good, ready) == [AlreadyCommitted()] * 71
        assert len(target.rows("shared")) == 3 + 2 * 70

    def test_request_that_must_wait_holds_back_the_others_of_its_table(self, target: TableTarget) -> None:
        sink = target.sink(table="shared", create=False)
        target.sql("CREATE TABLE shared (n bigint)")
        one, other = (target.prepare(sink, urn, 1) for urn in ("one", "other"))
        (path, _), *_ = other.infos[0]["files"]
        (target.folder / path).rename(target.folder / "away")
        (target.folder / path).mkdir()  # it can't be read now
        held, waits = target.commit_atomically(sink, one, other)
        assert held == HeldBack("other")
        assert isinstance(waits, RetryLater)
        assert target.rows("shared") == []
        (target.folder / path).rmdir()
        (target.folder / "away").rename(target.folder / path)
        assert target.commit_atomically(sink, one, other) == [Committed()] * 2

    def test_names_that_the_database_would_change_have_distinct_tables(self, target: TableTarget) -> None:
        urns = [*("x" * length for length in (63, 64, 65, 300, 301, 1024)), "distcommit_ledger", "Case", "case"]
        urns += ['a"b`; --%s', "a.b/c", "\U0001f600", "\U0001f601", "a ", "a", "sqlite_a", "_sqlite_a"]
        sink = target.sink()
        assert target.commit(sink, *(target.prepare(sink, urn, 1) for urn in urns)) == [Committed()] * len(urns)
        assert len(target.tables()) == len(urns) + 1
        assert sorted(target.ledger()) == [(urn, 1) for urn in sorted(urns)]

    # -- committers

    def test_concurrent_committers_succeed_in_any_order_of_datasets(self, target: TableTarget) -> None:
        sink, urns = target.sink(table="shared", evolve="add_columns"), [f"d{number}" for number in range(20)]
        wider = pa.record_batch({"n": [1], "more": [1]})
        requests = [target.prepare(sink, urn, 1, numbers(0), wider) for urn in urns]
        answers: list[list[CommitOutcome]] = []
        both = [
            threading.Thread(target=lambda ordered=ordered: answers.append(target.commit(sink, *ordered)))
            for ordered in (requests, requests[::-1])
        ]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        assert len(answers) == 2
        assert sum(outcome == Committed() for answer in answers for outcome in answer) == len(urns)
        assert len(target.rows("shared")) == 2 * len(urns)

    def test_zombie_of_an_older_run_changes_nothing(self, target: TableTarget) -> None:
        sink = target.sink()
        old, new = target.prepare(sink, "a", 1, bases=(0,)), target.prepare(sink, "a", 2, numbers(9), bases=(0,))
        assert target.commit(sink, new) == [Committed()]
        refused(target.commit(sink, old)[0])  # the zombie is fenced, so its answer does not count
        assert target.rows("a") == [(9,)]
        assert target.commit(sink, new) == [AlreadyCommitted()]

    # -- another target than the store knows

    @pytest.mark.parametrize("harm", [drop_ledger, put_back])
    def test_target_that_the_store_does_not_know_is_rejected(
        self, target: TableTarget, harm: Callable[[TableTarget], None]
    ) -> None:
        sink = target.sink()
        for epoch, bases in ((1, (0,)), (2, (1,))):
            assert target.commit(sink, target.prepare(sink, "a", epoch, bases=bases)) == [Committed()]
        harm(target)
        third = target.prepare(sink, "a", 3, bases=(2,))
        refused(target.beside_others(sink, third), "not the target that the store knows")
        assert len(target.rows("a")) == 6

    def test_commit_made_before_its_ledger_was_removed_is_not_repeated(self, target: TableTarget) -> None:
        """Models a kill between a dataset's first commit and the record that it is done."""
        sink = target.sink()
        first, other = target.prepare(sink, "a", 1, bases=(0,)), target.prepare(sink, "b", 1, bases=(0,))
        assert target.commit(sink, first) == [Committed()]
        ((name,),) = target.sql("SELECT commit_id FROM distcommit_ledger WHERE store = ''")
        drop_ledger(target)
        for _ in range(2):
            refused(target.commit(sink, first)[0], "but the present ledger is", name, "accept")
        refused(target.commit_atomically(sink, first)[0], "but the present ledger is")
        with pytest.raises(ConflictError, match="it is unknown"):
            target.withdraw(sink, first)
        assert target.rows("a") == [(1,), (2,), (3,)]
        refused(target.commit(sink, other)[0], f"UPDATE distcommit_ledger SET commit_id = '{name}'")
        target.sql(f"UPDATE distcommit_ledger SET commit_id = '{name}' WHERE store = ''")
        assert target.commit(sink, other) == [Committed()]
        again = target.prepare(sink, "c", 2, bases=(0,))
        assert target.commit(sink, again) == [Committed()]

    def test_ledger_with_deleted_rows_is_another_ledger(self, target: TableTarget) -> None:
        sink = target.sink()
        first = target.prepare(sink, "a", 1, bases=(0,))
        assert target.commit(sink, first) == [Committed()]
        target.sql("DELETE FROM distcommit_ledger")
        refused(target.commit(sink, first)[0], "but the present ledger is")
        assert target.rows("a") == [(1,), (2,), (3,)]

    def test_ledger_belongs_to_one_store_and_does_not_grow_with_runs(self, target: TableTarget) -> None:
        sink, origin = target.sink(), Origin(Provenance("partition", "offset"))
        for epoch in range(1, 8):
            batch = pa.record_batch({"partition": ["0"], "offset": [epoch]})
            assert target.commit(sink, target.prepare(sink, "a", epoch, batch, origin=origin)) == [Committed()]
        committer = sink.open_committer(target.context)
        (row,) = committer.ledger()
        committer.close()
        assert (row.epoch, row.base, row.covered[0].rows, row.covered[0].duplicates) == (7, 6, 7, 0)
        ((covered,),) = target.sql("SELECT covered FROM distcommit_ledger WHERE store <> ''")
        assert len(str(covered)) < 400
        other = sink.open_committer(CommitterContext(LocalFileSystem(), "", "", "another store"))
        assert [*other.ledger()] == []
        other.close()


class ServerTableSinkCases(TableSinkCases):
    """Cases to subclass where the fixture `target` is a `ServerTarget`."""

    def test_columns_are_widened_if_allowed(self, target: ServerTarget) -> None:
        target.sql(
            f"CREATE TABLE a (n int NOT NULL DEFAULT 5, x {target.narrow_float}, s smallint DEFAULT 7, t varchar(3))",
            "INSERT INTO a (x, t) VALUES (0.5, 'old')",
        )
        plain, adding = target.sink(), target.sink(evolve="add_columns")
        wide = pa.record_batch({"n": [2**40], "x": pa.array([0.1], pa.float32()), "s": [1], "t": ["new"]})
        wider = pa.record_batch({"n": [1], "x": [0.1], "s": pa.array([2], pa.int32()), "more": [1]})
        refused(target.beside_others(plain, target.prepare(plain, "a", 1, wide)), "'n'")
        refused(target.commit(adding, target.prepare(adding, "a", 2, pa.record_batch({"t": ["long"]})))[0], "t")
        request = target.prepare(adding, "a", 3, wide, wider)
        assert target.commit(adding, request) == [Committed()]
        target.sql("INSERT INTO a (x) VALUES (0.1)")
        stored = target.rows("a", "n, x, s")
        assert [(n, s) for n, _, s in stored] == [(1, 2), (5, 7), (5, 7), (2**40, 1)], "defaults are kept"
        assert [x for n, x, _ in stored if n == 1] == [0.1]
        assert target.commit(adding, request) == [AlreadyCommitted()]
        target.sql("DELETE FROM a")
        assert target.commit(plain, target.prepare(plain, "a", 4, wide)) == [Committed()]

    def test_lost_answer_to_a_commit_is_recovered_from_the_ledger(self, target: ServerTarget) -> None:
        with LossyProxy(target.server.port) as proxy:
            sink = target.sink(url=target.url.replace(f":{target.server.port}/", f":{proxy.port}/"))
            assert target.commit(sink, target.prepare(sink, "b", 1)) == [Committed()]
            target.sql("CREATE TABLE a (n bigint)")
            request = target.prepare(sink, "a", 1)
            proxy.lose_answer_to(target.commit_sent)
            with pytest.raises(target.raised):
                target.commit(sink, request)
            assert proxy.wait_for_loss()
            for _ in range(2):
                assert target.commit(sink, request) == [AlreadyCommitted()]
        assert target.rows("a") == [(1,), (2,), (3,)]

    def test_session_is_kept_between_commits_in_its_first_state(self, target: ServerTarget) -> None:
        close_idle_connections()
        sink = target.sink()
        for change, query in target.session_state.items():
            session, before = target.session(sink, query)
            assert target.session(sink, change, query) != (session, before), "it is changed while the committer is open"
            assert target.session(sink, query) == (session, before)

    def test_session_with_an_open_transaction_or_a_rejected_statement_is_not_kept(self, target: ServerTarget) -> None:
        target.sql("CREATE TABLE a (n bigint CHECK (n < 2))", "CREATE TABLE b (n bigint)")
        sink = target.sink()
        with releasing(sink.open_committer(target.context)) as committer:
            assert isinstance(committer, LedgerTableCommitter)
            committer.execute("BEGIN")
            committer.execute(f"INSERT INTO {target.schema_prefix}b VALUES (1)")
        assert target.commit(sink, target.prepare(sink, "b", 1, numbers(2))) == [Committed()]
        assert target.rows("b") == [(2,)]
        before = target.session(sink)
        refused(target.commit(sink, target.prepare(sink, "a", 1))[0])
        assert target.session(sink) != before

    def test_server_restarted_between_commits_is_not_noticed(self, target: ServerTarget) -> None:
        sink = target.sink()
        assert target.commit(sink, target.prepare(sink, "a", 1)) == [Committed()]
        second = target.prepare(sink, "a", 2, numbers(4))
        target.server.restart()
        context = replace(target.context, metrics=SinkMetrics())
        with releasing(sink.open_committer(context)) as committer:
            assert committer.commit([second]) == [Committed()]
        assert [counter.count for counter in context.metrics.counters()] == [1], "one connection is opened"
        assert target.rows("a") == [(1,), (2,), (3,), (4,)]

    def test_killed_and_restarted_server_loses_nothing(self, target: ServerTarget) -> None:
        sink = target.sink()
        first, second = target.prepare(sink, "a", 1), target.prepare(sink, "a", 2, numbers(4))
        assert target.commit(sink, first) == [Committed()]
        committer = sink.open_committer(target.context)
        target.server.kill()
        for act in (lambda: committer.commit([second]), committer.probe):
            with pytest.raises(target.raised):
                act()
        committer.close()
        with pytest.raises(target.raised):
            sink.open_committer(target.context)
        target.server.restart()
        assert target.commit(sink, first, second) == [AlreadyCommitted(), Committed()]
        assert target.rows("a") == [(1,), (2,), (3,), (4,)]
