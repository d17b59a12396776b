"""Rows read by Spark, staged and read again without Spark: ranges of a watermark column, and snapshots."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from msgspec.structs import replace
from pydantic import ValidationError

from distcommit.core.errors import SourceError
from distcommit.core.interfaces.source import DatasetProblem
from distcommit.core.watermark import Position, Watermark
from distcommit.core.work_units import DatasetPlan
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sources.spark.source import SparkSource
from distcommit.sources.spark.staged_row_files import FrameSpool, StagedFrame, StagedFrames, StagedPart, end_of
from distcommit.sources.watermark_column import Kind
from tests.unit.sources.retried_ranges import states_of
from tests.unit.sources.sql.sql_tables import planned

NOON = "2024-05-01T12:00:00.000000Z"


class Staged:
    """The dataset `t`, staged by tasks that each start twice."""

    def __init__(self, folder: Path) -> None:
        self.frames = StagedFrames(LocalFileSystem(), str(folder), ("t",))
        (folder / "00000").mkdir()

    def stage(self, partitions: Sequence[pa.Array], column: str, kind: Kind = Kind.INTEGER, **about: Any) -> None:
        spool = FrameSpool(self.frames.fs, self.frames.folder_of("t"), column, kind)
        parts: list[StagedPart] = []
        for values in partitions:
            batches = [pa.record_batch({"c": values.slice(at, 2)}) for at in range(0, len(values), 2)]
            list(spool(batches))
            for spooled in spool(batches):
                parts += [msgspec.json.decode(text, type=StagedPart) for text in spooled["part"].to_pylist()]
        self.parts = tuple(parts)
        values = [value for part in partitions for value in part.to_pylist() if value is not None]
        before = NOON if kind is Kind.TIME else about.pop("before", max(values, default=None))
        end = end_of(kind, parts, about.pop("lookback", 0), before)
        Path(self.frames.folder_of("t"), "index.json").unlink(missing_ok=True)
        frame = StagedFrame(self.parts, column, kind, about.get("bound"), end, reader=about.get("reader", ""))
        self.frames.put("t", frame)

    def plan(self, position: Position | None = None, incarnation: str = "c:integer") -> Any:
        return self.plan_again(None, position, incarnation)

    def plan_again(
        self, high: Position | None, position: Position | None = None, incarnation: str = "c:integer"
    ) -> Any:
        """Return the plan with a read failure that ends at `high`."""
        read, again = (
            {} if value is None else {"t": Watermark({"": value}, incarnation)} for value in (position, high)
        )
        return planned(self.frames, states_of(read, again))

    def read(self, plan: DatasetPlan) -> list[Any]:
        with contextlib.closing(self.frames.open()) as extractor:
            extraction = extractor.extract(plan.work_units[0])
            rows = [row["c"] for batch in extraction for row in batch.to_pylist()]
            assert plan.work_units[0].can_end_at(extraction.actual_high())
        return rows


@pytest.fixture
def staged(tmp_path: Path) -> Staged:
    return Staged(tmp_path)


def integers(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int32())


def problem(planned: list[Any]) -> str:
    (only,) = planned
    assert isinstance(only, DatasetProblem)
    return only.error


def test_rows_of_a_range_are_read_once_in_any_order(staged: Staged) -> None:
    staged.stage([integers(4, -2, 3, 3), integers(), integers(5, 1)], "c")
    (plan,) = staged.plan()
    assert sorted(staged.read(plan)) == [-2, 1, 3, 3, 4]
    assert plan.work_units[0].expected_high == Watermark({"": 5}, "c:integer")
    (plan,) = staged.plan(3)
    assert sorted(staged.read(plan)) == [3, 3, 4]
    assert staged.plan(5) == []


def test_read_failure_of_staged_rows_is_planned_up_to_its_end(staged: Staged) -> None:
    staged.stage([integers(4, 1, 3), integers(5, 2, 9)], "c")
    (plan,) = staged.plan_again(4, 2)
    assert plan.work_units[0].expected_high == Watermark({"": 4}, "c:integer")
    assert sorted(staged.read(plan)) == [2, 3]
    for nowhere in (2, 12):
        (plan,) = staged.plan_again(nowhere, 2)
        assert sorted(staged.read(plan)) == [2, 3, 4, 5]


def test_rows_newer_than_the_first_read_wait(staged: Staged) -> None:
    """The first Spark task has read before row 4 arrived, the second one after row 5 did."""
    staged.stage([integers(1, 2), integers(3, 5)], "c", before=3)
    (plan,) = staged.plan()
    assert sorted(staged.read(plan)) == [1, 2]
    assert plan.work_units[0].expected_high == Watermark({"": 3}, "c:integer")


def test_end_of_a_range_is_reduced_by_the_lookback(staged: Staged) -> None:
    staged.stage([integers(1, 2, 5, 9)], "c", lookback=4)
    (plan,) = staged.plan()
    assert staged.read(plan) == [1, 2]


@pytest.mark.parametrize("zone", ["Asia/Tokyo", None])
def test_times_are_read_up_to_now(staged: Staged, zone: str | None) -> None:
    times = [datetime(2024, 5, 1, hour, tzinfo=UTC) for hour in (1, 11, 23)]
    values = [time if zone else time.replace(tzinfo=None) for time in times]
    staged.stage([pa.array(values, pa.timestamp("us", tz=zone))], "c", Kind.TIME)
    (plan,) = staged.plan()
    assert [time.replace(tzinfo=time.tzinfo or UTC) for time in staged.read(plan)] == times[:2]
    assert plan.work_units[0].expected_high.positions == {"": NOON}


def test_times_of_an_unfinished_second_wait() -> None:
    part = StagedPart("a", 1, 1, newest="2024-05-01T23:00:00.000000Z")
    assert end_of(Kind.TIME, [part], 0, "2024-05-01T12:00:00.999999Z") == NOON


def test_newest_times_wait_for_later_ones(staged: Staged) -> None:
    staged.stage([pa.array([datetime(2024, 4, day) for day in (1, 3)], pa.timestamp("us"))], "c", Kind.TIME)
    (plan,) = staged.plan()
    assert staged.read(plan) == [datetime(2024, 4, 1)]


def test_staged_rows_without_a_value_are_reported_and_the_others_are_read(staged: Staged) -> None:
    staged.stage([integers(None, 1, 2)], "c")
    dataset_problem, plan = staged.plan()
    assert "NULL in 1 row" in dataset_problem.error
    assert staged.read(plan) == [1]


def test_snapshot_contains_all_rows_and_each_run_has_the_next_number(staged: Staged) -> None:
    staged.stage([integers(2, None), integers(2)], "")
    (plan,) = staged.plan()
    assert staged.read(plan) == [2, None, 2]
    (plan,) = staged.plan(7, "snapshot")
    assert plan.work_units[0].low.positions == {"": 7}
    assert plan.work_units[0].expected_high == Watermark({"": 8}, "snapshot")
    assert "expected a position of snapshot" in problem(staged.plan(7, "c:integer"))


def test_empty_snapshot_is_read(staged: Staged) -> None:
    staged.stage([], "")
    (plan,) = staged.plan(1, "snapshot")
    assert staged.read(plan) == []


def test_watermark_set_back_while_spark_reads_waits_for_the_next_run(staged: Staged) -> None:
    staged.stage([integers(5, 6, 7)], "c", bound=5)
    (plan,) = staged.plan(6)
    assert staged.read(plan) == [6]
    assert "went back while Spark was reading" in problem(staged.plan(4))
    assert "went back while Spark was reading" in problem(staged.plan())


def test_column_that_ends_before_the_watermark_is_reported_with_its_remedy(staged: Staged) -> None:
    staged.stage([integers(3, 5)], "c", bound=5)
    assert staged.plan(5) == []
    staged.stage([integers(None)], "c", bound=5, before=None)
    _, dataset_problem = staged.plan(5)
    assert "ends before the stored position" in dataset_problem.error
    assert "expected values up to 5; found no value at or past it" in dataset_problem.error
    assert dataset_problem.remedy == ("dataset set-watermark", "t", "null")
    staged.stage([], "c", before=None)
    assert staged.plan() == []


def test_times_that_end_before_the_watermark_are_reported(staged: Staged) -> None:
    staged.stage([pa.array([datetime(2024, 4, day) for day in (1, 3)], pa.timestamp("us"))], "c", Kind.TIME)
    assert staged.plan("2024-04-03T00:00:00.000000Z", "c:time") == []
    error = problem(staged.plan("2024-04-03T00:00:00.000001Z", "c:time"))
    assert "found nothing past '2024-04-03T00:00:00.000000Z'" in error
    assert 'or to {"": "2024-04-03T00:00:00.000000Z"} to continue at its present end' in error


def test_changed_reader_stops_until_it_is_restored_or_an_operator_sets_the_position(
    staged: Staged,
) -> None:
    staged.stage([integers(1, 2, 5)], "c", reader="aaa")
    (plan,) = staged.plan()
    assert plan.work_units[0].expected_high == Watermark({"": 5}, "c:integer of reader aaa")
    (plan,) = staged.plan(2, "c:integer of reader aaa")
    assert staged.read(plan) == [2]
    (dataset_problem,) = staged.plan(2, "c:integer of reader bbb")
    assert "expected format and options of reader bbb; found format and options of reader aaa" in dataset_problem.error
    assert dataset_problem.remedy == ("dataset set-watermark", "t", '{"": 2}')
    for by_hand_or_of_an_older_program in ("", "c:integer"):
        (plan,) = staged.plan(2, by_hand_or_of_an_older_program)
        assert staged.read(plan) == [2]
    assert "is not one of the watermark column" in problem(staged.plan(2, "d:integer of reader aaa"))


def test_incomplete_staged_rows_fail_the_work_unit(staged: Staged) -> None:
    staged.stage([integers(1, 2, 3), integers(4)], "c")
    (plan,) = staged.plan()
    short = replace(staged.frames.get("t"), parts=(replace(staged.parts[0], rows=4), staged.parts[1]))
    Path(staged.frames.folder_of("t"), "index.json").unlink()
    staged.frames.put("t", short)
    with pytest.raises(SourceError, match="not read as a whole"):
        staged.read(plan)


def test_abandoned_extraction_has_no_position(staged: Staged) -> None:
    staged.stage([integers(1, 2, 3, 4, 5)], "c")
    (plan,) = staged.plan()
    extraction = staged.frames.open().extract(plan.work_units[0])
    next(iter(extraction))
    with pytest.raises(SourceError, match="not read as a whole"):
        extraction.actual_high()


def test_value_that_can_not_be_a_position_raises(staged: Staged) -> None:
    with pytest.raises(SourceError, match="can't be a position"):
        staged.stage([pa.array([(1 << 63) - 1], pa.int64())], "c")


def settings(**changed: Any) -> SparkSource:
    return SparkSource.model_validate({"type": "spark", "format": "orc", "datasets": {"t": {}}, **changed})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"watermark": "c"}, "lookback must be set with watermark"),
        ({"lookback": 1}, "lookback must not be set without watermark"),
        ({"datasets": {"": {}}}, "must be the name of a dataset"),
        ({"datasets": {}}, "at least 1 item"),
    ],
)
def test_invalid_spark_settings_are_rejected(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings(**changed)


def test_password_is_read_from_its_file_on_use_and_never_shown(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    source = settings(password=f"${{file:{tmp_path}/secret}}", datasets={"t": {"fetchsize": 10, "a": True}})
    assert source.reader_options("t") == {"password": "s3cret", "fetchsize": "10", "a": "true"}
    assert "s3cret" not in repr(source)
    with pytest.raises(ValidationError, match="absolute path"):
        settings(password="${file:secret}")


URL = "jdbc:postgresql://one:5432/shop?currentSchema=a"


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({"options": {"URL": URL.replace("one:5432", "two")}}, True),
        ({"options": {"url": URL, "fetchsize": 10, "numPartitions": 4, "user": "other"}}, True),
        ({"options": {"url": URL, "fs.s3a.secret.key": "rotated"}}, True),
        ({"options": {}, "datasets": {"t": {"url": URL, "DBTable": "t"}}}, True),
        ({"datasets": {"t": {"dbtable": "t"}, "u": {"dbtable": "u"}}}, True),
        ({"options": {"url": URL.replace("shop", "other")}}, False),
        ({"options": {"url": URL.replace("=a", "=b")}}, False),
        ({"datasets": {"t": {"dbtable": "(SELECT * FROM t WHERE n > 1) AS t"}}}, False),
        ({"options": {"url": URL, "mode": "DROPMALFORMED"}}, False),
        ({"format": "orc"}, False),
    ],
)
def test_reader_identity_changes_only_with_options_that_select_rows(changed: dict[str, Any], same: bool) -> None:
    before = {"format": "jdbc", "options": {"url": URL}, "datasets": {"t": {"dbtable": "t"}}}
    reader = settings(**before).reader_of("t")
    assert (settings(**{**before, **changed}, password="${file:/gone}").reader_of("t") == reader) is same


def test_positions_that_can_be_set_are_validated(tmp_path: Path) -> None:
    snapshots, ranges = settings(), settings(watermark="c", lookback=0)
    assert not list(snapshots.position_problems({"t": {"": 4}}))
    assert not list(ranges.position_problems({"t": {"": -4}})) + list(ranges.position_problems({"t": {"": NOON}}))
    assert list(snapshots.position_problems({"t": {"": -4}}))
    assert list(ranges.position_problems({"t": {"": "noon"}}))
    assert len(list(ranges.position_problems({"u": {"0": 1}}))) == 2
    with pytest.raises(SourceError, match="the Spark source was called outside of a run"):
        snapshots.open()
