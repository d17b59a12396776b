"""Cases for mode `mirror`: the table equals the last state of each key, for any order, batch, replay and kill."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.committer import AlreadyCommitted, CommitRequest, Committed, releasing
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.sink import Origin
from distcommit.sinks.databases.ledger_table_committer import LedgerTableCommitter
from distcommit.sinks.databases.newer_rows import ORDER_COLUMNS
from tests.unit.sinks.databases.commit_steps import refused
from tests.unit.sinks.databases.table_sink_cases import TableTarget

_PROVENANCE = Provenance("p", "o")
_URNS = (f"mirror{number}" for number in itertools.count())


class Change(NamedTuple):
    key: str
    op: str
    value: int | None
    position: int
    partition: int = 0
    version: int | None = None


def rows_of(changes: Iterable[Change]) -> pa.RecordBatch:
    rows = [*changes]
    schema = pa.schema(
        [("k", pa.string()), ("v", pa.int64()), ("p", pa.int64()), ("o", pa.int64()), ("_op", pa.string())]
    )
    columns = zip(*((row.key, row.value, row.partition, row.position, row.op) for row in rows), strict=True)
    batch = pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema
    )
    return batch.append_column("w", pa.array([row.version for row in rows], pa.int64()))


def inferred(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows as a converter without `fields` does: without a column that has no value."""
    return rows.drop_columns(["v"]) if rows.column("v").null_count == rows.num_rows else rows


class _KilledError(Exception):
    """Ends a commit before the transaction ends."""


