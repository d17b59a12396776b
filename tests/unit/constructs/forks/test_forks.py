"""Fork operators: routing of records, and settings and schemas that are rejected."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcommit.app.job_file.built_in_types import validated
from distcommit.constructs.construct_settings import ForkOperatorSettings
from distcommit.constructs.expressions.condition import Condition
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.constructs import ForkOperator
from distcommit.testing.fakes.convert_batch import convert_batch

OPERATORS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
SMALL = st.integers(-2, 2)
LEAVES = st.one_of(
    st.builds(
        lambda column, op, value: {"column": column, "op": op, "value": value},
        st.sampled_from("ab"),
        st.sampled_from(sorted(OPERATORS)),
        SMALL,
    ),
    st.builds(
        lambda column, values: {"column": column, "op": "in", "values": values},
        st.sampled_from("ab"),
        st.lists(SMALL, min_size=1, max_size=3),
    ),
    st.builds(lambda column: {"column": column, "op": "is_null"}, st.sampled_from("ab")),
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda below: st.one_of(
        st.builds(lambda conditions: {"all": conditions}, st.lists(below, min_size=1, max_size=3)),
        st.builds(lambda conditions: {"any": conditions}, st.lists(below, min_size=1, max_size=3)),
        st.builds(lambda conditions: {"not": conditions}, below),
    ),
    max_leaves=6,
)
ROWS = st.lists(st.tuples(st.one_of(st.none(), SMALL), st.one_of(st.none(), SMALL)), max_size=8)


def meets(condition: Mapping[str, Any], row: Mapping[str, Any]) -> bool | None:
    """Return the condition's result by SQL's three-valued logic."""
    match condition:
        case {"all": below}:
            answers = [meets(part, row) for part in below]
            return False if False in answers else None if None in answers else True
        case {"any": below}:
            answers = [meets(part, row) for part in below]
            return True if True in answers else None if None in answers else False
        case {"not": below}:
            answer = meets(below, row)
            return None if answer is None else not answer
        case {"column": column, "op": "is_null"}:
            return row[column] is None
        case {"column": column, "op": "in", "values": values}:
            return None if row[column] is None else row[column] in values
        case {"column": column, "op": op, "value": value}:
            return None if row[column] is None else bool(OPERATORS[op](row[column], value))
    raise AssertionError(condition)


def batch_of(rows: Sequence[tuple[int | None, int | None]]) -> pa.RecordBatch:
    return pa.record_batch({name: pa.array([row[i] for row in rows], pa.int64()) for i, name in enumerate("ab")})


def sent(settings: Mapping[str, Any], batch: pa.RecordBatch, branches: Sequence[str]) -> list[set[str]]:
    """Return the branches of each row."""
    chosen = fork(settings).choose(batch, branches)
    masks = {branch: [True] * batch.num_rows if mask is None else mask.to_pylist() for branch, mask in chosen.items()}
    return [{branch for branch, mask in masks.items() if mask[row]} for row in range(batch.num_rows)]


def fork(settings: Mapping[str, Any]) -> ForkOperatorSettings:
    instance: ForkOperatorSettings = validated("fork", settings)
    return instance


@given(condition=CONDITIONS, rows=ROWS)
def test_conditions_follow_three_valued_sql_logic(
    condition: dict[str, Any], rows: list[tuple[int | None, int | None]]
) -> None:
    batch, answers = batch_of(rows), [meets(condition, dict(zip("ab", row, strict=True))) for row in rows]
    for instance, met in ((condition, True), ({"not": condition}, False)):
        tested = Condition.model_validate(instance)
        tested.check_schema(batch.schema, "fork")
        assert tested.is_true(batch, "fork").to_pylist() == [answer is met for answer in answers]


@given(conditions=st.lists(CONDITIONS, min_size=1, max_size=3), rows=ROWS)
def test_first_match_and_every_match_route_by_the_conditions(
    conditions: list[dict[str, Any]], rows: list[tuple[int | None, int | None]]
) -> None:
    when = {f"{number}": condition for number, condition in enumerate(conditions)}
    batch = batch_of(rows)
    met = [[branch for branch in when if meets(when[branch], row)] for row in batch.to_pylist()]
    first = sent({"type": "first_match", "when": when}, batch, [*when])
    assert first == [set(branch_names[:1]) for branch_names in met]
    assert sent({"type": "every_match", "when": when}, batch, [*when]) == [set(branch_names) for branch_names in met]


@given(condition=CONDITIONS, rows=ROWS)
def test_filter_keeps_records_that_meet_its_condition(
    condition: dict[str, Any], rows: list[tuple[int | None, int | None]]
) -> None:
    batch, instance = batch_of(rows), validated("converter", {"type": "filter", "when": condition})
    assert instance.convert_schema(batch.schema, None) == batch.schema
    (converted,) = convert_batch(instance, batch)
    kept_rows = [row for row, record in enumerate(batch.to_pylist()) if meets(condition, record)]
    assert converted.rows is not None
    assert (converted.rows.to_pylist(), converted.rejected) == (kept_rows, {})
    assert converted.records.equals(batch.take(pa.array(kept_rows, pa.int64())))


def test_first_match_uses_the_order_of_conditions_not_of_branches() -> None:
    when = {"b": {"column": "a", "op": ">", "value": 0}, "a": {"column": "a", "op": ">", "value": 0}}
    assert sent({"type": "first_match", "when": when}, batch_of([(1, 1)]), ["a", "b"]) == [{"b"}]


def test_by_schema_routes_schemas_to_branches_with_the_required_columns() -> None:
    instance = fork({"type": "by_schema", "requires": {"all": [], "priced": ["price", "currency"]}})
    priced = pa.schema([("price", pa.int64()), ("currency", pa.string()), ("x", pa.int8())])
    assert instance.accepts("priced", priced)
    assert instance.accepts("all", priced)
    assert not instance.accepts("priced", priced.remove(0))
    assert instance.accepts("all", priced.remove(0))


@pytest.mark.parametrize("name", ["first_match", "every_match"])
@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ({"column": "c", "op": "is_null"}, "'c'"),
        ({"column": "c", "op": "==", "value": 1}, "'c'"),
        ({"column": "a", "op": "==", "value": "x"}, "a value of type int64"),
        ({"column": "a", "op": "in", "values": [1, "x"]}, "a value of type int64"),
        ({"all": [{"not": {"any": [{"column": "c", "op": "is_null"}]}}]}, "'c'"),
    ],
)
def test_condition_that_can_not_be_evaluated_raises(name: str, condition: dict[str, Any], message: str) -> None:
    instance, batch = fork({"type": name, "when": {"x": condition}}), batch_of([(1, 1)])
    with pytest.raises(ConfigurationError, match=f"construct={name}.*{message}"):
        instance.accepts("x", batch.schema)
    with pytest.raises(ConfigurationError, match=f"construct={name}.*{message}"):
        instance.choose(batch, ["x"])


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ({}, "must have all or any or not; found nothing"),
        ({"column": "a"}, "must have column and op and value; found column"),
        ({"op": "is_null"}, "must have column and op; found op"),
        ({"column": "a", "op": "is_null", "value": 1}, "must have column and op; found column and op and value"),
        ({"column": "a", "op": "in", "value": 1}, "must have column and op and values; found column and op and value"),
        ({"column": "a", "op": "in", "values": []}, "at least 1"),
        ({"column": "a", "op": "like", "value": "x"}, "'is_null'"),
        ({"column": "a", "op": "is_null", "not": {"column": "a", "op": "is_null"}}, "found column and not and op"),
        ({"all": []}, "at least 1"),
        ({"all": [{"column": "a"}]}, "must have column and op and value"),
        ({"not": {"colum": "a"}}, "colum"),
    ],
)
def test_invalid_condition_is_rejected(condition: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        fork({"type": "first_match", "when": {"x": condition}})


@pytest.mark.parametrize(
    ("settings", "branches"),
    [
        ({"type": "all"}, ["a"]),
        ({"type": "first_match", "when": {"a": {"column": "a", "op": "is_null"}}}, ["a"]),
        ({"type": "by_schema", "requires": {"a": []}}, ["a"]),
    ],
)
def test_rules_for_existing_branches_are_accepted(settings: dict[str, Any], branches: list[str]) -> None:
    fork(settings).check_branches(branches)


@pytest.mark.parametrize(
    "settings",
    [
        {"type": "first_match", "when": {name: {"column": "a", "op": "is_null"} for name in "ab"}},
        {"type": "every_match", "when": {name: {"column": "a", "op": "is_null"} for name in "ab"}},
        {"type": "by_schema", "requires": {"a": [], "b": []}},
    ],
)
def test_unknown_branches_and_branches_without_a_rule_are_rejected(settings: dict[str, Any]) -> None:
    instance = fork(settings)
    with pytest.raises(ValueError, match=r"b is not a branch, c receives nothing"):
        instance.check_branches(["a", "c"])
    with pytest.raises(ValueError, match=r"other: c receives nothing"):
        instance.check_branches(["a", "b", "c"])


def test_class_that_is_not_a_fork_operator_raises() -> None:
    with pytest.raises(ConfigurationError, match="ForkOperator"):
        fork({"type": "python", "class": "builtins:dict"}).choose(batch_of([]), [])


def test_custom_fork_may_reject_schemas_and_branches() -> None:
    instance = fork({"type": "python", "class": f"{__name__}:OnlyX"})
    assert [instance.accepts(branch, pa.schema([])) for branch in ("x", "y")] == [True, False]
    with pytest.raises(ValueError, match="x and y"):
        instance.check_branches(["x"])


class OnlyX(ForkOperator):
    """A fork operator that skips branch y."""

    def check_branches(self, branches: Sequence[str]) -> None:
        if list(branches) != ["x", "y"]:
            raise ValueError("the branches are x and y")

    def accepts(self, branch: str, schema: pa.Schema) -> bool:
        return branch == "x"

    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        return dict.fromkeys(branches)
