"""The Iceberg sink with a SQLite catalog: resulting tables, and rejections without any write."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import ManifestFile

from distcommit.core.errors import ConfigurationError, ConflictError, TransientError
from distcommit.core.interfaces.committer import (
    AbortedAttempt,
    AlreadyCommitted,
    CommitOutcome,
    Committed,
    FailedForGood,
    HeldBack,
    RetryLater,
)
from distcommit.sinks.base.table_names import plain_name
from distcommit.sinks.iceberg import committer
from distcommit.sinks.iceberg.catalog.open_catalogs import close_opened, opened
from distcommit.sinks.iceberg.catalog.sql_tables import SqlTables
from distcommit.sinks.iceberg.catalog.tables import Change
from distcommit.sinks.iceberg.settings import term_of
from distcommit.sinks.table_formats import ledger_files
from distcommit.sinks.table_formats.ledger_files import Ledger, Ledgers
from tests.unit.sinks.full_disk import assert_full_disk_harmless
from tests.unit.sinks.iceberg.iceberg_target import Target, ids
from tests.unit.sinks.unreadable_table import require_other_tables_work

moved = SqlTables._move


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    yield Target(tmp_path)
    close_opened()


def failed(outcome: CommitOutcome) -> str:
    assert isinstance(outcome, FailedForGood), outcome
    return outcome.reason


# -- names and settings


def test_each_dataset_has_a_distinct_plain_name() -> None:
    names = ["orders", "orders.eu", "orders_eu", "orders-eu", "ä", "1", "", "x" * 300, plain_name("orders.eu")]
    assert plain_name("orders") == "orders"
    assert plain_name("orders_eu") == "orders_eu"
    plain_names = {plain_name(name) for name in names}
    assert len(plain_names) == len(names)
    assert all(name.replace("_", "a").isalnum() and name.isascii() and len(name) <= 200 for name in plain_names)


@pytest.mark.parametrize("term", ["", "day()", "week(a)", "bucket(a)", "day(3, a)", "day(a"])
def test_invalid_partition_term_is_rejected(term: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        term_of(term)


# -- tables


def test_tables_are_created_partitioned_and_sorted_as_configured(target: Target) -> None:
    sink = target.sink(partition_by=["truncate(1, kind)", "id"], sort_by=["value"])
    rows = ids(1, 1, 2, 1, kind=["aa", "b", "ab", "ac"], value=[3, 2, 9, 1])
    assert target.commit(sink, target.prepare(sink, "t", 1, rows)) == [Committed()]
    table = target.table("t")
    assert sorted(table.inspect.files()["record_count"].to_pylist()) == [1, 1, 2]
    selected = table.scan(row_filter="kind = 'ac' or kind = 'aa'").to_arrow()
    assert selected["value"].to_pylist() == [1, 3]
    assert len(list(table.scan(row_filter="kind = 'b'").plan_files())) == 1, "the others are pruned"


def test_columns_are_added_and_widened_if_configured(target: Target) -> None:
    narrow = pa.table({"id": pa.array([1], pa.int32())})
    assert target.commit(target.sink(), target.prepare(target.sink(), "t", 1, narrow)) == [Committed()]
    with pytest.raises(ConfigurationError, match="no column note"):
        target.prepare(target.sink(), "t", 2, ids(2, note=["x"]))
    sink = target.sink(evolve="add_columns")
    assert target.commit(sink, target.prepare(sink, "t", 2, ids(2**40, note=["x"]))) == [Committed()]
    assert target.commit(sink, target.prepare(sink, "t", 3, narrow)) == [Committed()], "older records still fit"
    stored = target.table("t").scan().to_arrow().sort_by("id")
    assert stored.to_pydict() == {"id": [1, 1, 2**40], "note": [None, None, "x"]}


def lines(*of: dict[str, Any], optional: bool = True) -> pa.Table:
    """Return a record with a list of these structs, whose fields are optional or required."""
    struct = pa.struct([pa.field(name, pa.array([value]).type, optional) for name, value in of[0].items()])
    return pa.table({"id": [1], "lines": pa.array([of], pa.list_(pa.field("element", struct, optional)))})


@pytest.mark.parametrize("optional", [True, False])
def test_nested_fields_are_added_even_if_the_table_requires_the_earlier_ones(target: Target, optional: bool) -> None:
    sink = target.sink(evolve="add_columns")
    assert target.commit(sink, target.prepare(sink, "t", 1, lines({"sku": "a"}, optional=optional))) == [Committed()]
    lines_then: list[dict[str, Any]] = [{"sku": "b", "n": 2}, {"sku": "c"}, {"n": 4}]
    for epoch, line in enumerate(lines_then, 2):
        assert target.commit(sink, target.prepare(sink, "t", epoch, lines(line))) == [Committed()]
    stored = {str(line) for row in target.table("t").scan().to_arrow()["lines"].to_pylist() for line in row}
    more = {"{'sku': 'b', 'n': 2}", "{'sku': 'c', 'n': None}", "{'sku': None, 'n': 4}"}
    assert stored == {"{'sku': 'a', 'n': None}", *more}


def test_missing_required_nested_field_is_rejected(target: Target) -> None:
    sink = target.sink()
    target.commit(sink, target.prepare(sink, "t", 1, lines({"sku": "a", "n": 1}, optional=False)))
    assert target.commit(sink, target.prepare(sink, "t", 2, lines({"sku": "b", "n": 2}))) == [Committed()]
    with pytest.raises(ConfigurationError, match=r"a value does not fit.*column=lines.*sku.*make it optional"):
        target.prepare(sink, "t", 3, lines({"n": 4}))


def test_columns_that_do_not_fit_are_rejected_by_name(target: Target) -> None:
    sink = target.sink(evolve="add_columns")
    target.commit(sink, target.prepare(sink, "t", 1, ids(1)))
    with pytest.raises(ConfigurationError, match="column id is long, and records have string"):
        target.prepare(sink, "t", 2, pa.table({"id": ["x"]}))
    with pytest.raises(ConfigurationError, match="the table does not exist"):
        target.prepare(target.sink(create=False), "other", 1, ids(1))
    with pytest.raises(ConfigurationError, match="time"):
        sink.check_schema(pa.schema([("time", pa.timestamp("ns"))]))
    with pytest.raises(ConfigurationError, match="column=rounded"):
        sink.check_schema(pa.schema([("rounded", pa.decimal128(5, -2))]))
    with pytest.raises(ConfigurationError, match="does not fit"):
        target.prepare(sink, "t", 2, pa.table({"id": pa.array([2**63], pa.uint64())}))


@pytest.mark.parametrize("names", [("ID",), ("",)])
def test_column_name_that_is_empty_or_differs_only_in_case_is_rejected(target: Target, names: tuple[str]) -> None:
    sink = target.sink(evolve="add_columns")
    with pytest.raises(ConfigurationError, match=r"Iceberg cannot have a column of this name.*rename"):
        sink.check_schema(pa.schema([("id", pa.int64()), (names[0], pa.int64())]))
    target.commit(sink, target.prepare(sink, "t", 1, ids(1)))
    with pytest.raises(ConfigurationError, match="Iceberg cannot have a column of this name"):
        target.prepare(sink, "t", 2, pa.table({names[0]: [1]}))


def test_files_written_before_a_partition_change_are_committed_with_their_partitions(target: Target) -> None:
    sink = target.sink()
    request = target.prepare(sink, "t", 1, ids(1, 2))
    with target.table("t").update_spec() as spec:
        spec.add_identity("id")
    later = target.prepare(sink, "u", 1, ids(1))
    assert target.commit(sink, request, later) == [Committed(), Committed()]
    after = target.prepare(sink, "t", 2, ids(3))
    assert target.commit(sink, after) == [Committed()]
    assert target.rows("t") == [1, 2, 3]
    assert target.table("t").scan(row_filter="id = 2").count() == 1


# -- the proof


def test_commit_made_before_its_ledger_was_removed_is_not_repeated(target: Target) -> None:
    """Models a kill between a dataset's first commit and the record that it is done."""
    sink = target.sink(table="events")
    first, other = (target.prepare(sink, urn, 1, ids(number), bases=(0,)) for number, urn in enumerate("ab"))
    assert target.commit(sink, first) == [Committed()]
    with target.table("events").transaction() as change:
        change.remove_properties(
            *(name for name in target.table("events").properties if name.startswith("distcommit."))
        )
    for _ in range(2):
        assert "its ledger has no row of the dataset" in failed(target.commit(sink, first)[0])
    assert "its ledger has no row" in failed(target.committer(sink).commit_atomically([other, first])[1])
    assert target.rows("events") == [0]
    assert target.commit(sink, other) == [Committed()]
    target.committer(sink).withdraw([first])
    target.committer(sink).withdraw([first])
    assert target.rows("events") == [1], "the commit is rolled back, and the next run reads its records again"
    assert "taken back" in failed(target.commit(sink, first)[0])
    assert target.commit(sink, target.prepare(sink, "a", 2, ids(0), bases=(0,))) == [Committed()]
    assert target.rows("events") == [0, 1]