class MirrorCases:
    """Cases to subclass where a fixture `target` is a `TableTarget`."""

    mirror_examples = 60

    @staticmethod
    def mirror(target: TableTarget, **settings: Any) -> Any:
        return target.sink(mode="mirror", keys=["k"], **settings)

    def put_changes(self, target: TableTarget, epoch: int, *changes: Change, urn: str = "a", **settings: Any) -> None:
        sink = self.mirror(target, **settings)
        request = target.prepare(sink, urn, epoch, rows_of(changes), origin=Origin(_PROVENANCE, "one"))
        assert target.commit(sink, request) == [Committed()]

    def test_changes_of_one_key_in_one_commit_end_as_the_last(self, target: TableTarget) -> None:
        self.put_changes(
            target,
            1,
            Change("k", "c", 1, 1),
            Change("gone", "c", 1, 2),
            Change("k", "d", None, 3),
            Change("gone", "d", None, 4),
            Change("k", "c", 2, 5),
            Change("k", "u", 3, 6),
        )
        assert target.rows("a", "k, v") == [("k", 3)]
        assert [key for key, *_ in target.rows("distcommit_deleted_a", "k")] == ["gone"]

    def test_operation_is_not_stored_and_case_is_ignored(self, target: TableTarget) -> None:
        self.put_changes(target, 1, Change("k", "INSERT", 1, 1), Change("l", "R", 1, 2))
        self.put_changes(target, 2, Change("k", "Delete", None, 3))
        assert target.rows("a", "k, v") == [("l", 1)]
        (row,) = target.rows("a", "*")
        assert len(row) == len("kvpow") + len(ORDER_COLUMNS)

    def test_changed_key_moves_the_row(self, target: TableTarget) -> None:
        """Debezium sends a delete of the old key and a create of the new key."""
        self.put_changes(target, 1, Change("old", "c", 1, 1))
        self.put_changes(target, 2, Change("old", "d", None, 2), Change("new", "c", 1, 3))
        assert target.rows("a", "k, v") == [("new", 1)]

    def test_delete_of_a_missing_key_changes_nothing(self, target: TableTarget) -> None:
        self.put_changes(target, 1, Change("k", "d", None, 1))
        assert target.rows("a", "k, v") == []

    def test_range_that_is_read_again_restores_no_deleted_row(self, target: TableTarget) -> None:
        first, last = Change("k", "c", 1, 1), Change("k", "d", None, 2)
        self.put_changes(target, 1, first, last)
        self.put_changes(target, 2, first)
        assert target.rows("a", "k, v") == []
        self.put_changes(target, 3, Change("k", "c", 2, 3))
        assert target.rows("a", "k, v") == [("k", 2)]
        assert target.rows("distcommit_deleted_a", "k") == []
        self.put_changes(target, 4, last)
        assert target.rows("a", "k, v") == [("k", 2)]
        assert target.rows("distcommit_deleted_a", "k") == []

    def test_reprocessed_change_restores_no_deleted_row(self, target: TableTarget) -> None:
        self.put_changes(target, 1, Change("k", "d", None, 9))
        sink = self.mirror(target)
        again = rows_of([Change("k", "u", 1, 5), Change("l", "u", 1, 6)])
        request = target.prepare(sink, "a", 2, again, origin=Origin(_PROVENANCE, "one", replaces=(1,)))
        assert target.commit(sink, request) == [Committed()]
        assert target.rows("a", "k, v") == [("l", 1)]

    def test_version_orders_changes_of_a_key_that_changes_partition(self, target: TableTarget) -> None:
        self.put_changes(target, 1, Change("k", "d", None, 1, 1, version=20), version="w")
        self.put_changes(target, 2, Change("k", "u", 1, 7, 0, version=10), version="w")
        assert target.rows("a", "k, v") == []
        self.put_changes(target, 3, Change("k", "r", 2, 2, 1, version=30), version="w")
        self.put_changes(target, 4, Change("k", "d", None, 8, 0, version=15), version="w")
        assert target.rows("a", "k, v") == [("k", 2)]

    def test_change_without_a_version_only_adds_a_missing_row(self, target: TableTarget) -> None:
        self.put_changes(
            target, 1, Change("k", "c", 1, 1, version=5), Change("l", "d", None, 2, version=5), version="w"
        )
        self.put_changes(target, 2, *(Change(key, "r", 9, 3) for key in ("k", "l", "m")), version="w")
        assert target.rows("a", "k, v") == [("k", 1), ("m", 9)]

    def test_change_committed_after_a_snapshot_with_a_lower_log_position_is_applied_in_topic_order(
        self, target: TableTarget
    ) -> None:
        """In PostgreSQL, the change was written before the snapshot read the old state. With the log's position as the
        version it is lost, so the check warns."""
        changes = [Change("k", "r", 1, 1, version=120), Change("k", "u", 2, 2, version=100)]
        self.put_changes(target, 1, *changes)
        self.put_changes(target, 1, *changes, urn="lost", version="w")
        assert (target.rows("a", "k, v"), target.rows("lost", "k, v")) == ([("k", 2)], [("k", 1)])
        _, warning = self.mirror(target, version="_position").check_connection().split("\n")
        assert "loses changes of PostgreSQL" in warning
        assert "\n" not in self.mirror(target).check_connection()

    def test_positions_out_of_order_apply_the_greatest_version(self, target: TableTarget) -> None:
        self.put_changes(
            target, 1, Change("k", "u", 2, 1, version=2), Change("k", "d", None, 2, version=1), version="w"
        )
        assert target.rows("a", "k, v") == [("k", 2)]

    def test_expired_delete_is_forgotten(self, target: TableTarget) -> None:
        self.put_changes(target, 1, Change("k", "d", None, 5), Change("l", "d", None, 6))
        target.sql(f"UPDATE {target.quoted('distcommit_deleted_a')} SET _distcommit_deleted_at = 86400 WHERE k = 'k'")
        self.put_changes(target, 2, Change("k", "u", 1, 3), Change("l", "u", 1, 4))
        assert target.rows("a", "k, v") == [("k", 1)]

    def test_row_deleted_by_hand_is_inserted_by_the_next_change(self, target: TableTarget) -> None:
        self.put_changes(target, 1, Change("k", "c", 1, 1))
        target.sql("DELETE FROM a")
        self.put_changes(target, 2, Change("k", "u", 2, 2))
        assert target.rows("a", "k, v") == [("k", 2)]

    def test_table_altered_by_hand_quarantines_only_its_dataset(self, target: TableTarget) -> None:
        self.put_changes(target, 1, Change("k", "c", 1, 1))
        target.sql("ALTER TABLE a DROP COLUMN v")
        sink = self.mirror(target)
        change = rows_of([Change("k", "u", 2, 2)])
        bad = target.prepare(sink, "a", 2, change, origin=Origin(_PROVENANCE, "one"))
        good = target.prepare(sink, "b", 2, change, origin=Origin(_PROVENANCE, "one"))
        outcome, other = target.commit(sink, bad, good)
        refused(outcome, "has no column 'v'")
        assert other == Committed()
        assert target.rows("a", "k") == [("k",)]

    def test_two_sources_of_one_table_are_refused(self, target: TableTarget) -> None:
        self.put_changes(target, 1, Change("k", "c", 1, 1))
        target.context = replace(target.context, store_id="another job's")
        sink = self.mirror(target)
        request = target.prepare(sink, "a", 1, rows_of([Change("k", "d", None, 2)]), origin=Origin(_PROVENANCE, "one"))
        refused(target.commit(sink, request)[0], "another dataset, branch or job has written to table")
        assert target.rows("a", "k, v") == [("k", 1)]
        target.sql(f"UPDATE distcommit_ledger SET {target.forgotten} = NULL WHERE store = 'store'")
        assert target.commit(sink, request) == [Committed()]
        assert target.rows("a", "k, v") == []

    def test_null_key_is_rejected_before_the_commit_and_refused_by_it(self, target: TableTarget) -> None:
        sink = self.mirror(target)
        good, bad = rows_of([Change("k", "c", 1, 1)]), rows_of([Change("l", "x", 1, 2), Change("m", "d", 1, 3)])
        null = bad.set_column(0, "k", pa.array(["l", None]))
        assert sink.rejection_check is not None
        assert sink.rejection_check.check(pa.concat_batches([good, bad, null])).to_pylist() == [
            True,
            False,
            True,
            False,
            False,
        ]
        request = target.prepare(sink, "a", 1, null.slice(1, 1), origin=Origin(_PROVENANCE, "one"))
        refused(target.commit(sink, request)[0], "null in a")

    def test_delete_without_a_version_is_rejected_and_an_upsert_is_not(self, target: TableTarget) -> None:
        changes = [Change("k", "d", None, 1), Change("k", "r", 1, 2), Change("k", "d", None, 3, version=1)]
        check = self.mirror(target, version="w").rejection_check
        assert check.check(rows_of(changes)).to_pylist() == [False, True, True]
        assert self.mirror(target).rejection_check.check(rows_of(changes)).to_pylist() == [True, True, True]

    def test_settings_changed_before_the_commit_refuse_only_its_dataset(self, target: TableTarget) -> None:
        other = target.sink(mode="upsert", keys=["k"], evolve="add_columns")
        origin, rows = Origin(_PROVENANCE, "one"), rows_of([Change("k", "d", None, 1)])
        mirror, renamed = self.mirror(target), self.mirror(target, operation="v")
        staged = {name: target.prepare(mirror, name, 1, rows, origin=origin) for name in ("a", "b")}
        upserts = target.prepare(other, "c", 1, rows, origin=origin)
        for sink in (other, renamed):
            refused(target.commit(sink, staged["a"])[0], "were staged with `mode: mirror` and `operation: _op`")
        outcome, good = target.commit(mirror, upserts, staged["b"])
        refused(outcome, "were staged with another mode than mirror")
        assert good == Committed()

    def test_key_of_nested_values_is_rejected_before_the_run(self, target: TableTarget) -> None:
        schema = pa.schema([("k", pa.list_(pa.int64())), ("_op", pa.string())])
        with pytest.raises(ConfigurationError, match="simple values"):
            self.mirror(target).check_schema(schema)

    def test_column_that_a_batch_lacks_becomes_null_unless_it_has_a_default(self, target: TableTarget) -> None:
        hows: tuple[dict[str, str], ...] = ({"version": "w"}, {})
        for number, how in enumerate(hows):
            urn = f"t{number}"
            changes = [Change("k", "c", 1, 1, version=5), Change("l", "c", 1, 2, version=5)]
            self.put_changes(target, 1, *changes, urn=urn, **how)
            target.sql(f"ALTER TABLE {urn} ADD COLUMN own varchar(9) DEFAULT 'none'", f"UPDATE {urn} SET own = 'mine'")
            newer = [Change("k", "u", 2, 3, version=6), Change("l", "u", 2, 0, version=4), Change("m", "c", 3, 4)]
            rows = rows_of(newer).drop_columns(["v"])
            sink = self.mirror(target, **how)
            request = target.prepare(sink, urn, 2, rows, origin=Origin(_PROVENANCE, "one"))
            assert target.commit(sink, request) == [Committed()]
            assert target.rows(urn, "k, v, own") == [("k", None, "mine"), ("l", 1, "mine"), ("m", None, "none")]

    def test_row_deleted_and_created_in_one_commit_keeps_nothing(self, target: TableTarget) -> None:
        self.put_changes(target, 1, Change("k", "c", 1, 1))
        sink = self.mirror(target)
        changes = rows_of([Change("k", "d", None, 2), Change("k", "c", 2, 3)]).drop_columns(["v", "w"])
        request = target.prepare(sink, "a", 2, changes, origin=Origin(_PROVENANCE, "one"))
        assert target.commit(sink, request) == [Committed()]
        assert target.rows("a", "k, v") == [("k", None)]

    def refuses_inexact_keys(self, target: TableTarget, key: str, *statements: str) -> None:
        """Check that changes are refused for a table with this definition of its key column, and only for it."""
        target.sql(
            f"CREATE TABLE inexact ({key}, v bigint, p bigint, o bigint, w bigint, PRIMARY KEY (k))", *statements
        )
        sink, rows = self.mirror(target, version="w"), rows_of([Change("k", "c", 1, 1, version=1)])
        origin = Origin(_PROVENANCE, "one")
        requests = [target.prepare(sink, urn, 1, rows, origin=origin) for urn in ("inexact", next(_URNS))]
        outcome, good = target.commit(sink, *requests)
        refused(outcome, "must compare its keys by bytes")
        assert target.rows("inexact", "k") == []
        assert good == Committed()
        target.sql("DROP TABLE inexact")

    def test_rows_whose_keys_differ_only_in_case_accents_or_spaces_remain_apart(self, target: TableTarget) -> None:
        keys = ("a", "A", "a ", "\u00e4", "A ")
        self.put_changes(target, 1, *(Change(key, "c", 1, place) for place, key in enumerate(keys)))
        self.put_changes(target, 2, *(Change(key, "d", None, place) for place, key in enumerate(keys[:2], 10)))
        assert sorted(target.rows("a", "k, v")) == sorted((key, 1) for key in keys[2:])

    def keeps_rows(self, target: TableTarget, *triggers: str) -> None:
        """Check that a trigger that keeps rows from being deleted is detected, unless the row is newer."""
        self.put_changes(target, 1, Change("k", "c", 1, 5), Change("l", "c", 1, 6))
        target.sql(*triggers)
        self.put_changes(target, 2, Change("k", "d", None, 4), Change("no", "d", None, 7))
        sink = self.mirror(target)
        delete = rows_of([Change("l", "d", None, 8)])
        request = target.prepare(sink, "a", 3, delete, origin=Origin(_PROVENANCE, "one"))
        refused(target.commit(sink, request)[0], "keeps rows that were to be deleted")

    @given(data=st.data())
    @settings(
        max_examples=60,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
    )
    def test_table_equals_the_source_for_any_history(self, target: TableTarget, data: st.DataObject) -> None:
        """Changes are cut into commits, read again, replayed, and committed after a commit that was killed. With a
        version, keys change partition and changes arrive in any order. Batches without a value lack the column."""
        by_version = data.draw(st.booleans())
        keys = st.sampled_from(["a", "b", "B", "c "])
        drawn = data.draw(st.lists(st.tuples(keys, st.sampled_from("cudr")), min_size=1, max_size=14))
        history = [
            Change(key, op, None if op in "du" and number % 3 else number, number, "ab".find(key) % 2, version=number)
            for number, (key, op) in enumerate(drawn)
        ]
        arriving = data.draw(st.permutations(history)) if by_version else history
        self._apply_history(target, arriving, data, {"version": "w"} if by_version else {})

    def _apply_history(
        self, target: TableTarget, history: list[Change], data: st.DataObject, how: Mapping[str, str]
    ) -> None:
        urn, sink = next(_URNS), self.mirror(target, **how)
        requests: list[CommitRequest] = []
        last: dict[str, Change] = {}
        place, reached = 0, 0
        while reached < len(history):
            place = data.draw(st.integers(0, reached)) if data.draw(st.booleans()) else reached
            end = data.draw(st.integers(place + 1, len(history)))
            cut = data.draw(st.integers(place, end - 1))
            batches = [rows_of(part) for part in (history[place:cut], history[cut:end]) if part]
            batches = [inferred(batch) if requests else batch for batch in batches]
            origin = Origin(_PROVENANCE, "one")
            requests.append(target.prepare(sink, urn, len(requests) + 1, *batches, origin=origin))
            if data.draw(st.booleans()):
                self._kill_in_commit(target, sink, requests[-1])
            assert target.commit(sink, requests[-1]) == [Committed()]
            assert target.commit(sink, requests[-1]) == [AlreadyCommitted()]
            for change in history[place:end]:
                if change.key not in last or change.position >= last[change.key].position:
                    last[change.key] = change
            reached = max(reached, end)
            expected = sorted((key, change.value) for key, change in last.items() if change.op != "d")
            assert sorted(target.rows(urn, "k, v")) == expected
            deleted = sorted(key for key, change in last.items() if change.op == "d")
            assert sorted(key for (key,) in target.rows(f"distcommit_deleted_{urn}", "k")) == deleted

    @staticmethod
    def _kill_in_commit(target: TableTarget, sink: Any, request: CommitRequest) -> None:
        """Apply the rows, and end before the ledger has the commit."""

        def kill(row: object) -> None:
            raise _KilledError

        with releasing(sink.open_committer(target.context)) as committer:
            assert isinstance(committer, LedgerTableCommitter)
            committer.record = kill  # type: ignore[method-assign]
            with pytest.raises(_KilledError):
                committer.commit([request])
