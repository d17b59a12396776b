"""The Delta sink on a local folder: resulting tables, and rejections without any write."""

from __future__ import annotations

import datetime
import json
import shutil
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import CommitProperties, Transaction
from pydantic import ValidationError

from distcommit.core.errors import (
    ConfigurationError,
    ConflictError,
    CorruptError,
    SinkUnavailableError,
    TransientError,
)
from distcommit.core.interfaces.committer import (
    AbortedAttempt,
    AlreadyCommitted,
    CommitOutcome,
    Committed,
    FailedForGood,
    RetryLater,
)
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.delta.ledger import TableLedgers
from distcommit.sinks.delta.locations import InFolder
from distcommit.sinks.delta.sink import DeltaSink
from distcommit.sinks.delta.tables import DeltaTables
from tests.unit.sinks.delta.delta_target import Target, ids
from tests.unit.sinks.full_disk import assert_full_disk_harmless
from tests.unit.sinks.unreadable_table import require_other_tables_work

APP = "distcommit.store-1"


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(tmp_path)


def failed(outcome: CommitOutcome) -> str:
    assert isinstance(outcome, FailedForGood), outcome
    return outcome.reason


# -- settings


@pytest.mark.parametrize(
    "wrong", [{"location": "s3://bucket"}, {"location": "gs://b/x"}, {"location": "tables"}, {"table": "_{dataset}"}]
)
def test_invalid_setting_is_rejected(wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match=r"must (be an absolute path|not begin with _)"):
        DeltaSink.model_validate({"type": "delta", "location": "/tables", **wrong})


# -- tables


def test_tables_are_created_partitioned_as_configured(target: Target) -> None:
    sink = target.sink(partition_by=["kind", "day"], properties={"delta.appendOnly": "true"})
    day = datetime.date(2026, 2, 3)
    rows = ids(1, 2, 3, 4, kind=["a", "ü/= %", None, "a"], day=[day, None, day, day], value=[3, 2, 9, 1])
    assert target.commit(sink, target.prepare(sink, "t", 1, rows)) == [Committed()]
    table = target.table("t")
    assert table.metadata().configuration == {"delta.appendOnly": "true"}
    assert len(table.file_uris()) == 3
    assert table.to_pyarrow_table().sort_by("id").select(rows.column_names) == rows.cast(
        pa.schema([("id", pa.int64()), ("kind", pa.string()), ("day", pa.date32()), ("value", pa.int64())])
    )
    for value, row_ids in (("ü/= %", [2]), ("a", [1, 4])):
        assert sorted(table.to_pyarrow_table(filters=pc.field("kind") == value)["id"].to_pylist()) == row_ids
    pruned = table.to_pyarrow_dataset(file_pruning_predicate="kind = 'ü/= %'")
    assert len(list(pruned.get_fragments())) == 1, "the others are pruned"


def test_each_type_is_read_back_unchanged(target: Target) -> None:
    utc = datetime.UTC
    values: dict[str, pa.Array] = {
        "id": pa.array([1, 2], pa.int64()),
        "small": pa.array([-128, 127], pa.int8()),
        "unsigned": pa.array([0, 2**32 - 1], pa.uint32()),
        "text": pa.array(["ä" * 40, "z" * 40], pa.large_string()),
        "word": pa.array(["", "ü"], pa.string()).dictionary_encode(),
        "raw": pa.array([b"\xff", None], pa.binary()),
        "real": pa.array([float("nan"), -0.0], pa.float64()),
        "flag": pa.array([True, None], pa.bool_()),
        "price": pa.array([Decimal("1.10"), Decimal("-99.99")], pa.decimal128(6, 2)),
        "day": pa.array([datetime.date(1, 1, 1), datetime.date(9999, 12, 31)], pa.date32()),
        "at": pa.array([datetime.datetime(2026, 1, 1, 0, 0, 0, 1, utc), None], pa.timestamp("us", "Europe/Berlin")),
        "local": pa.array([datetime.datetime(1969, 1, 1, 0, 0, 0, 999999), None], pa.timestamp("us")),
        "list": pa.array([[{"a": 1}], []], pa.list_(pa.struct([("a", pa.int32())]))),
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int16())),
        "nothing": pa.nulls(2),
    }
    sink, rows = target.sink(), pa.table(values)
    assert target.commit(sink, target.prepare(sink, "t", 1, rows)) == [Committed()]
    table = target.table("t")
    stored = table.to_pyarrow_table()
    assert set(stored.column_names) == set(rows.column_names) - {"nothing"}
    for name in stored.column_names:
        assert str(stored[name].to_pylist()) == str(rows[name].cast(stored.schema.field(name).type).to_pylist()), name
    for name in ("id", "small", "unsigned", "text", "word", "day", "at", "local"):
        for row in range(2):
            value = stored[name][row]
            if value.is_valid:
                hit = table.to_pyarrow_table(filters=pc.field(name) == value)["id"].to_pylist()
                assert row + 1 in hit, name


