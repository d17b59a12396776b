"""A YAML condition evaluated by Arrow has the same result as the equivalent SQL condition in DuckDB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcommit.constructs.expressions.condition import Condition
from distcommit.constructs.expressions.duckdb_expressions import SqlExpressions

NUMBERS = [None, 0, 1, -1, 5, 127, -128, 2**31 - 1, -(2**31)]
TEXTS = [None, "", "a", "A", "b", "ab", "é", "z", "\U0001f600", "￿", "5", "it's"]
BATCH = pa.record_batch(
    {
        "Small": pa.array([n if n is None or abs(n) < 128 else None for n in NUMBERS + [3] * 3], pa.int8()),
        "n": pa.array([*NUMBERS, 2**62, -(2**63), 2**63 - 1], pa.int64()),
        "text": pa.array(TEXTS),
        "a.b": pa.array(TEXTS[::-1]),
        "large": pa.array(TEXTS, pa.large_string()),
        "flag": pa.array([True, False, None] * 4),
    }
)
OPERATORS = ["==", "!=", "<", "<=", ">", ">="]
VALUES: Mapping[str, list[Any]] = {
    "Small": [-128, -5, 0, 1, 127],
    "n": [*(n for n in NUMBERS if n is not None), 2**62, -(2**63), 2**63 - 1],
    "flag": [True, False],
    **{column: [text for text in TEXTS if text is not None] for column in ("text", "a.b", "large")},
}


def _comparisons(column: str) -> st.SearchStrategy[dict[str, Any]]:
    value = st.sampled_from(VALUES[column])
    return st.one_of(
        st.builds(lambda op, v: {"column": column, "op": op, "value": v}, st.sampled_from(OPERATORS), value),
        st.builds(lambda vs: {"column": column, "op": "in", "values": vs}, st.lists(value, min_size=1, max_size=3)),
        st.just({"column": column, "op": "is_null"}),
    )


CONDITIONS = st.recursive(
    st.sampled_from(sorted(VALUES)).flatmap(_comparisons),
    lambda below: st.one_of(
        st.lists(below, min_size=1, max_size=3).map(lambda parts: {"all": parts}),
        st.lists(below, min_size=1, max_size=3).map(lambda parts: {"any": parts}),
        below.map(lambda part: {"not": part}),
    ),
    max_leaves=5,
)


def in_sql(condition: Mapping[str, Any]) -> str:
    match condition:
        case {"all": parts}:
            return f"({' AND '.join(map(in_sql, parts))})"
        case {"any": parts}:
            return f"({' OR '.join(map(in_sql, parts))})"
        case {"not": part}:
            return f"(NOT {in_sql(part)})"
        case {"column": column, "op": "is_null"}:
            return f'"{column}" IS NULL'
        case {"column": column, "op": "in", "values": values}:
            return f'"{column}" IN ({", ".join(map(literal, values))})'
        case {"column": column, "op": op, "value": value}:
            return f'"{column}" {op} {literal(value)}'
    raise AssertionError(condition)


def literal(value: Any) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


@pytest.mark.thorough
@settings(deadline=None)
@given(CONDITIONS, st.integers(0, 12), st.integers(0, 12))
def test_arrow_and_duckdb_select_the_same_rows(condition: dict[str, Any], start: int, length: int) -> None:
    check(condition, BATCH.slice(start, length))


@pytest.mark.parametrize("operator", OPERATORS)
def test_each_operator_selects_the_same_rows_also_beside_nulls(operator: str) -> None:
    text, small = {"column": "text", "op": "==", "value": "A"}, {"column": "Small", "op": operator, "value": 1}
    check({"column": "n", "op": operator, "value": 5}, BATCH)
    check({"column": "text", "op": operator, "value": "ab"}, BATCH)
    for condition in ({"any": [small, text]}, {"all": [small, {"not": text}]}):
        check(condition, BATCH)  # in some rows one of the two comparisons is null
        check({"not": condition}, BATCH)


def check(condition: dict[str, Any], batch: pa.RecordBatch) -> None:
    met = Condition.model_validate(condition).is_true(batch, "filter").to_pylist()
    expressions = SqlExpressions(in_sql(condition), {})
    rows, _ = expressions.evaluate(batch)
    expressions.close()
    assert (rows.type, rows.to_pylist()) == (pa.int64(), [row for row, is_met in enumerate(met) if is_met])
