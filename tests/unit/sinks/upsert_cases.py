"""Cases for upserts: the newest row of each key wins, for any order, run and path of rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from distcommit.core.interfaces.committer import CommitRequest, Committed
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.sink import Origin
from distcommit.core.work_units import MAIN_BRANCH
from tests.unit.sinks.databases.commit_steps import refused
from tests.unit.sinks.databases.table_sink_cases import TableTarget

_PROVENANCE = Provenance("p", "o")
Row = tuple[str, int, int, str | None]
"""Key, source partition, offset and value."""


def rows_of(*rows: Row) -> pa.RecordBatch:
    columns = [pa.array([row[place] for row in rows]) for place in range(3)]
    columns.append(pa.array([row[3] for row in rows], pa.string()))
    return pa.record_batch(columns, names=["k", "p", "o", "v"])


def origin(*, incarnation: str = "one", again: tuple[int, ...] = ()) -> Origin:
    """Return the origin of rows; `again` has the epochs of reprocessed error files."""
    return Origin(_PROVENANCE, incarnation, replaces=again)


class NewestCases:
    """Cases to subclass where a fixture `target` is a `TableTarget`."""

    @staticmethod
    def request(
        target: TableTarget,
        epoch: int,
        *batches: pa.RecordBatch,
        of: Origin | None = None,
        branch: str = MAIN_BRANCH,
        **settings: Any,
    ) -> CommitRequest:
        sink = target.sink(mode="upsert", keys=["k"], **settings)
        return target.prepare(sink, "a", epoch, *batches, origin=of or origin(), branch=branch)

    def put(
        self,
        target: TableTarget,
        epoch: int,
        *batches: pa.RecordBatch,
        of: Origin | None = None,
        branch: str = MAIN_BRANCH,
        **settings: Any,
    ) -> None:
        sink = target.sink(mode="upsert", keys=["k"], **settings)
        request = self.request(target, epoch, *batches, of=of, branch=branch, **settings)
        assert target.commit(sink, request) == [Committed()]

    def test_value_tombstone_value_in_one_commit_ends_as_the_last_value(self, target: TableTarget) -> None:
        self.put(target, 1, rows_of(("k", 0, 1, "first"), ("k", 0, 2, None), ("k", 0, 3, "last")))
        assert target.rows("a", "k, v") == [("k", "last")]

    def test_value_tombstone_value_over_three_commits_ends_as_the_last_value(self, target: TableTarget) -> None:
        for epoch, value in enumerate(("first", None, "last"), 1):
            self.put(target, epoch, rows_of(("k", 0, epoch, value)))
            assert target.rows("a", "k, v") == [("k", value)]

    def test_rows_grouped_by_schema_end_as_the_newest(self, target: TableTarget) -> None:
        values = rows_of(("k", 0, 1, "old"), ("k", 0, 3, "new"), ("l", 0, 4, "old"))
        self.put(target, 1, values, rows_of(("k", 0, 2, None), ("l", 0, 5, None)))
        assert target.rows("a", "k, v") == [("k", "new"), ("l", None)]

    def test_alternating_schemas_end_as_the_newest(self, target: TableTarget) -> None:
        narrow = rows_of(("k", 0, 1, "1"), ("k", 0, 3, "3"))
        wide = rows_of(("k", 0, 2, "2")).append_column("w", pa.array([2]))
        self.put(target, 1, narrow, evolve="add_columns")
        self.put(target, 2, wide, narrow, evolve="add_columns")
        assert target.rows("a", "k, v, w") == [("k", "3", None)]

    def test_range_that_is_read_again_replaces_no_newer_row(self, target: TableTarget) -> None:
        self.put(target, 1, rows_of(("k", 0, 7, "new"), ("l", 0, 1, "wrong")))
        self.put(target, 2, rows_of(("k", 0, 6, "old"), ("l", 0, 1, "corrected"), ("m", 0, 2, "more")))
        assert target.rows("a", "k, v") == [("k", "new"), ("l", "corrected"), ("m", "more")]

    def test_reprocessed_row_replaces_no_newer_row(self, target: TableTarget) -> None:
        self.put(target, 1, rows_of(("k", 0, 1, "before")))
        self.put(target, 2, rows_of(("k", 0, 9, "new")))
        self.put(target, 3, rows_of(("k", 0, 5, "mended"), ("only", 0, 6, "mended")), of=origin(again=(1,)))
        assert target.rows("a", "k, v") == [("k", "new"), ("only", "mended")]

    def test_reprocessed_row_replaces_an_older_row(self, target: TableTarget) -> None:
        self.put(target, 1, rows_of(("k", 0, 1, "before")))
        self.put(target, 2, rows_of(("k", 0, 5, "mended")), of=origin(again=(1,)))
        assert target.rows("a", "k, v") == [("k", "mended")]

    def test_reprocessed_row_of_another_partition_is_compared_by_its_run(self, target: TableTarget) -> None:
        self.put(target, 1, rows_of(("k", 0, 1, "first"), ("l", 0, 2, "first")))
        self.put(target, 3, rows_of(("l", 0, 3, "third")))
        self.put(target, 4, rows_of(("k", 1, 1, "second"), ("l", 1, 2, "second")), of=origin(again=(2,)))
        assert target.rows("a", "k, v") == [("k", "second"), ("l", "third")]

    def test_row_of_another_partition_replaces_an_earlier_row(self, target: TableTarget) -> None:
        self.put(target, 1, rows_of(("k", 0, 100, "first")))
        self.put(target, 2, rows_of(("k", 1, 1, "second")))
        assert target.rows("a", "k, v") == [("k", "second")]

    def test_rows_of_a_recreated_topic_are_newer_than_all_earlier_rows(self, target: TableTarget) -> None:
        self.put(target, 1, rows_of(("k", 0, 100, "former")))
        self.put(target, 2, rows_of(("k", 0, 1, "present")), of=origin(incarnation="two"))
        self.put(target, 3, rows_of(("k", 0, 101, "mended")), of=origin(again=(1,)))
        assert target.rows("a", "k, v") == [("k", "present")]

    def test_rows_after_a_change_of_partition_or_topic_are_compared_by_their_new_positions(
        self, target: TableTarget
    ) -> None:
        self.put(target, 1, rows_of(("k", 0, 100, "former"), ("l", 0, 101, "former"), ("m", 0, 102, "former")))
        self.put(target, 2, rows_of(("k", 1, 1, "moved")))
        self.put(target, 3, rows_of(("k", 1, 2, "next")))
        self.put(target, 4, rows_of(("l", 0, 1, "anew")), of=origin(incarnation="two"))
        self.put(target, 5, rows_of(("l", 0, 2, "next")), of=origin(incarnation="two"))
        self.put(target, 6, rows_of(("m", 1, 2, "mended")), of=origin(again=(2,)))
        self.put(target, 7, rows_of(("m", 1, 3, "next")))
        assert target.rows("a", "k, v") == [("k", "next"), ("l", "next"), ("m", "next")]

    def test_rows_renumbered_after_a_watermark_reset_are_newer(self, target: TableTarget) -> None:
        """Files and lists number the rows read: after a restart the newest version of a key may have a lower number."""
        counted = Origin(Provenance("p", "o", counts_reading=True))
        self.put(target, 1, rows_of(("k", 0, 100, "old"), ("l", 0, 101, "old"), ("k", 0, 102, "older")), of=counted)
        self.put(target, 2, rows_of(("k", 0, 1, "read again"), ("k", 0, 2, "new"), ("l", 0, 3, "new")), of=counted)
        assert target.rows("a", "k, v") == [("k", "new"), ("l", "new")]
        mended = Origin(Provenance("p", "o", counts_reading=True), replaces=(2,))
        self.put(target, 3, rows_of(("k", 0, 1, "mended"), ("l", 0, 4, "mended")), of=mended)
        assert target.rows("a", "k, v") == [("k", "new"), ("l", "mended")]

    @pytest.mark.parametrize("counts_reading", [False, True])
    def test_later_position_wins_between_two_branches_with_one_key(
        self, target: TableTarget, counts_reading: bool
    ) -> None:
        of = Origin(Provenance("p", "o", counts_reading=counts_reading))
        newer, older = rows_of(("k", 0, 9, "new"), ("l", 0, 1, "old")), rows_of(("k", 0, 5, "old"), ("l", 0, 7, "new"))
        self.put(target, 1, newer, of=of, branch="first")
        self.put(target, 1, older, of=of, branch="second")
        assert target.rows("a", "k, v") == [("k", "new"), ("l", "new")]

    def test_reprocessed_row_of_another_branch_is_compared_by_its_position(self, target: TableTarget) -> None:
        self.put(target, 1, rows_of(("k", 0, 9, "new"), ("l", 0, 1, "old")), branch="first")
        again = rows_of(("k", 0, 5, "mended"), ("l", 0, 7, "mended"))
        self.put(target, 2, again, of=origin(again=(1,)), branch="second")
        assert target.rows("a", "k, v") == [("k", "new"), ("l", "mended")]

    def test_reprocessed_row_numbered_before_a_restart_replaces_no_later_row(self, target: TableTarget) -> None:
        counted = Provenance("p", "o", counts_reading=True)
        self.put(target, 1, rows_of(("l", 0, 90, "old")), of=Origin(counted))
        self.put(target, 2, rows_of(("k", 0, 1, "new")), of=Origin(counted))
        again = rows_of(("k", 0, 100, "mended"), ("l", 0, 101, "mended"))
        self.put(target, 3, again, of=Origin(counted, replaces=(1,)))
        assert target.rows("a", "k, v") == [("k", "new"), ("l", "mended")]

    def test_reprocessed_row_of_a_later_numbering_replaces_an_earlier_row(self, target: TableTarget) -> None:
        counted = Provenance("p", "o", counts_reading=True)
        self.put(target, 1, rows_of(("k", 0, 100, "old")), of=Origin(counted))
        self.put(target, 3, rows_of(("k", 0, 1, "mended")), of=Origin(counted, replaces=(2,)))
        assert target.rows("a", "k, v") == [("k", "mended")]

    def test_commit_replayed_after_a_later_one_changes_nothing(self, target: TableTarget) -> None:
        sink = target.sink(mode="upsert", keys=["k"])
        first = self.request(target, 1, rows_of(("k", 0, 1, "old")))
        assert target.commit(sink, first) == [Committed()]
        self.put(target, 2, rows_of(("k", 0, 2, "new")))
        target.commit(sink, first)
        assert target.rows("a", "k, v") == [("k", "new")]

    def test_source_without_positions_upserts_in_reading_order(self, target: TableTarget) -> None:
        for epoch, value in ((1, "first"), (2, "second")):
            self.put(target, epoch, rows_of(("k", 0, 1, value)), of=Origin())
        self.put(target, 3, rows_of(("k", 0, 1, "mended")), of=Origin(replaces=(1,)))
        assert target.rows("a", "k, v") == [("k", "second")]

    def test_version_column_decides_which_row_is_newer(self, target: TableTarget) -> None:
        target.sql("CREATE TABLE a (k varchar(9) PRIMARY KEY, p bigint, o bigint, v varchar(9))")
        self.put(target, 1, rows_of(("k", 5, 1, "new"), ("k", 4, 2, "old"), ("l", 1, 3, "old")), version="p")
        self.put(target, 2, rows_of(("k", 3, 9, "older"), ("l", 2, 1, "new")), version="p")
        self.put(target, 3, rows_of(("k", 1, 0, "mended")), of=origin(again=(2,)), version="p")
        assert target.rows("a", "k, v") == [("k", "new"), ("l", "new")]

    def test_row_without_version_is_older_than_one_with_a_version(self, target: TableTarget) -> None:
        null = rows_of(("k", 0, 2, "old")).set_column(1, "p", pa.nulls(1, pa.int64()))
        self.put(target, 1, null, of=Origin(), version="p")
        assert target.rows("a", "k, v") == [("k", "old")]
        self.put(target, 2, rows_of(("k", 1, 1, "new")), null, of=Origin(), version="p")
        self.put(target, 3, null, of=Origin(), version="p")
        assert target.rows("a", "k, v") == [("k", "new")]

    @pytest.mark.parametrize("evolve", ["none", "add_columns"])
    def test_table_without_order_columns_gets_them_or_is_rejected(self, target: TableTarget, evolve: str) -> None:
        target.sql("CREATE TABLE a (k varchar(9) PRIMARY KEY, p bigint, o bigint, v varchar(9))")
        target.sql("INSERT INTO a (k, v) VALUES ('k', 'theirs')")
        sink = target.sink(mode="upsert", keys=["k"], evolve=evolve)
        (outcome,) = target.commit(sink, self.request(target, 1, rows_of(("k", 0, 1, "ours")), evolve=evolve))
        if evolve == "none":
            refused(outcome, "_distcommit_position", "name a `version` column")
        assert target.rows("a", "k, v") == [("k", "theirs" if evolve == "none" else "ours")]