def test_files_have_no_column_bounds_because_a_missing_bound_hides_rows(target: Target) -> None:
    """The client's own writer adds bounds: filters on a new column then skip the files that lack it."""
    sink = target.sink(evolve="add_columns")
    own, more = str(target.folder / "own"), ids(2, more=["x"])
    write_deltalake(own, ids(1), mode="append")
    write_deltalake(own, more, mode="append", schema_mode="merge")
    target.commit(sink, target.prepare(sink, "t", 1, ids(1)))
    target.commit(sink, target.prepare(sink, "t", 2, more))
    for table, row_ids in ((DeltaTable(own), []), (target.table("t"), [1])):
        assert table.to_pyarrow_table(filters=pc.field("more").is_null())["id"].to_pylist() == row_ids
        assert table.count() == 2


def test_columns_are_added_if_configured_and_never_widened(target: Target) -> None:
    narrow = pa.table({"id": pa.array([1], pa.int32())})
    assert target.commit(target.sink(), target.prepare(target.sink(), "t", 1, narrow)) == [Committed()]
    with pytest.raises(ConfigurationError, match="no column note"):
        target.prepare(target.sink(), "t", 2, pa.table({"id": pa.array([2], pa.int32()), "note": ["x"]}))
    sink = target.sink(evolve="add_columns")
    at = pa.array([datetime.datetime(2026, 1, 1)], pa.timestamp("us"))
    wider = pa.table({"id": pa.array([2], pa.int32()), "note": ["x"], "at": at})
    assert target.commit(sink, target.prepare(sink, "t", 2, wider)) == [Committed()]
    assert target.commit(sink, target.prepare(sink, "t", 3, narrow)) == [Committed()], "older records still fit"
    stored = target.table("t").to_pyarrow_table().sort_by("id")
    assert stored["note"].to_pylist() == [None, None, "x"]
    with pytest.raises(ConfigurationError, match="column id is int32, and records have int64"):
        target.prepare(sink, "t", 4, ids(2**40))
    with pytest.raises(ConfigurationError, match=r"column=Note.*found the same name as 'note', but for its case"):
        target.prepare(sink, "t", 4, pa.table({"id": pa.array([1], pa.int32()), "Note": ["x"]}))


def test_nested_fields_are_never_added(target: Target) -> None:
    sink = target.sink(evolve="add_columns")
    first, more = (pa.table({"id": [1], "lines": [[line]]}) for line in ({"sku": "a"}, {"sku": "b", "n": 2}))
    assert target.commit(sink, target.prepare(sink, "t", 1, first)) == [Committed()]
    with pytest.raises(ConfigurationError, match=r"no column lines\.element\.n"):
        target.prepare(sink, "t", 2, more)
    assert target.commit(sink, target.prepare(sink, "u", 2, more)) == [Committed()]
    assert target.commit(sink, target.prepare(sink, "u", 3, first)) == [Committed()], "missing fields are null"
    stored = target.table("u").to_pyarrow_table()["lines"].to_pylist()
    assert sorted(map(str, stored)) == ["[{'sku': 'a', 'n': None}]", "[{'sku': 'b', 'n': 2}]"]


