"""Row checkers: what passes, the reason of what does not, and settings and schemas that are refused."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcommit.app.job_file.built_in import validated
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.constructs import RowChecker

NAN = float("nan")
SMALL = st.one_of(st.none(), st.integers(-3, 3))


def checker(name: str, **settings: Any) -> RowChecker:
    made: RowChecker = validated("row_checker", {"type": name, **settings})
    return made


def passes(made: RowChecker, values: Any, kind: pa.DataType | None = None) -> list[bool]:
    """By row, of a column `a`."""
    answers: list[bool] = made.check(pa.record_batch({"a": pa.array(values, kind)})).to_pylist()
    return answers


@given(rows=st.lists(st.tuples(SMALL, SMALL)), columns=st.sampled_from([["a"], ["b"], ["a", "b"]]))
def test_not_null_is_what_python_says(rows: list[tuple[int | None, int | None]], columns: list[str]) -> None:
    found = {name: pa.array([row[i] for row in rows], pa.int64()) for i, name in enumerate("ab")}
    answers = checker("not_null", columns=columns).check(pa.record_batch(found)).to_pylist()
    assert answers == [all(row["ab".index(name)] is not None for name in columns) for row in rows]


@given(values=st.lists(SMALL), low=SMALL, high=SMALL)
def test_range_is_what_python_says(values: list[int | None], low: int | None, high: int | None) -> None:
    if low is None and high is None:
        return
    answers = passes(checker("range", column="a", min=low, max=high), values, pa.int64())
    wanted = [v is None or ((low is None or low <= v) and (high is None or v <= high)) for v in values]
    assert answers == wanted


@given(values=st.lists(SMALL), allowed=st.lists(st.integers(-3, 3), min_size=1))
def test_in_set_is_what_python_says(values: list[int | None], allowed: list[int]) -> None:
    answers = passes(checker("in_set", column="a", values=allowed), values, pa.int64())
    assert answers == [v is None or v in allowed for v in values]


@given(
    values=st.lists(st.one_of(st.none(), st.text("ab\n", max_size=4))), pattern=st.sampled_from(["ab", "^a", r"b\z"])
)
def test_regex_is_what_python_says(values: list[str | None], pattern: str) -> None:
    answers = passes(checker("regex", column="a", pattern=pattern), values, pa.string())
    ours = re.compile(pattern.replace(r"\z", r"\Z"))
    assert answers == [v is None or ours.search(v) is not None for v in values]


def test_nulls_of_dictionaries_are_nulls() -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array(["x", None]))
    assert passes(checker("not_null", columns=["a"]), values) == [True, False, False]
    assert passes(checker("in_set", column="a", values=["y"]), values) == [False, True, True]
    assert passes(checker("regex", column="a", pattern="x"), values) == [True, True, True]
    assert passes(checker("range", column="a", min="y"), values) == [False, True, True]


def test_nulls_of_runs_are_nulls() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([5, None]))
    assert passes(checker("not_null", columns=["a"]), runs) == [True, True, False]
    assert passes(checker("range", column="a", min=6), runs) == [False, False, True]


def test_floats_as_they_are() -> None:
    values = [NAN, -0.0, 0.0, float("inf")]
    assert passes(checker("not_null", columns=["a"]), values) == [True] * 4
    assert passes(checker("range", column="a", min=0), values) == [False, True, True, True]
    assert passes(checker("in_set", column="a", values=[0]), values) == [False, True, True, False]
    assert passes(checker("in_set", column="a", values=[-0.0]), values, pa.float32()) == [False, True, True, False]


def test_floats_of_two_bytes_are_compared() -> None:
    assert passes(checker("range", column="a", min=1), [0.5, 1.5], pa.float16()) == [False, True]
    assert passes(checker("in_set", column="a", values=[1.5]), [0.5, 1.5], pa.float16()) == [False, True]


def test_no_number_is_too_large_to_be_compared() -> None:
    big = 2**53 + 1  # no float has it
    assert passes(checker("range", column="a", min=big), [big - 1, big]) == [False, True]
    assert passes(checker("range", column="a", max=0.5), [0.5, 0.6], pa.float32()) == [True, False]
    decimals = pa.array(["0.10", "0.11"]).cast(pa.decimal128(20, 2))
    assert passes(checker("range", column="a", max=0.1), decimals) == [True, False]
    assert passes(checker("in_set", column="a", values=["0.11", 10**17]), decimals) == [False, True]


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize("limit", [date(2024, 1, 1), datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)])
def test_times_are_those_of_utc(zone: str | None, limit: date) -> None:
    times = pa.array([datetime(2023, 12, 31, 23, 59), datetime(2024, 1, 1)], pa.timestamp("ms", zone))
    assert passes(checker("range", column="a", min=limit), times) == [False, True]
    with pytest.raises(ConfigurationError, match="not valid for the column"):
        passes(checker("range", column="a", min=limit), [5])


def test_days_are_compared_with_days() -> None:
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
def test_a_value_that_the_column_can_not_have_is_refused_before_it_is_compared(value: Any, kind: pa.DataType) -> None:
    schema = pa.schema([("a", kind)])
    for made in (checker("range", column="a", max=value), checker("in_set", column="a", values=[value])):
        with pytest.raises(ConfigurationError, match=re.escape(f"expected a value of type {kind}")):
            made.check_schema(schema)


@pytest.mark.parametrize(
    "settings",
    [
        {"type": "not_null", "columns": ["a", "b"]},
        {"type": "range", "column": "b", "min": 1},
        {"type": "in_set", "column": "b", "values": [1]},
        {"type": "regex", "column": "b", "pattern": "x"},
    ],
)
def test_a_column_that_is_not_there_is_an_error_before_and_while_records_are_read(settings: dict[str, Any]) -> None:
    made = validated("row_checker", settings)
    batch = pa.record_batch({"a": [1]})
    said = f"construct={settings['type']}.*'b'"
    with pytest.raises(ConfigurationError, match=said):
        made.check_schema(batch.schema)
    with pytest.raises(ConfigurationError, match=said):
        made.check(batch)


def test_nested_columns_are_not_compared() -> None:
    schema = pa.schema([("a", pa.list_(pa.int64()))])
    for made in (checker("range", column="a", min=1), checker("in_set", column="a", values=[1])):
        with pytest.raises(ConfigurationError, match="numbers, text"):
            made.check_schema(schema)
    with pytest.raises(ConfigurationError, match="text or bytes"):
        checker("regex", column="a", pattern="x").check_schema(schema)
    assert passes(checker("not_null", columns=["a"]), [[], None]) == [True, False]


def test_text_of_every_type_is_matched_and_compared() -> None:
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()):
        assert passes(checker("regex", column="a", pattern="^x"), ["xy", "y"], kind) == [True, False]
        assert passes(checker("range", column="a", min="y"), ["xy", "y"], kind) == [False, True]
        assert passes(checker("in_set", column="a", values=["xy"]), ["xy", "y"], kind) == [True, False]


def test_bytes_that_are_no_text_are_only_not_matched() -> None:
    broken = pa.array([b"\xff\xfex", b"x"]).view(pa.string())
    assert passes(checker("regex", column="a", pattern="^.x"), broken) == [False, False]


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"type": "not_null", "columns": []}, "at least 1"),
        ({"type": "range", "column": "a"}, "a min, a max, or both"),
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
def test_settings_that_can_not_work_are_refused(settings: dict[str, Any], found: str) -> None:
    with pytest.raises(ValueError, match=re.escape(found)):
        validated("row_checker", settings)


@pytest.mark.parametrize(
    ("made", "reason"),
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
def test_reasons(made: RowChecker, reason: str) -> None:
    assert made.describe() == reason


def test_a_class_that_is_no_row_checker_is_told() -> None:
    with pytest.raises(ConfigurationError, match="RowChecker"):
        passes(checker("python", **{"class": "builtins:dict"}), [1])
