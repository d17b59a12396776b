"""Task checkers: which attempts pass, the reported details, and rejected settings and records."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcommit.app.job_file.built_in_types import validated
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.constructs import BranchCounts, TaskChecker

KEYS = st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.one_of(st.none(), st.sampled_from("xy"))))


def outcome(settings: dict[str, Any], *batches: dict[str, Any] | pa.RecordBatch, **counts: int) -> tuple[bool, str]:
    """Return the outcome for an attempt that wrote these batches."""
    instance: TaskChecker = validated("task_checker", settings)
    check = instance.begin()
    record_batches = [batch if isinstance(batch, pa.RecordBatch) else pa.record_batch(batch) for batch in batches]
    for batch in record_batches:
        check.inspect(batch)
    written = sum(batch.num_rows for batch in record_batches)
    return check.outcome(BranchCounts(**{"read": written, "written": written, "rejected": 0, "filtered": 0, **counts}))


@given(batches=st.lists(KEYS, max_size=3), columns=st.sampled_from([["a"], ["b"], ["a", "b"]]))
def test_unique_equals_a_python_reference(
    batches: list[list[tuple[int | None, str | None]]], columns: list[str]
) -> None:
    kinds = {"a": pa.int64(), "b": pa.string()}
    record_batches = [
        pa.record_batch({name: pa.array([row[i] for row in rows], kinds[name]) for i, name in enumerate("ab")})
        for rows in batches
    ]
    keys = [tuple(row["ab".index(name)] for name in columns) for rows in batches for row in rows]
    whole = [key for key in keys if None not in key]
    assert outcome({"type": "unique", "columns": columns}, *record_batches)[0] == (len(whole) == len(set(whole)))


def test_unique_reports_the_number_of_duplicates_and_one_example() -> None:
    settings = {"type": "unique", "columns": ["a", "b"]}
    passed, detail = outcome(settings, {"a": [1, 1, 2], "b": ["x\n", "y", "x"]}, {"a": [1, 3], "b": ["x\n", "x"]})
    assert not passed
    assert detail == r"expected each a, b once, found 1 of 4 more than once, such as 1, x\n (2 times)"
    long = outcome({"type": "unique", "columns": ["a"]}, {"a": ["x" * 10**6] * 2})[1]
    assert len(long) < 200
    assert outcome(settings)[1] == "expected each a, b once, found no records"
    assert outcome(settings, {"a": [1], "b": ["x"]})[1] == "expected each a, b once, found 1 different ones"


def test_keys_of_widened_types_are_compared() -> None:
    def one(number: int, kind: pa.DataType) -> pa.RecordBatch:
        return pa.record_batch({"a": pa.array([number], kind)})

    settings = {"type": "unique", "columns": ["a"]}
    assert not outcome(settings, one(1, pa.int32()), one(1, pa.int64()))[0]
    assert not outcome(settings, one(1, pa.int64()), one(2, pa.int32()), one(1, pa.int8()))[0]
    assert outcome(settings, one(1, pa.int32()), one(2**40, pa.int64()))[0]
    text = pa.array(["x"])
    assert not outcome(settings, {"a": text}, {"a": text.dictionary_encode()})[0]


def test_keys_of_types_that_can_not_be_compared_do_not_pass() -> None:
    settings = {"type": "unique", "columns": ["a"]}
    assert outcome(settings, {"a": [1]}, {"a": ["1"]}) == (
        False,
        "expected a of one type in all records, found several",
    )
    big = 2**53
    assert not outcome(settings, {"a": [big, big + 1]}, {"a": [0.5]})[0]


def test_unique_treats_both_zeros_and_all_nans_as_equal() -> None:
    settings = {"type": "unique", "columns": ["a"]}
    assert not outcome(settings, {"a": [0.0, -0.0]})[0]
    assert not outcome(settings, {"a": [float("nan")]}, {"a": [float("nan")]})[0]


@given(written=st.integers(0, 9), low=st.integers(0, 9), more=st.one_of(st.none(), st.integers(0, 9)))
def test_row_count_equals_a_python_reference(written: int, low: int, more: int | None) -> None:
    high = None if more is None else low + more
    passed, detail = outcome({"type": "row_count", "min": low, "max": high}, written=written)
    assert passed == (written >= low and (high is None or written <= high))
    assert detail.endswith(f"found {written}")


@given(counts=st.tuples(*[st.integers(0, 20)] * 4), percent=st.integers(0, 100))
def test_shares_are_exact(counts: tuple[int, int, int, int], percent: int) -> None:
    read, written, rejected, filtered = counts
    arguments = {"read": read, "written": written, "rejected": rejected, "filtered": filtered}
    off = abs(written + rejected + filtered - read)
    passed, _ = outcome({"type": "row_count_of_source", "tolerance": percent / 100}, **arguments)
    assert passed == (100 * off <= percent * read)
    passed, _ = outcome({"type": "fraction_rejected", "max": percent / 100}, **arguments)
    assert passed == (100 * rejected <= percent * read)


def test_share_at_its_exact_bound_passes() -> None:
    counts = {"read": 100, "written": 71, "rejected": 29, "filtered": 0}  # as floats, 0.29 * 100 is less than 29
    assert outcome({"type": "fraction_rejected", "max": 0.29}, **counts)[0]
    assert outcome({"type": "row_count_of_source", "tolerance": 0.29}, **{**counts, "rejected": 0})[0]


def test_details_report_the_counts() -> None:
    counts = {"read": 2000, "written": 1500, "rejected": 400, "filtered": 99}
    assert outcome({"type": "row_count_of_source"}, **counts) == (
        False,
        "expected 2,000 records as read, found 1,999: 1,500 written, 400 rejected, 99 filtered",
    )
    assert outcome({"type": "row_count_of_source", "tolerance": 0.01}, **counts)[0]
    assert outcome({"type": "fraction_rejected", "max": 0.1}, **counts) == (
        False,
        "expected at most 0.1 rejected, found 0.2: 400 of 2,000 records",
    )
    assert outcome({"type": "fraction_rejected", "max": 0}) == (
        True,
        "expected at most 0 rejected, found 0: 0 of 0 records",
    )


def ago(**span: float) -> datetime:
    return datetime.now(UTC) - timedelta(**span)


@pytest.mark.parametrize(
    "kind", [pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")]
)
def test_freshness_is_measured_by_the_clock(kind: pa.DataType) -> None:
    old, new = (
        pa.array([ago(hours=hours)]).cast(pa.timestamp("us", "UTC")).cast(kind, safe=False) for hours in (50, 2)
    )
    settings = {"type": "freshness", "column": "a", "max_age_s": 10_000}
    assert outcome(settings, {"a": new}, {"a": old})[0]
    assert not outcome(settings, {"a": old})[0]
    assert not outcome({**settings, "of": "oldest"}, {"a": new}, {"a": old}, {"a": new})[0]
    assert outcome({**settings, "of": "oldest"}, {"a": new})[0]
    assert not outcome({**settings, "max_age_s": 7000}, {"a": new})[0]


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()])
def test_days_begin_at_midnight_utc(kind: pa.DataType) -> None:
    days = pa.array([datetime.now(UTC).date() - timedelta(days=2)]).cast(kind)
    assert outcome({"type": "freshness", "column": "a", "max_age_s": 3 * 86_400}, {"a": days})[0]
    assert not outcome({"type": "freshness", "column": "a", "max_age_s": 2 * 86_400 - 1}, {"a": days})[0]


def test_freshness_is_measured_by_the_time_of_records() -> None:
    settings = {"type": "freshness", "column": "a", "max_age_s": 60, "record_time": "at"}
    noon = datetime(2024, 1, 1, 12)
    times = {"a": [noon, None], "at": [noon + timedelta(seconds=59), noon + timedelta(seconds=60)]}
    assert outcome(settings, times) == (
        True,
        "expected the newest a at most 60 s before the newest at, found 60.000 s",
    )
    assert not outcome(settings, times, {"a": [noon], "at": [noon + timedelta(seconds=60, microseconds=1)]})[0]
    assert outcome({**settings, "column": "at", "max_age_s": 0}, times)[0]
    assert outcome({**settings, "column": "at", "record_time": "a"}, times)[0], "future times are not too old"
    assert not outcome({**settings, "max_age_s": 59, "of": "oldest"}, times)[0], "the newest record time counts"


def test_times_far_from_now_do_not_raise() -> None:
    for value, passed in ((-(2**63), False), (2**63 - 1, True)):
        times = pa.array([value], pa.int64()).cast(pa.timestamp("s"))
        assert outcome({"type": "freshness", "column": "a", "max_age_s": 60}, {"a": times})[0] is passed


def test_records_without_a_time_fail_and_an_attempt_without_records_passes() -> None:
    settings = {"type": "freshness", "column": "a", "max_age_s": 60}
    nothing = pa.array([None], pa.timestamp("us"))
    assert outcome(settings, {"a": nothing}) == (
        False,
        "expected the newest a at most 60 s old, found no value of a",
    )
    assert outcome(settings)[0]
    records = {"a": [datetime(2024, 1, 1)], "at": nothing}
    assert outcome({**settings, "record_time": "at"}, records)[1].endswith("found no value of at")


def test_each_schema_is_compared_with_the_declared_columns() -> None:
    settings = {"type": "schema", "columns": {"a": "int64", "b": ["string"]}, "extra": "refused"}
    assert outcome(settings, {"a": [1], "b": [[""]]}, {"b": [None], "a": [None]}) == (
        True,
        "expected columns a int64, b list<item: string>, found just that",
    )
    bad = {"a": ["x"], "c": [1]}
    assert outcome(settings, {"a": [1], "b": [[""]]}, bad, bad, {"a": [1], "b": [[""]]}) == (
        False,
        "expected columns a int64, b list<item: string>, found a is string, not int64; b is missing; c is not declared",
    )
    assert outcome(settings)[0]


@pytest.mark.parametrize(
    ("settings", "batch", "message"),
    [
        ({"type": "unique", "columns": ["b"]}, {"a": [1]}, "construct=unique"),
        ({"type": "unique", "columns": ["a"]}, {"a": [[1]]}, "numbers, text"),
        ({"type": "freshness", "column": "b", "max_age_s": 1}, {"a": [1]}, "construct=freshness"),
        ({"type": "freshness", "column": "a", "max_age_s": 1}, {"a": [1]}, "timestamps or dates"),
        (
            {"type": "freshness", "column": "a", "max_age_s": 1, "record_time": "b"},
            {"a": [date(2024, 1, 1)], "b": [1]},
            "timestamps or dates",
        ),
    ],
)
def test_records_that_can_not_be_checked_raise(settings: dict[str, Any], batch: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        outcome(settings, batch)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"type": "unique", "columns": []}, "at least 1"),
        ({"type": "row_count"}, "must have min, max, or both"),
        ({"type": "row_count", "min": -1}, "greater than or equal to 0"),
        ({"type": "row_count", "min": 2, "max": 1}, "max must not be less than min"),
        ({"type": "row_count_of_source", "tolerance": -0.1}, "greater than or equal to 0"),
        ({"type": "row_count_of_source", "tolerance": float("nan")}, "finite"),
        ({"type": "fraction_rejected"}, "required"),
        ({"type": "fraction_rejected", "max": 1.1}, "less than or equal to 1"),
        ({"type": "freshness", "column": "a"}, "required"),
        ({"type": "freshness", "column": "a", "max_age_s": float("inf")}, "finite"),
        ({"type": "schema", "columns": {"a": "intt"}}, "found 'intt'"),
        ({"type": "row_count", "min": 1, "level": "warn"}, "optional"),
    ],
)
def test_invalid_task_checker_settings_are_rejected(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        validated("task_checker", settings)


def test_class_that_is_not_a_task_checker_raises() -> None:
    with pytest.raises(ConfigurationError, match="TaskChecker"):
        outcome({"type": "python", "class": "builtins:dict"})