def test_columns_that_do_not_fit_are_rejected_by_name(target: Target) -> None:
    sink = target.sink(evolve="add_columns")
    target.commit(sink, target.prepare(sink, "t", 1, ids(1)))
    with pytest.raises(ConfigurationError, match="column id is int64, and records have string"):
        target.prepare(sink, "t", 2, pa.table({"id": ["x"]}))
    with pytest.raises(ConfigurationError, match="the table does not exist"):
        target.prepare(target.sink(create=False), "other", 1, ids(1))
    for kind in (
        pa.time64("us"),
        pa.duration("s"),
        pa.decimal256(50, 2),
        pa.decimal128(5, -2),
        pa.list_(pa.time64("us")),
    ):
        with pytest.raises(ConfigurationError, match="column=x"):
            sink.check_schema(pa.schema([("x", kind)]))
    for names in (["a b"], ["a", "A"]):
        with pytest.raises(ConfigurationError):
            sink.check_schema(pa.schema([(name, pa.int64()) for name in names]))
    with pytest.raises(ConfigurationError, match="does not fit"):
        target.prepare(sink, "t", 2, pa.table({"id": pa.array([2**63], pa.uint64())}))
    with pytest.raises(ConfigurationError, match="does not fit"):
        target.prepare(sink, "u", 2, pa.table({"at": pa.array([1], pa.timestamp("ns"))}))
    for column in ("none", "real"):
        with pytest.raises(ConfigurationError, match=column):
            target.prepare(target.sink(partition_by=[column]), "p", 1, ids(1, real=[1.0]))
    with pytest.raises(ConfigurationError, match="Delta reads it as null"):
        target.prepare(target.sink(partition_by=["kind"]), "p", 1, ids(1, kind=[""]))
    shutil.rmtree(target.location)
    with pytest.raises(SinkUnavailableError, match="mount"):
        target.prepare(sink, "t", 3, ids(1))


