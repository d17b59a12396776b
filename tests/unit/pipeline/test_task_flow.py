"""Column knowledge along a chain, where only records determine the rest: definite mismatches are reported before any
record is read, and nothing else is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcommit.app.job_file.built_in_types import validated
from distcommit.constructs.construct_settings import ForkOperatorSettings
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.constructs import TaskCheck, TaskChecker
from distcommit.pipeline.task_flow import Branch, Check, FlowColumns, Stage, TaskFlow
from distcommit.schemas.known_columns import UNKNOWN, Columns
from distcommit.sinks.files.sink import FileSink
from distcommit.testing.fakes.model_source import ModelSource


def nested(levels: int) -> Any:
    """Build a type from its job-file form."""
    kind: Any = "int64"
    for _ in range(levels):
        kind = [kind]
    return kind


SECTIONS: Mapping[str, Mapping[str, Any]] = {
    "json": {"type": "json"},
    "read json": {"type": "json", "keep_column": False},
    "avro": {"type": "avro", "registry": {"url": "http://127.0.0.1:1"}},
    "declared": {"type": "json", "fields": {"a": "int64", "s": {"x": "string"}}, "keep_column": False},
    "declared deep": {"type": "json", "fields": {"a": nested(49)}},
    "three": {"type": "select", "columns": ["a", "b", "c"]},
    "drop a": {"type": "drop", "columns": ["a"]},
    "a to d": {"type": "rename", "columns": {"a": "d"}},
    "a and b": {"type": "rename", "columns": {"a": "b", "b": "a"}},
    "a as text": {"type": "cast", "columns": {"a": "string"}},
    "a as list": {"type": "sql", "columns": {"a": "[1::BIGINT]"}},
    "a as time": {"type": "cast", "columns": {"a": "timestamp"}},
    "d as text": {"type": "cast", "columns": {"d": "string"}},
    "drop c": {"type": "drop", "columns": ["c"]},
    "T": {"type": "provenance", "constants": {"T": 1}},
    "times": {"type": "sql", "columns": {"t": "TIME '12:00'", "u": "TIMESTAMP_NS '2024-02-29 12:00:00'"}},
    "a as number": {"type": "cast", "columns": {"a": "int64"}},
    "mask a": {"type": "mask", "columns": ["a"]},
    "mask d": {"type": "mask", "columns": ["d"]},
    "mask value": {"type": "mask", "columns": ["value"]},
    "end of a": {"type": "mask", "columns": ["a"], "keep_last": 4},
    "end of f": {"type": "mask", "columns": ["f"], "keep_last": 4},
    "hash a": {"type": "hash", "columns": ["a"], "key": "k" * 16},
    "key a": {"type": "key", "column": "a", "format": "utf8"},
    "explode a": {"type": "explode", "column": "a"},
    "flatten": {"type": "flatten"},
    "flatten a": {"type": "flatten", "columns": ["a"]},
    "a.x": {"type": "select", "columns": ["a.x"]},
    "deleted": {"type": "tombstones", "column": "a", "marker": "d"},
    "copy a": {"type": "provenance", "copies": {"d": "a"}, "constants": {"e": 1}},
    "sql a": {"type": "sql", "where": "A > 1", "columns": {"d": "upper(a)"}},
    "sql some": {"type": "sql", "columns": {"d": "a + 1", "e": "upper(b)", "f": "42"}},
    "where a": {"type": "sql", "where": "a > 1", "columns": {"e": "b"}},
    "sql d": {"type": "sql", "where": "d IS NOT NULL AND length(current_user) > 0"},
    "a above 1": {"type": "filter", "when": {"not": {"column": "a", "op": "<=", "value": 1}}},
    "a there": {"type": "not_null", "columns": ["a"]},
    "d there": {"type": "not_null", "columns": ["d"]},
    "a of 1": {"type": "in_set", "column": "a", "values": [1]},
    "a matches": {"type": "regex", "column": "a", "pattern": "x"},
    "d matches": {"type": "regex", "column": "d", "pattern": "x"},
    "a within": {"type": "range", "column": "a", "min": 1},
}
CHECKERS = {"a there", "d there", "a of 1", "a matches", "d matches", "a within"}


def stages(*names: str) -> list[Stage]:
    return [
        Stage(name, validated("row_checker" if name in CHECKERS else "converter", dict(SECTIONS[name])))
        for name in names
    ]


@pytest.mark.parametrize(
    ("chain", "expected_error"),
    [
        (("json", "three", "mask d"), "mask d can take, from three; found .*one column 'd'; found columns a, b, c"),
        (("avro", "three", "a there", "mask d"), "mask d can take, from three; "),
        (("three", "d there"), "d there can take, from three"),
        (("three", "sql d"), 'sql d can take, from three; found .*"d" not found'),
        (("three", "a to d", "mask a"), "mask a can take, from a to d"),
        (("three", "drop a", "a as text"), "a as text can take, from drop a"),
        (("drop a", "mask a"), "mask a can take, from drop a.*a dropped or renamed before"),
        (("a to d", "mask a"), "mask a can take, from a to d"),
        (("a to d", "d there", "mask a"), "from a to d"),
        (("deleted", "copy a"), "copy a can take, from deleted.*two columns would have one name"),
        (("a as number", "end of a"), "end of a can take, from a as number.*string, with keep_last.*found int64"),
        (("a as number", "a matches"), "a matches can take, from a as number.*text or bytes"),
        (("a as number", "explode a"), "explode a can take, from a as number.*a list"),
        (("a as text", "a of 1"), "a of 1 can take, from a as text"),
        (("a as text", "a above 1"), "a above 1 can take, from a as text"),
        (("drop a", "a above 1"), "a above 1 can take, from drop a"),
        (("a as text", "a within"), "a within can take, from a as text"),
        (("a as text", "sql a"), "sql a can take, from a as text"),
        (("a as number", "sql some", "d matches"), "d matches can take, from sql some.*text or bytes"),
        (("sql some", "end of f"), "end of f can take, from sql some.*string, with keep_last.*found int32"),
        (("a as list", "sql a"), "sql a can take, from a as list"),
        (("a as list", "where a"), "where a can take, from a as list"),
        (("three", "a as list", "sql a"), "sql a can take, from a as list"),
        (("declared", "drop a", "mask a"), "mask a can take, from drop a"),
        (("declared", "mask value"), "mask value can take, from declared"),
        (("drop a", "flatten a"), "flatten a can take, from drop a"),
        (("flatten a", "mask a"), "mask a can take, from flatten a"),
        (("json", "a.x", "mask a"), "mask a can take, from a.x"),
    ],
    ids=str,
)
def test_definite_mismatch_is_reported_with_both_constructs(chain: Sequence[str], expected_error: str) -> None:
    begin = FlowColumns(Columns())
    begin.after(stages(*chain[:-1]))
    with pytest.raises(ConfigurationError, match=expected_error.replace("a.x", "a[.]x")):
        begin.after(stages(*chain))


@pytest.mark.parametrize(
    "chain",
    [
        ("json", "mask d", "three", "mask a"),
        ("read json", "mask value"),
        ("avro", "mask value"),
        ("drop a", "json", "mask a"),
        ("drop a", "flatten", "mask a"),
        ("a and b", "mask a"),
        ("a to d", "mask d", "sql d", "d there"),
        ("three", "flatten", "a.x"),
        ("three", "flatten a", "a.x"),
        ("three", "sql a", "mask d"),
        ("three", "explode a", "explode a", "a matches", "a of 1"),
        ("drop a", "sql a"),
        ("three", "sql some", "d matches"),
    ],
    ids=str,
)
def test_possible_match_is_accepted(chain: Sequence[str]) -> None:
    columns = Columns(pa.schema([("value", pa.binary())])) if chain[0] in ("json", "read json", "avro") else Columns()
    FlowColumns(columns).after(stages(*chain))


def test_fork_that_needs_an_absent_column_is_reported() -> None:
    chosen = FlowColumns(Columns()).after(stages("three"))
    dear = {"dear": {"column": "price", "op": ">=", "value": 1}}
    match = validated("fork", {"type": "first_match", "when": dear})
    assert isinstance(match, ForkOperatorSettings)
    assert FlowColumns(Columns()).may_receive(match, "dear")
    with pytest.raises(ConfigurationError, match=r"the fork can take, from three.*'price'"):
        chosen.may_receive(match, "dear")
    typed = FlowColumns(Columns()).after(stages("a as text", "a to d"))
    number = validated("fork", {"type": "every_match", "when": {"x": {"not": {"column": "d", "op": "==", "value": 1}}}})
    assert isinstance(number, ForkOperatorSettings)
    with pytest.raises(ConfigurationError, match="from a to d"):
        typed.may_receive(number, "x")
    by_schema = validated("fork", {"type": "by_schema", "requires": {"priced": ["price"], "all": []}})
    assert isinstance(by_schema, ForkOperatorSettings)
    assert [chosen.may_receive(by_schema, branch) for branch in ("priced", "all")] == [False, True]
    assert FlowColumns(Columns()).may_receive(by_schema, "priced")


CHECKS: Mapping[str, Mapping[str, Any]] = {
    "d once": {"type": "unique", "columns": ["d"]},
    "a once": {"type": "unique", "columns": ["a"]},
    "a fresh": {"type": "freshness", "column": "a", "max_age_s": 1},
    "a fresh by d": {"type": "freshness", "column": "a", "max_age_s": 1, "record_time": "d"},
    "all": {"type": "row_count", "min": 1},
    "own": {"type": "python", "class": "tests.unit.pipeline.test_task_flow:WantsD"},
}
SINKS: Mapping[str, Mapping[str, Any]] = {
    "files": {"type": "files"},
    "folders": {"type": "files", "partition_by": {"field": "d"}},
    "days": {"type": "files", "partition_by": {"column": "a"}},
    "sorted": {"type": "files", "sort_by": [{"column": "a"}]},
    "encoded": {"type": "files", "columns": {"d": {"dictionary": False}}},
    "csv": {"type": "files", "format": "csv", "compression": "gzip"},
    "upserts": {"type": "sqlite", "path": "/tables.db", "mode": "upsert", "keys": ["d"]},
    "rows": {"type": "sqlite", "path": "/tables.db"},
    "messages": {"type": "kafka", "brokers": "a:1", "topic": "t", "ledger": "l", "key": "d", "value": "a"},
    "delta": {"type": "delta", "location": "/tables"},
    "iceberg": {"type": "iceberg", "namespace": "n", "catalog": {"type": "sql", "uri": "sqlite:////catalog.db"}},
    "own": {"type": "python", "class": "tests.unit.app.job_file.test_sinks:Choosy", "options": {"path": "/rows.db"}},
}


class WantsD(TaskChecker):
    """A custom construct that only checks whole schemas."""

    def check_schema(self, schema: pa.Schema) -> None:
        if "d" not in schema.names:
            raise ConfigurationError("no column 'd'")

    def begin(self) -> TaskCheck:
        raise NotImplementedError


def check_branch(chain: Sequence[str], checks: Iterable[str] = (), sink: str = "files") -> None:
    """Check a flow whose source declares nothing about its records, so that its chain begins before the fork."""
    task_checks = [Check(name, validated("task_checker", dict(CHECKS[name]))) for name in checks]
    branch = Branch(validated("sink", dict(SINKS[sink])), "b1", stages(*chain[1:]), task_checks)
    fork = validated("fork", {"type": "all"})
    TaskFlow(ModelSource(), [branch, Branch(FileSink(), "other")], stages(*chain[:1]), fork).check()


@pytest.mark.parametrize(
    ("chain", "check", "expected_error"),
    [
        (
            ["three"],
            "d once",
            "d once of branch b1 can take, from three; .*one column 'd'; found columns a, b, c",
        ),
        (["sql a", "drop a"], "a once", "a once of branch b1 can take, from drop a"),
        (["three", "a as list"], "a once", "a once of branch b1 can take, from a as list; .*found list<"),
        (["a as text"], "a fresh", "a fresh of branch b1 can take, from a as text; .*timestamps or dates.*string"),
        (["three"], "a fresh by d", "a fresh by d of branch b1 can take, from three"),
    ],
)
def test_incompatible_task_checker_is_reported_with_both_constructs(
    chain: Sequence[str], check: str, expected_error: str
) -> None:
    check_branch(chain)
    with pytest.raises(ConfigurationError, match=expected_error):
        check_branch(chain, ["all", check])


@pytest.mark.parametrize(
    ("chain", "sink", "expected_error"),
    [
        (["three"], "folders", "branch b1 can.t store the records of three; .*construct=files.* one column 'd'"),
        (["three", "a as list", "a to d"], "folders", "of a to d; .*column=d.*found list<"),
        (["drop a"], "days", "of drop a.*a dropped or renamed before"),
        (["a as text"], "days", "of a as text"),
        (["three", "a as list"], "sorted", "of a as list; .*can't be sorted.*found list<"),
        (["three"], "encoded", "of three; .*one column 'd'"),
        (["three", "a as list"], "csv", "of a as list; .*can't be written to csv.*column=a.*found list"),
        (["three"], "upserts", "of three; .*one column 'd'"),
        (["three"], "messages", "of three; .*one column 'd'"),
        (["three", "a as list", "deleted"], "messages", "of deleted; .*column=d.*bytes or text; found bool"),
        (["times"], "delta", "of times; .*Delta can't store"),
        (["times"], "iceberg", "of times; .*Iceberg can't store"),
    ],
)
def test_incompatible_sink_is_reported_with_both_constructs(
    chain: Sequence[str], sink: str, expected_error: str
) -> None:
    check_branch(chain)
    with pytest.raises(ConfigurationError, match=f"the sink of .*{expected_error}"):
        check_branch(chain, (), sink)


@pytest.mark.parametrize("sink", ["files", "rows", "messages", "own"])
def test_columns_that_no_file_can_store_are_reported_before_any_is_written(sink: str) -> None:
    with pytest.raises(ConfigurationError, match=r"sink of .* of declared deep; .*too deep.*column=a.*at most 96"):
        check_branch(["declared deep"], (), sink)


@pytest.mark.parametrize("sink", SINKS)
def test_columns_that_checkers_and_sinks_may_accept_are_not_rejected(sink: str) -> None:
    for chain in ([], ["drop c"], ["d as text"]):
        check_branch(chain, CHECKS, sink)


TYPES = [pa.int64(), pa.string(), pa.binary(), pa.list_(pa.int64()), pa.struct([("x", pa.list_(pa.string()))])]
NAMES = ["a", "b", "c", "d", "a.x", "A"]


@st.composite
def columns_of_records(draw: st.DrawFn) -> tuple[pa.Schema, Columns]:
    """Draw a schema and a true statement about its columns."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    schema = pa.schema([(name, draw(st.sampled_from(TYPES))) for name in names])
    known_fields = [field for field in schema if draw(st.booleans())]
    others = len(known_fields) < len(schema) or draw(st.booleans())
    untyped = [field.with_type(UNKNOWN) if draw(st.booleans()) else field for field in known_fields]
    absent = [name for name in NAMES if name not in names and draw(st.booleans())]
    return schema, Columns(pa.schema(untyped), others).with_fields(untyped, absent)


CHAINED = st.lists(
    st.sampled_from([name for name in SECTIONS if name not in ("json", "read json", "avro")]), max_size=4
)


@pytest.mark.thorough
@given(columns_of_records(), CHAINED)
def test_column_knowledge_is_true_of_all_records(
    schema_and_columns: tuple[pa.Schema, Columns], chain: Sequence[str]
) -> None:
    schema, columns = schema_and_columns
    try:
        actual = FlowColumns(Columns.of(schema)).after(stages(*chain)).columns.full_schema()
    except ConfigurationError:
        return
    assert actual is not None
    knowledge = FlowColumns(columns).after(stages(*chain)).columns
    assert not set(actual.names) & knowledge.dropped
    assert knowledge.may_have_others or set(knowledge.fields.names) == set(actual.names)
    for field in knowledge.fields:
        assert field.type in (UNKNOWN, actual.field(field.name).type)
