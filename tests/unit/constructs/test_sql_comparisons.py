"""Conditions of SQL that Arrow answers: as DuckDB does."""

from __future__ import annotations

from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcommit.constructs.conditions import sql_expressions
from distcommit.constructs.conditions.sql_comparisons import answered
from distcommit.constructs.conditions.sql_expressions import SqlExpressions

NUMBERS = [None, 0, 1, -1, 5, 127, -128, 2**31 - 1, -(2**31)]
TEXTS = [None, "", "a", "A", "b", "ab", "é", "z", "\U0001f600", "￿", "5", "it's"]
BATCH = pa.record_batch(
    {
        "Small": pa.array([n if n is None or abs(n) < 128 else None for n in NUMBERS + [3] * 3], pa.int8()),
        "n": pa.array([*NUMBERS, 2**62, -(2**63), 2**63 - 1], pa.int64()),
        "text": pa.array(TEXTS),
        "a.b": pa.array(TEXTS[::-1]),
        "large": pa.array(TEXTS, pa.large_string()),
        "real": pa.array([None, 0.0, -0.0, float("nan"), float("inf"), 1.5, 5.0, *[2.0] * 5]),
        "flag": pa.array([True, False, None] * 4),
    }
)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


numbers = st.sampled_from(
    [*(str(n) for n in NUMBERS if n is not None), "300", str(2**62), "007", "5000000000", str(2**63)]
)
texts = st.sampled_from([quoted(text) for text in TEXTS if text is not None])
compared = st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="])
comparisons = st.one_of(
    st.tuples(st.sampled_from(["SMALL", "n", "real"]), compared, numbers),
    st.tuples(st.sampled_from(["text", '"a.b"', "large"]), compared, texts),
).map(" ".join)
conditions = st.recursive(
    comparisons,
    lambda below: st.tuples(below, st.sampled_from(["AND", "OR"]), below).map(lambda parts: f"({' '.join(parts)})"),
    max_leaves=4,
)


@settings(deadline=None)
@given(conditions, st.integers(0, 12), st.integers(0, 12))
def test_what_arrow_answers_is_what_duckdb_does(condition: str, start: int, length: int) -> None:
    check(condition, BATCH.slice(start, length))


@pytest.mark.parametrize("comparison", ["=", "<>", "!=", "<", "<=", ">", ">="])
def test_each_comparison_is_answered_as_duckdb_does(comparison: str) -> None:
    check(f"n {comparison} 5", BATCH)
    check(f"text {comparison} 'ab'", BATCH)
    check(f"small {comparison} 1 OR text = 'A'", BATCH)  # for some of these the one or the other is null
    check(f"small {comparison} 1 AND text <> 'A'", BATCH)


def check(condition: str, batch: pa.RecordBatch) -> None:
    expressions = SqlExpressions(condition, {})
    found, _ = expressions.evaluate(batch)
    with patch.object(sql_expressions, "answered", lambda *_: None):
        expected, _ = expressions.evaluate(batch)
    expressions.close()
    assert (found.type, found.to_pylist()) == (pa.int64(), expected.to_pylist())


@pytest.mark.parametrize(
    ("condition", "by_arrow"),
    [
        ("text <> 'a'", True),
        ("small >= -5 AND (text = 'a' OR n < 3)", True),
        ("real > 1", False),
        ("large = 'a'", False),
        ("n = 1.5", False),
        ("n = 9223372036854775808", False),
        ("flag", False),
        ("flag = true", False),
        ("'a' = text", False),
        ("text = 'A' COLLATE NOCASE", False),
        ("text = 'a' OR n IS NULL", False),
        ("n = small", False),
        ("text LIKE 'a%'", False),
    ],
)
def test_only_plain_comparisons_are_answered_by_arrow(condition: str, by_arrow: bool) -> None:
    expressions = SqlExpressions(condition, {})
    assert expressions._condition is not None
    assert (answered(expressions._condition, BATCH) is not None) == by_arrow
    expressions.close()


def test_names_that_differ_in_case_only_are_for_duckdb_to_refuse() -> None:
    expressions = SqlExpressions("a = 1", {})
    assert expressions._condition is not None
    assert answered(expressions._condition, pa.record_batch({"a": [1], "A": [2]})) is None
    expressions.close()