def test_concurrent_attempts_create_one_table(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, making, others = target.sink(), DeltaTable.create, list[Any]()

    def overtaken(*arguments: Any, **more: Any) -> Any:
        if not others:
            others.append(1)
            others.append(target.prepare(sink, "t", 1, ids(2)))
        return making(*arguments, **more)

    monkeypatch.setattr(DeltaTable, "create", overtaken)
    request = target.prepare(sink, "t", 1, ids(1))
    assert request.infos[0]["id"] == others[1].infos[0]["id"] == target.table("t").metadata().id


def test_unfinished_table_is_ignored_and_a_table_with_a_damaged_log_is_never_recreated(
    target: Target,
) -> None:
    sink = target.sink()
    log = target.location / "t" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json#1").touch()
    request = target.prepare(sink, "t", 1, ids(1))
    for number in (1, 2):
        write_deltalake(target.table("t"), ids(number), mode="append")
    (log / f"{0:020}.json").unlink()
    with pytest.raises(Exception, match="log"):
        target.prepare(sink, "t", 1, ids(1))
    assert isinstance(target.commit(sink, request)[0], RetryLater)
    assert len(list(log.glob("*.json"))) == 2, "nothing was written"


REFUSED: dict[str, Callable[[DeltaTable], object]] = {
    "delta.setTransactionRetentionDuration": lambda table: table.alter.set_table_properties(
        {"delta.setTransactionRetentionDuration": "interval 1 days"}
    ),
    "delta.constraints.positive": lambda table: table.alter.add_constraint({"positive": "id > 0"}),
}


@pytest.mark.parametrize("setting", REFUSED)
def test_table_with_transaction_expiry_or_row_constraints_is_rejected_without_a_write(
    target: Target, setting: str
) -> None:
    sink = target.sink()
    request, other = target.prepare(sink, "t", 1, ids(1)), target.prepare(sink, "u", 1, ids(1))
    REFUSED[setting](target.table("t"))
    before = target.table("t").version()
    with pytest.raises(ConfigurationError, match=setting):
        target.prepare(sink, "t", 2, ids(2))
    one, two = target.commit(sink, request, other)
    assert setting in failed(one)
    assert two == Committed(), "other tables are unaffected"
    assert (target.table("t").version(), target.rows("t")) == (before, [])


@pytest.mark.parametrize(
    "setting", ["delta.columnMapping.mode", "delta.enableRowTracking", "delta.enableIcebergCompatV2"]
)
def test_settings_of_other_clients_that_can_not_be_honored_are_rejected(target: Target, setting: str) -> None:
    sink = target.sink()
    request = target.prepare(sink, "t", 1, ids(1))
    value = "name" if setting.endswith("mode") else "true"
    alter_log(target, '"configuration":{}', json.dumps({"configuration": {setting: value}})[1:-1])
    assert setting in failed(target.commit(sink, request)[0])


@pytest.mark.parametrize("what", ["delta.invariants", "delta.generationExpression", "delta.identity.start"])
def test_columns_that_need_checks_or_generated_values_are_rejected(target: Target, what: str) -> None:
    sink = target.sink()
    request = target.prepare(sink, "t", 1, ids(1))
    metadata = json.dumps(json.dumps({"metadata": {what: 1 if what.endswith("start") else "id > 0"}})[1:-1])[1:-1]
    alter_log(target, '\\"metadata\\":{}', metadata)
    assert f"{what} of column id" in failed(target.commit(sink, request)[0])


def alter_log(target: Target, old: str, new: str) -> None:
    """Change the first commit of the table `t`, as another client would have written it."""
    log = target.location / "t" / "_delta_log" / f"{0:020}.json"
    text = log.read_text()
    line = next(line for line in text.splitlines() if line.startswith('{"metaData"'))
    assert old in line
    log.write_text(text.replace(line, line.replace(old, new)))


# -- the proof


def test_app_transaction_alone_does_not_prevent_a_double_commit(target: Target) -> None:
    """The client accepts a version again if it exists or is lower. It also accepts one that was checked in another
    version of the table than the one that is committed on."""
    path, rows = str(target.folder / "naive"), ids(1)
    for version in (7, 7, 3):
        properties = CommitProperties(app_transactions=[Transaction("job", version)])
        write_deltalake(path, rows, mode="append", commit_properties=properties)
    table = DeltaTable(path)
    assert (table.count(), table.transaction_version("job")) == (3, 3)
    looks = [DeltaTable(path), DeltaTable(path)]  # two committers that check the same version
    assert [look.transaction_version("job") for look in looks] == [3, 3]
    for _ in looks:  # the client loads the table version that it writes to
        properties = CommitProperties(app_transactions=[Transaction("job", 8)])
        write_deltalake(path, rows, mode="append", commit_properties=properties)
    assert DeltaTable(path).count() == 5
    own = CommitProperties(app_transactions=[Transaction("job", 9)])
    write_deltalake(looks[0], rows, mode="append", commit_properties=CommitProperties(max_commit_retries=15))
    with pytest.raises(CommitFailedError):  # rejected on the version that was checked
        write_deltalake(looks[1], rows, mode="append", commit_properties=own)


def test_concurrent_committers_at_one_version_commit_once(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = target.sink()
    request = target.prepare(sink, "t", 1, ids(1))
    committing, others = DeltaTables.commit, list[Any]()

    def overtaken(*arguments: Any) -> bool:
        if not others:
            others.append(1)
            others.extend(target.commit(sink, request))
        return committing(*arguments)

    monkeypatch.setattr(DeltaTables, "commit", overtaken)
    assert target.commit(sink, request) == [AlreadyCommitted()]
    assert others == [1, Committed()]
    assert target.rows("t") == [1]
    assert len(target.ledgers()) == 1, "the losing commit's files are deleted"


def test_reader_of_a_just_superseded_ledger_reads_again(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = target.sink()
    target.commit(sink, target.prepare(sink, "t", 1, ids(1)))
    request, later = target.prepare(sink, "t", 2, ids(2)), list[Any]()
    reading = TableLedgers.read

    def overtaken(*arguments: Any) -> Any:
        if not later:
            later.append(1)
            later.extend(target.commit(sink, request))
        return reading(*arguments)

    monkeypatch.setattr(TableLedgers, "read", overtaken)
    assert target.commit(sink, request) == [AlreadyCommitted()]
    assert later == [1, Committed()]
    assert target.rows("t") == [1, 2]


def test_concurrent_foreign_writer_loses_nothing_and_doubles_nothing(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = target.sink()
    request = target.prepare(sink, "t", 1, ids(1))
    committing, others = DeltaTables.commit, list[int]()

    def overtaken(*arguments: Any) -> bool:
        if len(others) < 3:
            others.append(len(others))
            write_deltalake(target.table("t"), ids(100 + len(others)), mode="append")
        return committing(*arguments)

    monkeypatch.setattr(DeltaTables, "commit", overtaken)
    assert target.commit(sink, request) == [Committed()]
    assert target.rows("t") == [1, 101, 102, 103]
    assert len(target.ledgers()) == 1


def test_lost_answer_to_a_commit_is_looked_up(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = target.sink()
    request = target.prepare(sink, "t", 1, ids(1))
    committing, lost = DeltaTables.commit, list[bool]()

    def without_answer(*arguments: Any) -> bool:
        committed = committing(*arguments)
        if not lost:
            lost.append(committed)
            raise ConnectionResetError("gone")
        return committed

    monkeypatch.setattr(DeltaTables, "commit", without_answer)
    assert target.commit(sink, request) == [AlreadyCommitted()]
    assert target.rows("t") == [1]
    assert len(target.ledgers()) == 1


class Watched(LocalFileSystem):
    """A file system that records the order of syncs and deletions."""

    def __init__(self, asked: list[str]) -> None:
        super().__init__(durable=False)
        self._asked = asked

    def sync_tree(self, root: str) -> None:
        self._asked.append("sync")
        super().sync_tree(root)

    def delete(self, path: str) -> bool:
        self._asked.append("delete")
        return super().delete(path)


def test_commit_is_durable_before_it_is_reported_or_its_predecessor_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, committing = list[str](), DeltaTables.commit
    target = Target(tmp_path, Watched(asked))
    sink = target.sink()
    first, second = (target.prepare(sink, "t", epoch, ids(epoch), bases=(epoch - 1,)) for epoch in (1, 2))
    assert asked == ["sync", "sync"], "data files are synced before the attempt is recorded"

    def recorded_commit(*arguments: Any) -> bool:
        asked.append("commit")
        return committing(*arguments)

    monkeypatch.setattr(DeltaTables, "commit", recorded_commit)
    target.commit(sink, first)
    asked.clear()
    assert target.commit(sink, second) == [Committed()]
    assert asked == ["commit", "sync", "delete"]
    asked.clear()
    assert target.commit(sink, second) == [AlreadyCommitted()], "the earlier committer may have died before its sync"
    assert asked == ["sync"]
    asked.clear()
    target.committer(sink).withdraw([second])
    assert asked == ["commit", "sync", "delete"]


def test_proof_of_a_commit_survives_log_expiry_and_vacuum(target: Target) -> None:
    properties = {"delta.logRetentionDuration": "interval 0 days", "delta.checkpointInterval": "3"}
    sink = target.sink(table="all", properties=properties)
    requests = [target.prepare(sink, f"d{number}", 1, ids(number)) for number in range(60)]
    assert set(target.commit(sink, *requests)) == {Committed()}
    assert len(target.ledgers()) == 2, "the ledger is too large for one file"
    log = target.location / "all" / "_delta_log"
    for number in range(8):
        write_deltalake(target.table("all"), ids(1000 + number), mode="append")
    table = target.table("all")
    table.create_checkpoint()
    table.cleanup_metadata()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    assert not (log / f"{1:020}.json").exists(), "the commit's log entry has expired"
    assert set(target.commit(sink, *requests)) == {AlreadyCommitted()}
    assert target.commit(sink, target.prepare(sink, "d0", 2, ids(77), bases=(1,))) == [Committed()]
    assert target.rows("all") == [*range(60), 77, *range(1000, 1008)]


@pytest.mark.thorough
def test_ledger_does_not_grow_with_commits_and_keeps_few_files(target: Target) -> None:
    sink = target.sink(table="all")
    target.commit(sink, *[target.prepare(sink, f"d{number}", 1, ids(number)) for number in range(60)])
    for epoch in range(2, 40):
        target.commit(sink, target.prepare(sink, "d0", epoch, ids(epoch), bases=(epoch - 1,)))
        assert len(target.ledgers()) <= 18
    rows = {row.dataset_urn: row for row in target.committer(sink).ledger()}
    assert len(rows) == 60
    assert (rows["d0"].epoch, rows["d0"].base, rows["d0"].covered[0].rows) == (39, 38, 39)


def test_missing_or_damaged_ledger_is_never_guessed(target: Target) -> None:
    sink = target.sink(table="all")
    requests = [target.prepare(sink, f"d{number}", 1, ids(number)) for number in range(60)]
    target.commit(sink, *requests)
    before = target.table("all").version()
    for file in target.ledgers():
        data = file.read_bytes()
        for damage in (file.unlink, lambda file=file, data=data: file.write_bytes(data + b" ")):
            damage()
            outcomes = target.commit(sink, requests[0], target.prepare(sink, "new", 2, ids(7)))
            assert all("ledger is damaged or gone" in failed(outcome) for outcome in outcomes)
            with pytest.raises(CorruptError, match="damaged or gone"):
                target.committer(sink).withdraw([requests[0]])
        file.write_bytes(data)
    assert target.table("all").version() == before, "nothing was written"
    assert target.commit(sink, requests[0]) == [AlreadyCommitted()]


@pytest.mark.parametrize("how", ["the folder", "the folder and the output"])
def test_older_table_or_store_is_rejected_without_a_write(target: Target, how: str) -> None:
    sink = target.sink()
    target.commit(sink, target.prepare(sink, "t", 1, ids(1)))
    for name in ("tables", "output"):
        shutil.copytree(target.folder / name, target.folder / f"{name}-copy")
    assert target.commit(sink, target.prepare(sink, "t", 2, ids(2), bases=(1,))) == [Committed()]
    assert "not the target" in failed(target.commit(sink, target.prepare(sink, "t", 3, ids(3), bases=(1,)))[0])
    for name in ("tables", "output")[: 1 + ("output" in how)]:
        shutil.rmtree(target.folder / name)
        shutil.copytree(target.folder / f"{name}-copy", target.folder / name)
    reason = failed(target.commit(sink, target.prepare(sink, "t", 3, ids(3), bases=(2,)))[0])
    assert "restored from a copy" in reason
    assert target.rows("t") == [1]


def test_rows_removed_by_restore_are_not_committed_again_and_are_reported(target: Target) -> None:
    """RESTORE is a commit that keeps the table's record of transactions."""
    sink = target.sink()
    first, second = target.prepare(sink, "t", 1, ids(1)), target.prepare(sink, "t", 2, ids(2, 3))
    target.commit(sink, first)
    version = target.table("t").version()
    target.commit(sink, second)
    target.table("t").restore(version)
    assert target.commit(sink, first)[0] != Committed()
    assert target.commit(sink, second) == [AlreadyCommitted()]
    (row,) = target.committer(sink).ledger()
    assert sum(part.rows for part in row.covered) == 3
    assert target.committer(sink).visible_rows("t", "main") == 1, "the deep audit detects the missing rows"
    with pytest.raises(ConflictError, match="can't be removed"):
        target.committer(sink).withdraw([second])


# -- bad luck with one table


def test_dropped_or_recreated_table_does_not_affect_other_tables(target: Target) -> None:
    sink = target.sink()
    dropped, again, fine = (target.prepare(sink, name, 1, ids(1)) for name in ("dropped", "again", "fine"))
    shutil.rmtree(target.location / "dropped")
    staged_files = [target.location / "again" / name for name in target.data("again")]
    shutil.rmtree(target.location / "again" / "_delta_log")
    write_deltalake(str(target.location / "again"), ids(9), mode="append")
    assert all(path.exists() for path in staged_files), "the staged files still exist"
    one, two, three = target.commit(sink, dropped, again, fine)
    assert "does not exist any more" in failed(one)
    assert "was recreated" in failed(two)
    assert three == Committed()
    assert target.rows("again") == [9]
    target.committer(sink).withdraw([dropped, again])
    assert target.rows("again") == [9]


def test_error_of_a_recreated_table_used_by_another_dataset_does_not_suggest_dropping_it(target: Target) -> None:
    """The table contains rows of the other dataset, as its ledger records."""
    sink = target.sink(table="events")
    target.commit(sink, *(target.prepare(sink, urn, 1, ids(1)) for urn in ("a", "b")))
    shutil.rmtree(target.location / "events")
    assert target.commit(sink, target.prepare(sink, "a", 2, ids(2), bases=(0,))) == [Committed()]
    reason = failed(target.commit(sink, target.prepare(sink, "b", 2, ids(3), bases=(1,)))[0])
    assert "was dropped and recreated" in reason
    assert "drop the table" not in reason
    assert target.rows("events") == [2]


def test_remote_tables_are_committed_concurrently_with_separate_outcomes(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On S3, where calls wait, a bounded number of commits is in flight."""
    names, committing, together = [f"t{number}" for number in range(7)], DeltaTables.commit, threading.Barrier(6)

    def waits(self: DeltaTables, *arguments: Any) -> bool:
        together.wait(20)
        return committing(self, *arguments)

    monkeypatch.setattr(InFolder, "parallel_calls", 7)
    sink = target.sink()
    requests = [target.prepare(sink, name, 1, ids(number)) for number, name in enumerate(names)]
    shutil.rmtree(target.location / "t3")
    monkeypatch.setattr(DeltaTables, "commit", waits)
    outcomes = target.commit(sink, *requests)
    assert "does not exist any more" in failed(outcomes.pop(3))
    assert outcomes == [Committed()] * 6
    assert [target.rows(name) for name in names if name != "t3"] == [[number] for number in range(7) if number != 3]
    monkeypatch.setattr(DeltaTables, "commit", committing)
    assert target.commit(sink, *requests[:3]) == [AlreadyCommitted()] * 3


def test_table_recreated_during_the_commit_receives_nothing(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = target.sink()
    target.commit(sink, target.prepare(sink, "t", 1, ids(1)))
    request, committing = target.prepare(sink, "t", 2, ids(2)), DeltaTables.commit

    def recreate_table(*arguments: Any) -> bool:
        monkeypatch.undo()
        shutil.rmtree(target.location / "t" / "_delta_log")
        write_deltalake(str(target.location / "t"), ids(9), mode="append")
        return committing(*arguments)

    monkeypatch.setattr(DeltaTables, "commit", recreate_table)
    assert "was recreated" in failed(target.commit(sink, request)[0])
    assert target.rows("t") == [9]


def test_columns_or_partitions_replaced_before_the_commit_are_rejected(target: Target) -> None:
    sink = target.sink()
    columns, partitions, more = (target.prepare(sink, name, 1, ids(1, k=["a"])) for name in ("c", "p", "m"))
    text = pa.table({"id": ["x"], "k": ["a"]})
    write_deltalake(str(target.location / "c"), text, mode="overwrite", schema_mode="overwrite")
    again = ids(2, k=["a"])
    write_deltalake(str(target.location / "p"), again, mode="overwrite", schema_mode="overwrite", partition_by=["k"])
    write_deltalake(str(target.location / "m"), ids(2, k=["a"], n=[1]), mode="append", schema_mode="merge")
    one, two, three = target.commit(sink, columns, partitions, more)
    assert "column id is string, and the files have int64" in failed(one)
    assert "partitioned" in failed(two) or "was recreated" in failed(two)
    assert three == Committed(), "an added column does not conflict"
    assert target.rows("m") == [1, 2]


def test_staged_files_survive_a_plain_vacuum_and_are_reported_lost_after_a_full_one(target: Target) -> None:
    sink = target.sink()
    request, selected = target.prepare(sink, "t", 1, ids(1)), target.prepare(sink, "u", 1, ids(1))
    for full in (False, True):
        target.table("t").vacuum(dry_run=False, full=full)
    target.table("t").vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    target.table("u").vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    one, two = target.commit(sink, request, selected)
    assert one == Committed()
    assert "data files are missing" in failed(two)
    assert target.rows("u") == []


def test_missing_location_is_an_outage(target: Target) -> None:
    sink = target.sink()
    request = target.prepare(sink, "t", 1, ids(1))
    target.location.rename(target.folder / "away")
    assert isinstance(target.commit(sink, request)[0], RetryLater)
    with pytest.raises(SinkUnavailableError):
        target.committer(sink).probe()
    (target.folder / "away").rename(target.location)
    assert target.commit(sink, request) == [Committed()]


def test_full_disk_leaves_nothing_half_visible_and_the_same_request_succeeds_later(target: Target) -> None:
    assert_full_disk_harmless(target, ids)


# -- what lost, and what is taken back


def test_files_of_aborted_and_dead_attempts_are_deleted_and_no_others(target: Target) -> None:
    sink = target.sink()
    winner = target.prepare(sink, "t", 1, ids(1), attempt="won")
    loser = target.prepare(sink, "t", 1, ids(1), attempt="lost")
    target.prepare(sink, "t", 1, ids(1), attempt="dead")
    foreign = {**loser.infos[0], "files": [{"path": "t/somebody-elses.parquet"}]}
    (target.location / "t" / "somebody-elses.parquet").touch()
    target.commit(sink, winner)
    lost = [
        AbortedAttempt(1, "unit", "lost", "lost", (*loser.infos, foreign)),
        AbortedAttempt(1, "unit", "dead", "dead"),
    ]
    for _ in range(2):
        target.committer(sink).abort(lost)
    assert target.data("t") == ["distcommit-000001-won-00000.parquet", "somebody-elses.parquet"]
    assert target.rows("t") == [1]


@pytest.mark.parametrize("died", [False, True])
@pytest.mark.parametrize("compacted", [False, True])
def test_files_in_a_table_version_stay_even_if_their_attempt_is_reported_aborted(
    target: Target, died: bool, compacted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    sink = target.sink()
    request = target.prepare(sink, "t", 1, ids(1), attempt="won")
    target.prepare(sink, "t", 1, ids(1), attempt="dead")
    target.commit(sink, request)
    target.commit(sink, target.prepare(sink, "t", 2, ids(2), bases=(1,)))
    before, version = target.data("t"), target.table("t").version()
    if compacted:
        target.table("t").optimize.compact()
        before = target.data("t")
    lost = [AbortedAttempt(1, "u", "won", "won", () if died else request.infos), AbortedAttempt(1, "u", "dead", "dead")]
    target.committer(sink).abort(lost)
    assert set(before) - set(target.data("t")) == {"distcommit-000001-dead-00000.parquet"}
    assert "restored from a copy" in caplog.text
    assert target.rows("t") == [1, 2]
    older = DeltaTable(target.location / "t", version=version)
    assert sorted(older.to_pyarrow_table()["id"].to_pylist()) == [1, 2]


def test_files_of_aborted_attempts_stay_if_their_table_is_missing(
    target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    """The table's log may be restored from a copy and contain the files."""
    sink = target.sink()
    target.prepare(sink, "t", 1, ids(1), attempt="dead")
    (target.location / "t" / "_delta_log").rename(target.folder / "away")
    target.committer(sink).abort([AbortedAttempt(1, "unit", "dead", "dead")])
    assert target.data("t") == ["distcommit-000001-dead-00000.parquet"]
    assert "the table of these data files is gone" in caplog.text


def test_nothing_is_deleted_while_the_committed_files_are_unknown(target: Target) -> None:
    sink = target.sink()
    target.commit(sink, target.prepare(sink, "t", 1, ids(1)))
    target.prepare(sink, "t", 1, ids(1), attempt="dead")
    before = target.data("t")
    shutil.rmtree(target.folder / "output")
    with pytest.raises(TransientError, match="its ledger is damaged or gone"):
        target.committer(sink).abort([AbortedAttempt(1, "unit", "dead", "dead")])
    assert target.data("t") == before


def test_unreadable_table_does_not_stop_clean_up_and_audit_of_others(target: Target) -> None:
    require_other_tables_work(target, ids, "broken", target.location / "broken" / "_delta_log")


@pytest.mark.parametrize("why", ["compacted", "append-only"])
def test_compacted_or_append_only_commit_can_not_be_rolled_back(target: Target, why: str) -> None:
    sink = target.sink()
    older, request = target.prepare(sink, "t", 1, ids(1)), target.prepare(sink, "t", 2, ids(2), bases=(1,))
    target.commit(sink, older)
    target.commit(sink, request)
    if why == "compacted":
        target.table("t").optimize.compact()
    else:
        target.table("t").alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(ConflictError, match="can't be removed"):
        target.committer(sink).withdraw([request])
    assert target.rows("t") == [1, 2]
    assert target.commit(sink, request) == [AlreadyCommitted()]