def test_proof_of_a_commit_survives_snapshot_expiry_and_orphan_removal(target: Target) -> None:
    sink = target.sink(table="all")
    requests = [target.prepare(sink, f"d{number}", 1, ids(number)) for number in range(60)]
    assert set(target.commit(sink, *requests)) == {Committed()}
    assert target.ledgers(), "the ledger is too large for a property"
    later = target.prepare(sink, "d0", 2, ids(100))
    assert target.commit(sink, later) == [Committed()]
    table = target.table("all")
    first = table.snapshots()[0].snapshot_id
    table.maintenance.expire_snapshots().by_id(first).commit()
    for path in (target.folder / "warehouse").rglob("*.avro"):
        if f"snap-{first}" in path.name:
            path.unlink()  # as a removal of orphan files does
    assert set(target.commit(sink, *requests[1:], later)) == {AlreadyCommitted()}
    assert isinstance(target.commit(sink, requests[0])[0], FailedForGood)  # another epoch has followed it
    assert target.rows("all") == [*range(60), 100]


def test_ledger_does_not_grow_with_commits_and_keeps_few_files(target: Target) -> None:
    sink = target.sink(table="all")
    target.commit(sink, *[target.prepare(sink, f"d{number}", 1, ids(number)) for number in range(60)])
    for epoch in range(2, 40):
        target.commit(sink, target.prepare(sink, "d0", epoch, ids(epoch), bases=(epoch - 1,)))
        assert len(target.ledgers()) <= 17
    properties = target.table("all").properties
    assert [name for name in properties if name.startswith("distcommit.")] == ["distcommit.store-1"]
    assert len(properties["distcommit.store-1"]) < 2000
    rows = {row.dataset_urn: row for row in target.committer(sink).ledger()}
    assert len(rows) == 60
    assert (rows["d0"].epoch, rows["d0"].base, rows["d0"].covered[0].rows) == (39, 38, 39)


