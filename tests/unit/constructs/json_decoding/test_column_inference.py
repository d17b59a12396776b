"""JSON without declared fields: inferred columns, agreement of concurrent readers, and handling of new fields."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from distcommit.constructs.converters.json import JsonConverter
from distcommit.constructs.json_decoding.json_reader import JsonReader
from distcommit.core.errors import RecordError
from distcommit.core.interfaces.constructs import Converted
from distcommit.schemas.column_types import arrow_type
from distcommit.schemas.inferred_fields import field_paths, infer_fields, merged_fields
from distcommit.testing.fakes.convert_batch import convert_batch, unit_of

Policy = Literal["evolve", "pin", "fail"]


@dataclass
class SharedSchemas:
    """The schema store that all tasks of a run share."""

    put: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def schema(self, schema_id: int) -> Mapping[str, Any]:
        return self.put[schema_id]

    def put_next(self, after: int, schema: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        return after + 1, self.put.setdefault(after + 1, schema)


def converter(
    schema_store: SharedSchemas | None,
    evolution: Policy = "evolve",
    known: tuple[int, ...] = (),
    urn: str = "a",
    **settings: Any,
) -> JsonConverter:
    section = {"type": "json", "evolution": evolution, "keep_column": False, **settings}
    result = JsonConverter.model_validate(section)
    result = JsonConverter.model_validate(pickle.loads(pickle.dumps(result)))
    result.begin_work_unit(unit_of(urn))
    if schema_store is not None:
        result.use_schema_store(schema_store)
    result.load_schema_ids(known)
    return result


def batch(*values: object) -> pa.RecordBatch:
    texts = [value if isinstance(value, bytes) or value is None else json.dumps(value).encode() for value in values]
    return pa.record_batch([pa.array(range(len(values)), pa.int64()), pa.array(texts, pa.binary())], ["n", "value"])


def convert(of: JsonConverter, *values: object) -> Converted:
    (result,) = convert_batch(of, batch(*values))
    result.records.validate(full=True)
    return result


def columns(result: Converted) -> dict[str, str]:
    return {f.name: str(f.type) for f in result.records.schema if f.name != "n"}


@pytest.mark.parametrize(
    ("values", "fields"),
    [
        ([{"a": 1, "b": "x", "c": True, "d": 1.5}], {"a": "int64", "b": "string", "c": "bool", "d": "float64"}),
        ([{"a": 1}, {"a": 1.5}], {"a": "float64"}),
        ([{"a": 1.5}, {"a": 1}], {"a": "float64"}),
        ([{"a": 2**63}], {"a": "decimal(38, 0)"}),
        ([{"a": 1}, {"a": 2**63}, {"a": 1}], {"a": "decimal(38, 0)"}),
        ([{"a": -(2**63)}, {"a": 2**63 - 1}], {"a": "int64"}),
        ([{"a": None}, {"a": []}, {"b": {}}, {"c": [None, [], {}]}], {}),
        ([{"a": None}, {"a": 1}, {"a": None}], {"a": "int64"}),
        ([{"a": 1}, {"a": "x"}, {"a": {"b": 1}}], {"a": "int64"}),
        ([{"a": True}, {"a": 1}], {"a": "bool"}),
        ([{"a": [1, None, 2.5]}, {"a": []}], {"a": ["float64"]}),
        ([{"a": {"b": 1}}, {"a": {"c": [{"d": "x"}]}}], {"a": {"b": "int64", "c": [{"d": "string"}]}}),
        ([{"at": "2024-02-29T12:00:00Z"}], {"at": "string"}),
        (
            [{"*": 1, "a": {"*": 1, "b": 2}, "c": {"**": 1}}],
            {"**": "int64", "a": {"**": "int64", "b": "int64"}, "c": {"***": "int64"}},
        ),
        ([None, b"no JSON", [1], "x", 5, b"\xff", b'{"a": NaN}', b"[" * 5000, {"a": 1}], {"a": "int64"}),
    ],
)
def test_types_are_inferred_from_values(values: list[object], fields: dict[str, Any]) -> None:
    assert infer_fields(batch(*values).column("value")) == fields


leaves = (
    st.none()
    | st.booleans()
    | st.integers(1 - 10**38, 10**38 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
names = st.sampled_from(["a", "b", "ü", "", "*"])
values = st.recursive(leaves, lambda below: st.lists(below, max_size=1) | st.dictionaries(names, below, max_size=2))
objects = st.dictionaries(names, values, max_size=3)


@given(st.lists(objects, min_size=1, max_size=4))
def test_schema_inferred_from_one_object_accepts_it_and_accepts_or_rejects_each_other(
    records: list[dict[str, Any]],
) -> None:
    result = convert(converter(None), records[0])
    assert not result.rejected
    result = convert(converter(None), *records)
    assert result.records.num_rows + len(result.rejected) == len(records)


@given(objects, objects)
def test_merged_fields_contain_known_and_new_fields(one: dict[str, Any], other: dict[str, Any]) -> None:
    first_fields, other_fields = (infer_fields(batch(record).column("value")) for record in (one, other))
    both = merged_fields(first_fields, other_fields)
    assert merged_fields(both, first_fields) == merged_fields(both, other_fields) == both
    assert set(field_paths(first_fields)) <= set(field_paths(both))
    for written in both.values():
        arrow_type(written)


def test_concurrent_readers_use_the_schema_that_was_stored_first() -> None:
    schema_store = SharedSchemas()
    one, two = converter(schema_store, "pin"), converter(schema_store, "pin")
    assert columns(convert(one, {"id": 1})) == {"id": "int64"}
    result = convert(two, {"id": "x", "more": 1}, {"id": 2})
    assert columns(result) == {"id": "int64"}
    assert list(result.rejected) == [0]
    assert one.schema_ids() == two.schema_ids() == (1,)
    assert list(schema_store.put) == [1]


def test_new_fields_become_columns_of_all_later_reads() -> None:
    schema_store = SharedSchemas()
    one, two = converter(schema_store), converter(schema_store)
    convert(one, {"id": 1})
    assert columns(convert(two, {"id": 1, "in": {"x": "a"}})) == {"id": "int64", "in": "struct<x: string>"}
    assert columns(convert(one, {"id": 1})) == {"id": "int64"}, "a reader without new fields keeps its schema"
    result = convert(one, {"in": {"y": 1.5}}, {"id": None, "nothing": None})
    assert columns(result) == {"id": "int64", "in": "struct<x: string, y: double>"}
    assert result.records.column("in").to_pylist() == [{"x": None, "y": 1.5}, None]
    assert (one.schema_ids(), two.schema_ids()) == ((1, 2, 3), (1, 2))
    assert not convert(one, {"nothing": None}).rejected
    assert one.schema_ids() == (1, 2, 3), "a field without a type is not a column"


@pytest.mark.thorough
@given(st.lists(objects, min_size=2, max_size=6), st.integers(1, 5))
def test_batch_reader_returns_the_same_as_the_record_reader(records: list[dict[str, Any]], cut: int) -> None:
    of = converter(SharedSchemas())
    for part in (records[:cut], records[cut:], records):
        if not part:
            continue
        result = convert(of, *part)
        fields = pa.schema([*result.records.schema][1:])
        values = batch(*part).column("value")
        alone = JsonReader(fields, exact_floats=True).read(values)
        assert alone.rejected == result.rejected
        assert alone.columns == result.records.columns[1:]
        known_fields = of._inferred.history.newest or {}
        assert merged_fields(known_fields, infer_fields(values)) == known_fields


def test_fields_that_are_always_null_or_empty_are_not_inferred_again() -> None:
    of = converter(SharedSchemas())
    empty: dict[str, Any] = {"nil": None, "l": [], "o": {}, "s": {"x": None}, "i": [{"y": None}]}
    convert(of, {"id": 1, **empty, "s": {"known": 1}}, empty)
    names = of._inferred.names
    result = convert(of, {"id": 2, **empty}, {"s": {"known": 3}})
    assert result.records.column("s").to_pylist() == [{"known": None}, {"known": 3}]
    assert of._inferred.names is names, "the batch reader was used"
    for name, value in {"nil": 1, "l": [1], "o": {"x": 1}, "s": {"x": "a"}, "i": [{"y": True}]}.items():
        assert name in columns(convert(of, {name: value}))
    assert of._inferred.history.newest == {
        "id": "int64",
        "s": {"known": "int64", "x": "string"},
        "nil": "int64",
        "l": ["int64"],
        "o": {"x": "int64"},
        "i": [{"y": "bool"}],
    }


@pytest.mark.parametrize("evolution", ["evolve", "pin", "fail"])
def test_type_of_a_column_never_changes(evolution: Policy) -> None:
    of = converter(SharedSchemas({7: {"id": "int64", "in": {"x": "string"}}}), evolution, (7,))
    result = convert(of, {"id": 1.5}, {"id": 2}, {"id": "x"}, {"in": {"x": 1}}, {"in": [1]})
    assert list(result.rejected) == [0, 2, 3, 4]
    assert of.schema_ids() == (7,)


def test_pinned_schema_ignores_other_fields() -> None:
    schema_store = SharedSchemas({7: {"id": "int64"}})
    result = convert(converter(schema_store, "pin", (7,)), {"id": 1, "more": 1}, None)
    assert (columns(result), result.rejected) == ({"id": "int64"}, {})
    assert result.records.column("id").to_pylist() == [1, None]
    assert list(schema_store.put) == [7]


def test_schema_is_known_before_the_first_record_only_if_stored_fields_are_pinned() -> None:
    schema_store, schema = SharedSchemas({7: {"id": "int64"}}), batch().schema
    pinned = converter(schema_store, "pin", (7,))
    assert pinned.convert_schema(schema, unit_of("a")) == pa.schema([("n", pa.int64()), ("id", pa.int64())])
    assert pinned.convert_schema(schema, None) is None, "each dataset has its own"
    for other in (converter(schema_store, "pin"), converter(schema_store, "evolve", (7,))):
        assert other.convert_schema(schema, unit_of("a")) is None


def test_new_field_fails_the_work_unit_if_configured() -> None:
    of = converter(SharedSchemas({7: {"id": "int64", "in": {"x": "string"}}}), "fail", (7,))
    convert(of, {"id": 1, "in": {"x": "a"}, "nothing": None})
    with pytest.raises(RecordError, match=r"schema 7; found 'in.y'\."):
        convert(of, {"in": {"y": 1}})


def test_first_matching_dataset_rule_sets_the_evolution() -> None:
    own = [{"match": "b*", "evolution": "pin"}, {"match": "b1", "evolution": "evolve"}]
    for urn, result in {"a": RecordError, "b1": {"id": "int64"}, "c": {"id": "int64", "more": "int64"}}.items():
        others: Policy = "evolve" if urn == "c" else "fail"
        of = converter(SharedSchemas({7: {"id": "int64"}}), others, (7,), urn, datasets=own)
        if result is RecordError:
            with pytest.raises(RecordError):
                convert(of, {"id": 1, "more": 1})
        else:
            assert columns(convert(of, {"id": 1, "more": 1})) == result


def test_newest_known_schema_is_used_in_any_order_of_ids() -> None:
    schema_store = SharedSchemas({7: {"a": "int64"}, 9001: {"a": "int64", "b": "int64"}})
    assert columns(convert(converter(schema_store, "pin", (9001, 7)), {})) == {"a": "int64", "b": "int64"}


def test_schema_is_stored_only_after_the_first_object() -> None:
    schema_store = SharedSchemas()
    of = converter(schema_store)
    result = convert(of, None, b"no JSON", {})
    assert (columns(result), result.records.column("n").to_pylist(), list(result.rejected)) == ({}, [0, 2], [1])
    assert (schema_store.put, of.schema_ids()) == ({}, ())
    assert columns(convert(of, {"a": 1})) == {"a": "int64"}


def test_inferred_schema_of_one_dataset_is_not_used_for_another() -> None:
    of = converter(SharedSchemas())
    convert(of, {"a": 1})
    of.begin_work_unit(unit_of("b"))
    assert of.schema_ids() == ()
    of.use_schema_store(SharedSchemas())
    assert columns(convert(of, {"b": 1})) == {"b": "int64"}


def test_last_value_of_a_repeated_name_sets_the_type() -> None:
    result = convert(converter(SharedSchemas()), b'{"a": 1, "a": 2}', b'{"a": "x", "a": 3}', b'{"a": 4, "a": 5}')
    assert (columns(result), result.records.column("a").to_pylist(), list(result.rejected)) == (
        {"a": "int64"},
        [2, 5],
        [1],
    )


def test_values_nested_deeper_than_twenty_levels_are_not_columns() -> None:
    deep: object = 1
    for _ in range(300):
        deep = {"x": deep}
    result = convert(converter(SharedSchemas()), {"id": 1, "deep": deep, "list": json.loads("[" * 60 + "]" * 60)})
    assert (columns(result), result.rejected) == ({"id": "int64"}, {})


def test_objects_with_data_as_names_fail_the_work_unit() -> None:
    with pytest.raises(RecordError, match="at most 1000"):
        convert(converter(SharedSchemas()), {f"user-{n}": n for n in range(1001)})


def test_declared_fields_reject_evolution_settings() -> None:
    for evolution_setting in ({"evolution": "pin"}, {"datasets": [{"match": "a", "evolution": "pin"}]}):
        with pytest.raises(ValidationError, match="must not be set with fields"):
            JsonConverter.model_validate({"type": "json", "fields": {"a": "int64"}, **evolution_setting})


@pytest.mark.parametrize("beside", ["1.5", "0.1", "1e300"])
@pytest.mark.parametrize(
    "number",
    ["9007199254740993", "12345678901234567890", "0.12345678901234567890123", "5e-324000", "1.00000000000000001"],
)
def test_number_that_float64_would_round_is_rejected(number: str, beside: str) -> None:
    of = converter(SharedSchemas())
    result = convert(of, b'{"a": %s}' % beside.encode(), b'{"a": %s}' % number.encode(), b'{"a": 2}')
    assert result.records.column("a").to_pylist() == [float(beside), 2.0]
    assert f" float64 - at `$.a`, value {number.encode()!r}: record b" in result.rejected[1]
    assert list(convert(of, b'{"a": %s}' % number.encode()).rejected) == [0]


@pytest.mark.parametrize("number", ["9007199254740992", "0.1", "1700000000000000", "123456789012345.6", "1e22", "-0.0"])
def test_number_that_float64_represents_exactly_is_kept(number: str) -> None:
    result = convert(converter(SharedSchemas()), b'{"a": 0.5}', b'{"a": %s}' % number.encode())
    assert not result.rejected
    assert repr(result.records.column("a").to_pylist()[1]) == repr(float(number))


def test_integers_of_more_than_64_bits_keep_all_digits() -> None:
    result = convert(converter(SharedSchemas()), {"id": 2**63}, {"id": -(10**37) - 1}, {"id": 1}, {"id": 10**38})
    assert [str(value) for value in result.records.column("id").to_pylist()] == [str(2**63), str(-(10**37) - 1), "1"]
    assert list(result.rejected) == [3]


def test_field_named_star_is_a_column_at_each_level() -> None:
    result = convert(converter(SharedSchemas()), {"*": 1, "in": {"*": 2, "**": 3}})
    assert columns(result) == {"*": "int64", "in": "struct<*: int64, **: int64>"}
    assert result.records.drop_columns(["n"]).to_pylist() == [{"*": 1, "in": {"*": 2, "**": 3}}]
