"""Row checkers: which rows pass, the reasons of those that fail, and rejected settings and schemas."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcommit.app.job_file.built_in_types import validated
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.constructs import RowChecker

NAN = float("nan")
SMALL = st.one_of(st.none(), st.integers(-3, 3))


def checker(name: str, **settings: Any) -> RowChecker:
    checker_under_test: RowChecker = validated("row_checker", {"type": name, **settings})
    return checker_under_test


def passes(checker_under_test: RowChecker, values: Any, kind: pa.DataType | None = None) -> list[bool]:
    """Return whether each row passes, for a column `a`."""
    answers: list[bool] = checker_under_test.check(pa.record_batch({"a": pa.array(values, kind)})).to_pylist()
    return answers


@given(rows=st.lists(st.tuples(SMALL, SMALL)), columns=st.sampled_from([["a"], ["b"], ["a", "b"]]))
def test_not_null_equals_a_python_reference(rows: list[tuple[int | None, int | None]], columns: list[str]) -> None:
    problem = {name: pa.array([row[i] for row in rows], pa.int64()) for i, name in enumerate("ab")}
    answers = checker("not_null", columns=columns).check(pa.record_batch(problem)).to_pylist()
    assert answers == [all(row["ab".index(name)] is not None for name in columns) for row in rows]


@given(values=st.lists(SMALL), low=SMALL, high=SMALL)
def test_range_equals_a_python_reference(values: list[int | None], low: int | None, high: int | None) -> None:
    if low is None and high is None:
        return
    answers = passes(checker("range", column="a", min=low, max=high), values, pa.int64())
    requested = [v is None or ((low is None or low <= v) and (high is None or v <= high)) for v in values]
    assert answers == requested


@given(values=st.lists(SMALL), allowed=st.lists(st.integers(-3, 3), min_size=1))
def test_in_set_equals_a_python_reference(values: list[int | None], allowed: list[int]) -> None:
    answers = passes(checker("in_set", column="a", values=allowed), values, pa.int64())
    assert answers == [v is None or v in allowed for v in values]


@given(
    values=st.lists(st.one_of(st.none(), st.text("ab\n", max_size=4))), pattern=st.sampled_from(["ab", "^a", r"b\z"])
)
def test_regex_equals_a_python_reference(values: list[str | None], pattern: str) -> None:
    answers = passes(checker("regex", column="a", pattern=pattern), values, pa.string())
    ours = re.compile(pattern.replace(r"\z", r"\Z"))
    assert answers == [v is None or ours.search(v) is not None for v in values]


def test_null_values_of_dictionaries_count_as_null() -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array(["x", None]))
    assert passes(checker("not_null", columns=["a"]), values) == [True, False, False]
    assert passes(checker("in_set", column="a", values=["y"]), values) == [False, True, True]
    assert passes(checker("regex", column="a", pattern="x"), values) == [True, True, True]
    assert passes(checker("range", column="a", min="y"), values) == [False, True, True]


def test_null_values_of_run_end_encoded_arrays_count_as_null() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([5, None]))
    assert passes(checker("not_null", columns=["a"]), runs) == [True, True, False]
    assert passes(checker("range", column="a", min=6), runs) == [False, False, True]


def test_floats_are_compared_by_ieee_rules() -> None:
    values = [NAN, -0.0, 0.0, float("inf")]
    assert passes(checker("not_null", columns=["a"]), values) == [True] * 4
    assert passes(checker("range", column="a", min=0), values) == [False, True, True, True]
    assert passes(checker("in_set", column="a", values=[0]), values) == [False, True, True, False]
    assert passes(checker("in_set", column="a", values=[-0.0]), values, pa.float32()) == [False, True, True, False]


def test_half_floats_are_compared() -> None:
    assert passes(checker("range", column="a", min=1), [0.5, 1.5], pa.float16()) == [False, True]
    assert passes(checker("in_set", column="a", values=[1.5]), [0.5, 1.5], pa.float16()) == [False, True]


def test_large_numbers_are_compared_exactly() -> None:
    big = 2**53 + 1  # no float can represent it
    assert passes(checker("range", column="a", min=big), [big - 1, big]) == [False, True]
    assert passes(checker("range", column="a", max=0.5), [0.5, 0.6], pa.float32()) == [True, False]
    decimals = pa.array(["0.10", "0.11"]).cast(pa.decimal128(20, 2))
    assert passes(checker("range", column="a", max=0.1), decimals) == [True, False]
    assert passes(checker("in_set", column="a", values=["0.11", 10**17]), decimals) == [False, True]


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize("limit", [date(2024, 1, 1), datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)])
def test_times_are_compared_in_utc(zone: str | None, limit: date) -> None:
    times = pa.array([datetime(2023, 12, 31, 23, 59), datetime(2024, 1, 1)], pa.timestamp("ms", zone))
    assert passes(checker("range", column="a", min=limit), times) == [False, True]
    with pytest.raises(ConfigurationError, match="not valid for the column"):
        passes(checker("range", column="a", min=limit), [5])


def test_dates_are_compared_with_dates() -> None:
    days = [date(2023, 12, 31), date(2024, 1, 1)]
    assert passes(checker("range", column="a", min=date(2024, 1, 1)), days) == [False, True]
    assert passes(checker("range", column="a", min="2024-01-01"), days) == [False, True]
    with pytest.raises(ConfigurationError, match=r"column=a.*date32"):
        passes(checker("range", column="a", min=datetime(2024, 1, 1)), days)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (0.5, pa.int64()),
        (300, pa.int8()),
        (2**63, pa.int64()),
        (float("inf"), pa.int64()),
        (1e300, pa.float32()),
        (10**400, pa.float64()),
        (NAN, pa.float64()),
        (0.125, pa.decimal128(9, 2)),
        ("x", pa.int64()),
        (5, pa.string()),
        (True, pa.int64()),
        (True, pa.float64()),
        (True, pa.decimal128(9, 2)),
        (1, pa.bool_()),
        ("\udc80", pa.string()),
        (date(1, 1, 1), pa.timestamp("ns")),
        (datetime(2024, 1, 1, 0, 0, 0, 5), pa.timestamp("s")),
        ("2024-01-01", pa.timestamp("us", "UTC")),
    ],
)
def test_value_that_the_column_can_not_have_is_rejected_before_it_is_compared(value: Any, kind: pa.DataType) -> None:
    schema = pa.schema([("a", kind)])
    for checker_under_test in (checker("range", column="a", max=value), checker("in_set", column="a", values=[value])):
        with pytest.raises(ConfigurationError, match=re.escape(f"expected a value of type {kind}")):
            checker_under_test.check_schema(schema)


@pytest.mark.parametrize(
    "settings",
    [
        {"type": "not_null", "columns": ["a", "b"]},
        {"type": "range", "column": "b", "min": 1},
        {"type": "in_set", "column": "b", "values": [1]},
        {"type": "regex", "column": "b", "pattern": "x"},
    ],
)
def test_missing_column_raises_before_and_during_the_read(settings: dict[str, Any]) -> None:
    checker_under_test = validated("row_checker", settings)
    batch = pa.record_batch({"a": [1]})
    message = f"construct={settings['type']}.*'b'"
    with pytest.raises(ConfigurationError, match=message):
        checker_under_test.check_schema(batch.schema)
    with pytest.raises(ConfigurationError, match=message):
        checker_under_test.check(batch)


def test_nested_columns_can_not_be_compared() -> None:
    schema = pa.schema([("a", pa.list_(pa.int64()))])
    for checker_under_test in (checker("range", column="a", min=1), checker("in_set", column="a", values=[1])):
        with pytest.raises(ConfigurationError, match="numbers, text"):
            checker_under_test.check_schema(schema)
    with pytest.raises(ConfigurationError, match="text or bytes"):
        checker("regex", column="a", pattern="x").check_schema(schema)
    assert passes(checker("not_null", columns=["a"]), [[], None]) == [True, False]


def test_text_of_every_type_is_matched_and_compared() -> None:
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()):
        assert passes(checker("regex", column="a", pattern="^x"), ["xy", "y"], kind) == [True, False]
        assert passes(checker("range", column="a", min="y"), ["xy", "y"], kind) == [False, True]
        assert passes(checker("in_set", column="a", values=["xy"]), ["xy", "y"], kind) == [True, False]


def test_bytes_that_are_not_utf_8_do_not_match() -> None:
    broken = pa.array([b"\xff\xfex", b"x"]).view(pa.string())
    assert passes(checker("regex", column="a", pattern="^.x"), broken) == [False, False]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"type": "not_null", "columns": []}, "at least 1"),
        ({"type": "range", "column": "a"}, "must have min, max, or both"),
        ({"type": "in_set", "column": "a", "values": []}, "at least 1"),
        ({"type": "regex", "column": "a", "pattern": "("}, "RE2"),
        ({"type": "regex", "column": "a", "pattern": "(?=a)"}, "RE2"),
        ({"type": "schema", "columns": {"a": "intt64"}}, "found 'intt64'"),
        ({"type": "schema", "columns": {}}, "at least 1"),
        ({"type": "schema", "columns": {"a": "int64"}, "extra": "maybe"}, "allowed"),
        ({"type": "not_null", "columns": ["a"], "level": "urgent"}, "mandatory"),
        ({"type": "not_null", "columns": ["a"], "colums": 1}, "colums"),
    ],
)
def test_invalid_row_checker_settings_are_rejected(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        validated("row_checker", settings)


@pytest.mark.parametrize(
    ("checker_under_test", "reason"),
    [
        (checker("not_null", columns=["a", "b"]), "a, b not null"),
        (checker("range", column="a", min=1, max=2), "1 <= a <= 2"),
        (checker("range", column="a", min=1), "1 <= a"),
        (checker("range", column="a", max=2), "a <= 2"),
        (checker("in_set", column="a", values=list(range(12))), "a in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...)"),
        (checker("regex", column="a", pattern="^x"), "a matches ^x"),
        (checker("schema", columns={"a": "int64"}, extra="refused"), "the schema has a int64, and no other column"),
    ],
)
def test_row_checker_describes_its_reason(checker_under_test: RowChecker, reason: str) -> None:
    assert checker_under_test.describe() == reason


def test_class_that_is_not_a_row_checker_raises() -> None:
    with pytest.raises(ConfigurationError, match="RowChecker"):
        passes(checker("python", **{"class": "builtins:dict"}), [1])