def test_missing_or_damaged_ledger_is_never_guessed(target: Target) -> None:
    sink = target.sink(table="all")
    requests = [target.prepare(sink, f"d{number}", 1, ids(number)) for number in range(60)]
    target.commit(sink, *requests)
    (file,) = target.ledgers()
    before = target.table("all").metadata_location
    data = file.read_bytes()
    for damage in (file.unlink, lambda: file.write_bytes(data + b" ")):
        damage()
        outcomes = target.commit(sink, requests[0], target.prepare(sink, "new", 2, ids(7)))
        assert all("ledger is damaged or gone" in failed(outcome) for outcome in outcomes)
    assert target.table("all").metadata_location == before, "nothing was written"
    file.write_bytes(data)
    assert target.commit(sink, requests[0]) == [AlreadyCommitted()]


@pytest.mark.parametrize("who", ["commits", "takes back", "audits"])
def test_reader_of_a_just_superseded_ledger_reads_again(
    target: Target, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_INLINE_BYTES", "_MOST_DELTAS"):
        monkeypatch.setattr(ledger_files, name, 0)  # each commit then deletes the ledger's previous file
    sink = target.sink(table="all")
    first, second = (target.prepare(sink, f"d{number}", number, ids(number)) for number in (1, 2))
    target.commit(sink, first)
    reading, others = Ledgers.read, list[Any]()

    def overtaken(*arguments: Any) -> Ledger:
        if not others:
            others.append(1)
            others.extend(target.commit(sink, second))
        return reading(*arguments)

    monkeypatch.setattr(Ledgers, "read", overtaken)
    committer = target.committer(sink)
    if who == "commits":
        assert committer.commit([second]) == [AlreadyCommitted()]
    elif who == "takes back":
        committer.withdraw([first])
    else:
        assert sorted(row.dataset_urn for row in committer.ledger()) == ["d1", "d2"]
    assert others == [1, Committed()]
    assert target.rows("all") == ([2] if who == "takes back" else [1, 2])
    assert len(target.ledgers()) == 1


def test_older_target_or_store_is_rejected_without_a_write(target: Target) -> None:
    sink = target.sink()
    target.commit(sink, target.prepare(sink, "t", 1, ids(1)))
    copy = target.folder / "copy.db"
    shutil.copy(target.folder / "catalog.db", copy)
    assert target.commit(sink, target.prepare(sink, "t", 2, ids(2), bases=(1,))) == [Committed()]
    assert "not the target" in failed(target.commit(sink, target.prepare(sink, "t", 3, ids(3), bases=(1,)))[0])
    close_opened()
    shutil.copy(copy, target.folder / "catalog.db")
    assert "not the target" in failed(target.commit(sink, target.prepare(sink, "t", 3, ids(3), bases=(2,)))[0])
    assert target.rows("t") == [1]


def test_pyiceberg_alone_commits_twice_after_two_concurrent_lookups(target: Target) -> None:
    """This is why its own append is not used: it commits again on the new version without another lookup."""
    rows, marker = ids(1), {"epoch": "1"}
    with load_catalog("default", type="sql", **target.catalog) as catalog:
        catalog.create_namespace("n")
        catalog.create_table("n.t", rows.schema)
        both = [catalog.load_table("n.t") for _ in range(2)]
        assert not any(table.snapshots() for table in both), "neither lookup finds the marker"
        for table in both:
            table.append(rows, snapshot_properties=marker)
        assert target.rows("t") == [1, 1]
        table = catalog.load_table("n.t")
        epochs = [
            snapshot.summary.additional_properties.get("epoch") for snapshot in table.snapshots() if snapshot.summary
        ]
        assert epochs == ["1", "1"]
        table.append(rows)
        table.maintenance.expire_snapshots().by_ids(
            [snapshot.snapshot_id for snapshot in table.snapshots()[:2]]
        ).commit()
        (remaining,) = catalog.load_table("n.t").snapshots()
        assert remaining.summary is not None
        assert "epoch" not in remaining.summary.additional_properties, "the marker expires with its snapshot"


def test_concurrent_committers_at_one_version_commit_once(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyiceberg's own loop commits again on the new version without checking: both would succeed."""
    sink = target.sink()
    request = target.prepare(sink, "t", 1, ids(1))
    committing, others = SqlTables.commit, list[Any]()

    def overtaken(self: SqlTables, changes: Any, sync: Any) -> list[bool]:
        if not others:
            others.append(1)
            others.extend(target.commit(sink, request))
        return committing(self, changes, sync)

    monkeypatch.setattr(SqlTables, "commit", overtaken)
    committer = target.committer(sink)
    assert committer.commit([request]) == [AlreadyCommitted()]
    assert committer.retry_count == 1
    assert others == [1, Committed()]
    assert target.rows("t") == [1]
    metadata = list((target.folder / "warehouse" / "n" / "t" / "metadata").glob("*.avro"))
    assert len(metadata) == 2, "the losing commit's files are deleted"


def test_lost_answer_to_a_commit_is_looked_up(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = target.sink()
    request = target.prepare(sink, "t", 1, ids(1))
    committing, lost = SqlTables.commit, list[Any]()

    def without_answer(self: SqlTables, changes: Any, sync: Any) -> list[bool]:
        moved = committing(self, changes, sync)
        if not lost:
            lost.append(moved)
            raise ConnectionResetError("gone")
        return moved

    monkeypatch.setattr(SqlTables, "commit", without_answer)
    assert target.commit(sink, request) == [AlreadyCommitted()]
    assert target.rows("t") == [1]


def test_commit_whose_snapshot_expired_is_not_reported_lost(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is lost, the next epoch is committed on top, and the snapshot expires, but its manifest stays. Some
    catalogs list only the newest snapshot anyway."""
    sink = target.sink()
    first, second = (target.prepare(sink, "t", epoch, ids(epoch)) for epoch in (1, 2))
    committing, others = SqlTables.commit, list[Any]()

    def without_answer(self: SqlTables, changes: Any, sync: Any) -> list[bool]:
        moved = committing(self, changes, sync)
        if not others:
            others.append(1)
            others.extend(target.commit(sink, second))
            table = target.table("t")
            table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()
            raise ConnectionResetError("gone")
        return moved

    monkeypatch.setattr(SqlTables, "commit", without_answer)
    target.commit(sink, first)
    assert others == [1, Committed()]
    assert len(target.table("t").snapshots()) == 1
    assert target.rows("t") == [1, 2]


def test_pointers_that_others_move_repeatedly_are_not_reported_as_moved(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = target.sink()
    request = target.prepare(sink, "t", 1, ids(1))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with monkeypatch.context() as patched:
        patched.setattr(SqlTables, "_move", lambda self, change, target: {**moved(self, change, target), "was": ""})
        (outcome,) = target.commit(sink, request)
        assert isinstance(outcome, RetryLater)
        assert "during each try" in outcome.reason
    assert target.rows("t") == []
    assert target.commit(sink, request) == [Committed()]


# -- bad luck with one table


def test_dropped_or_recreated_table_does_not_affect_other_tables(target: Target) -> None:
    sink = target.sink()
    dropped, again, fine = (target.prepare(sink, name, 1, ids(1)) for name in ("dropped", "again", "fine"))
    with load_catalog("default", type="sql", **target.catalog) as catalog:
        catalog.drop_table(("n", "dropped"))
        schema = catalog.load_table(("n", "again")).schema()
        catalog.drop_table(("n", "again"))
        catalog.create_table(("n", "again"), schema)
    one, two, three = target.commit(sink, dropped, again, fine)
    assert "does not exist any more" in failed(one)
    assert "was recreated" in failed(two)
    assert three == Committed()
    assert target.rows("again") == []


def test_error_of_a_recreated_table_used_by_another_dataset_does_not_suggest_dropping_it(target: Target) -> None:
    """The table contains rows of the other dataset, as its ledger records."""
    sink = target.sink(table="events")
    target.commit(sink, *(target.prepare(sink, urn, 1, ids(1)) for urn in ("a", "b")))
    with load_catalog("default", type="sql", **target.catalog) as catalog:
        catalog.drop_table(("n", "events"))
    assert target.commit(sink, target.prepare(sink, "a", 2, ids(2), bases=(0,))) == [Committed()]
    reason = failed(target.commit(sink, target.prepare(sink, "b", 2, ids(3), bases=(1,)))[0])
    assert "was dropped and recreated" in reason
    assert "drop the table" not in reason
    assert target.rows("events") == [2]


def test_unreadable_table_does_not_affect_other_tables(target: Target) -> None:
    sink = target.sink()
    broken, fine = (target.prepare(sink, name, 1, ids(1)) for name in ("broken", "fine"))
    for path in (target.folder / "warehouse" / "n" / "broken").rglob("*.metadata.json"):
        path.unlink()
    one, two = target.commit(sink, broken, fine)
    assert isinstance(one, RetryLater)
    assert "metadata.json" in one.reason
    assert two == Committed()


def test_table_with_unwritable_metadata_does_not_affect_other_tables(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, writes = target.sink(), SqlTables._write
    requests = [target.prepare(sink, name, 1, ids(1)) for name in ("a", "broken", "z")]

    def refused(tables: SqlTables, change: Change) -> Any:
        if change.table.name()[-1] == "broken":
            raise ValueError("an update that this client can't apply")
        return writes(tables, change)

    monkeypatch.setattr(SqlTables, "_write", refused)
    one, broken, two = target.commit(sink, *requests)
    assert isinstance(broken, RetryLater)
    assert "can't apply" in broken.reason
    assert all(isinstance(outcome, Committed | AlreadyCommitted) for outcome in (one, two))
    assert target.rows("a") == target.rows("z") == [1]
    monkeypatch.undo()
    assert target.commit(sink, *requests) == [AlreadyCommitted(), Committed(), AlreadyCommitted()]


def test_missing_files_of_an_atomic_group_hold_back_the_others_and_the_rest_is_one_snapshot(target: Target) -> None:
    sink = target.sink(table="events")
    requests = [target.prepare(sink, urn, 4, ids(number)) for number, urn in enumerate(("a", "b", "c"))]
    shutil.move(requests[1].infos[0]["files"][0]["path"].removeprefix("file://"), target.folder / "away")
    committer = target.committer(sink)
    one, two, three = committer.commit_atomically(requests)
    assert "data files are missing" in failed(two)
    assert (one, three) == (HeldBack("b"), HeldBack("b"))
    assert target.table("events").snapshots() == []
    shutil.move(target.folder / "away", requests[1].infos[0]["files"][0]["path"].removeprefix("file://"))
    assert committer.commit_atomically(requests) == [Committed()] * 3
    assert committer.commit_atomically(requests) == [AlreadyCommitted()] * 3
    assert len(target.table("events").snapshots()) == 1
    assert sorted(target.rows("events")) == [0, 1, 2]


def test_unreachable_catalog_is_an_outage(target: Target) -> None:
    sink = target.sink()
    request = target.prepare(sink, "t", 1, ids(1))
    with sqlite3.connect(target.folder / "catalog.db") as db:
        db.execute("ALTER TABLE iceberg_tables RENAME TO away")
    assert isinstance(target.commit(sink, request)[0], RetryLater)
    with pytest.raises(Exception, match="iceberg_tables"):
        target.committer(sink).probe()
    with sqlite3.connect(target.folder / "catalog.db") as db:
        db.execute("ALTER TABLE away RENAME TO iceberg_tables")
    db.close()
    assert target.commit(sink, request) == [Committed()]


def test_full_disk_leaves_nothing_half_visible_and_the_same_request_succeeds_later(target: Target) -> None:
    assert_full_disk_harmless(target, ids)


# -- what lost, and what is taken back


def test_files_of_aborted_and_dead_attempts_are_deleted_and_no_others(target: Target) -> None:
    sink = target.sink()
    data = target.folder / "warehouse" / "n" / "t" / "data"
    winner = target.prepare(sink, "t", 1, ids(1), attempt="won")
    loser = target.prepare(sink, "t", 1, ids(1), attempt="lost")
    target.prepare(sink, "t", 1, ids(1), attempt="dead")
    foreign = {**loser.infos[0], "files": [{"path": str(data / "somebody-elses.parquet")}]}
    (data / "somebody-elses.parquet").touch()
    target.commit(sink, winner)
    lost = [
        AbortedAttempt(1, "unit", "lost", "lost", (*loser.infos, foreign)),
        AbortedAttempt(1, "unit", "dead", "dead"),
    ]
    for _ in range(2):
        target.committer(sink).abort(lost)
    assert sorted(path.name for path in data.iterdir()) == [
        "distcommit-000001-won-00000.parquet",
        "somebody-elses.parquet",
    ]
    assert target.rows("t") == [1]


@pytest.mark.parametrize("noted", ["infos", "died"])
@pytest.mark.parametrize("compacted", [False, True])
def test_files_in_a_snapshot_stay_even_if_their_attempt_is_reported_aborted(
    target: Target, noted: str, compacted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    sink = target.sink()
    target.commit(sink, target.prepare(sink, "t", 1, ids(0)))
    request = target.prepare(sink, "t", 2, ids(1), bases=(1,), attempt="won")
    target.prepare(sink, "t", 2, ids(1), attempt="dead")
    target.commit(sink, request)
    committed = target.table("t").current_snapshot()
    assert committed is not None
    if compacted:
        table = target.table("t")
        table.overwrite(table.scan().to_arrow())
    before = target.data("t")
    infos = request.infos if noted == "infos" else ()
    target.committer(sink).abort([AbortedAttempt(2, "u", "won", "won", infos), AbortedAttempt(2, "u", "dead", "dead")])
    assert before - target.data("t") == {"distcommit-000002-dead-00000.parquet"}
    assert "restored from a copy" in caplog.text
    assert target.rows("t") == [0, 1]
    older = target.table("t").scan(snapshot_id=committed.snapshot_id).to_arrow()
    assert sorted(older["id"].to_pylist()) == [0, 1]


def test_files_of_aborted_attempts_are_looked_up_only_in_newer_manifests(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = target.sink()
    for epoch in range(1, 5):
        target.commit(sink, target.prepare(sink, "t", epoch, ids(epoch), bases=(epoch - 1,)))
    target.prepare(sink, "t", 5, ids(5), attempt="dead")
    target.commit(sink, target.prepare(sink, "t", 5, ids(5), bases=(4,)))
    read: list[str] = []
    fetch = ManifestFile.fetch_manifest_entry

    def count_fetches(manifest: ManifestFile, *args: Any, **options: Any) -> Any:
        read.append(manifest.manifest_path)
        return fetch(manifest, *args, **options)

    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", count_fetches)
    target.committer(sink).abort([AbortedAttempt(5, "unit", "dead", "dead")])
    assert "distcommit-000005-dead-00000.parquet" not in target.data("t")
    assert len(read) == 1
    target.committer(sink).abort([AbortedAttempt(5, "unit", "dead", "dead")])
    assert len(read) == 1, "no file is left, so that no manifest is read again"


def test_files_of_aborted_attempts_stay_if_their_table_is_missing(
    target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    sink = target.sink()
    target.prepare(sink, "t", 1, ids(1), attempt="dead")
    with load_catalog("default", type="sql", **target.catalog) as catalog:
        catalog.rename_table(("n", "t"), ("n", "u"))
    target.committer(sink).abort([AbortedAttempt(1, "unit", "dead", "dead")])
    assert target.data("t") == {"distcommit-000001-dead-00000.parquet"}
    assert "the table of these data files is gone" in caplog.text


def test_nothing_is_deleted_while_the_committed_files_are_unknown(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_files, "_INLINE_BYTES", 0)
    sink = target.sink()
    target.commit(sink, target.prepare(sink, "t", 1, ids(1)))
    target.prepare(sink, "t", 1, ids(1), attempt="dead")
    before = target.data("t")
    shutil.rmtree(target.folder / "output")
    with pytest.raises(TransientError, match="its ledger is damaged or gone"):
        target.committer(sink).abort([AbortedAttempt(1, "unit", "dead", "dead")])
    assert target.data("t") == before


def test_unreadable_table_does_not_stop_clean_up_and_audit_of_others(target: Target) -> None:
    require_other_tables_work(target, ids, "n.broken", target.folder / "warehouse" / "n" / "broken")


def test_outage_stops_the_lookup_of_aborted_files_at_the_first_table(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = target.sink()
    for name in ("a", "b"):
        target.prepare(sink, name, 1, ids(1), attempt=f"dead-{name}")
    tried: list[object] = []

    def raise_no_route(tables: object, files: object) -> None:
        tried.append(files)
        raise OSError("no route to host")

    monkeypatch.setattr(committer, "existing", raise_no_route)
    committing = target.committer(sink)
    monkeypatch.setattr(committing, "probe", lambda: raise_no_route(None, None))
    with pytest.raises(OSError, match="no route"):
        committing.abort([AbortedAttempt(1, "unit", f"dead-{name}", f"dead-{name}") for name in ("a", "b")])
    assert len(tried) == 2, "one table and the probe were tried"


def test_compacted_commit_can_not_be_rolled_back(target: Target) -> None:
    sink = target.sink()
    older, request = target.prepare(sink, "t", 1, ids(1)), target.prepare(sink, "t", 2, ids(2), bases=(1,))
    target.commit(sink, older)
    target.commit(sink, request)
    table = target.table("t")
    table.overwrite(table.scan().to_arrow())
    with pytest.raises(ConflictError, match="be removed from the table"):
        target.committer(sink).withdraw([request])
    assert target.rows("t") == [1, 2]
    assert target.commit(sink, request) == [AlreadyCommitted()]


# -- many


def test_pointers_of_many_tables_move_in_one_transaction(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    from sqlalchemy import event

    sink = target.sink()
    requests = [target.prepare(sink, f"t{number}", 1, ids(number)) for number in range(30)]
    tables, statements = opened(sink.catalog), list[str]()
    assert isinstance(tables, SqlTables)
    event.listen(tables._engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    assert set(target.commit(sink, *requests)) == {Committed()}
    assert len(statements) == 3, statements
    assert all(target.rows(f"t{number}") == [number] for number in range(30))


@pytest.mark.parametrize("keeps_versions", [True, False])
def test_old_metadata_versions_are_deleted_unless_table_properties_keep_them(
    target: Target, keeps_versions: bool
) -> None:
    properties = {"write.metadata.previous-versions-max": "3"}
    if keeps_versions:
        properties["write.metadata.delete-after-commit.enabled"] = "false"
    sink = target.sink(properties=properties)
    for epoch in range(1, 9):
        assert target.commit(sink, target.prepare(sink, "t", epoch, ids(epoch))) == [Committed()]
    versions = list((target.folder / "warehouse").rglob("*.metadata.json"))
    assert len(versions) == (9 if keeps_versions else 4)
    assert sorted(target.rows("t")) == [*range(1, 9)]


def test_many_commits_leave_few_manifests(target: Target) -> None:
    sink = target.sink(properties={"commit.manifest.min-count-to-merge": "5"})
    for epoch in range(1, 13):
        assert target.commit(sink, target.prepare(sink, "t", epoch, ids(epoch), bases=(epoch - 1,))) == [Committed()]
    table = target.table("t")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(table.io)) < 5
    assert target.rows("t") == list(range(1, 13))
    assert snapshot.summary is not None
    assert snapshot.summary["total-records"] == "12"
