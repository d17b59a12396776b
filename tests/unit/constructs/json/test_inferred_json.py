"""JSON without declared fields: what is inferred, what two who read at once go by, and what becomes of other fields."""

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
from distcommit.constructs.json.json_fields import field_paths, infer_fields, merged_fields
from distcommit.constructs.json.json_records import JsonReader
from distcommit.constructs.schemas.column_types import arrow_type
from distcommit.core.errors import RecordError
from distcommit.core.interfaces.constructs import Converted

Policy = Literal["evolve", "pin", "fail"]


@dataclass
class Kept:
    """What all tasks of a run see."""

    put: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def schema(self, schema_id: int) -> Mapping[str, Any]:
        return self.put[schema_id]

    def put_next(self, after: int, schema: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        return after + 1, self.put.setdefault(after + 1, schema)


def converter(
    kept: Kept | None, evolution: Policy = "evolve", known: tuple[int, ...] = (), urn: str = "a", **settings: Any
) -> JsonConverter:
    section = {"type": "json", "evolution": evolution, "keep_column": False, **settings}
    made = JsonConverter.model_validate(section)
    made = JsonConverter.model_validate(pickle.loads(pickle.dumps(made)))
    made.begin_work_unit(urn)
    if kept is not None:
        made.use_schema_store(kept)
    made.load_schema_ids(known)
    return made


def batch(*values: object) -> pa.RecordBatch:
    texts = [value if isinstance(value, bytes) or value is None else json.dumps(value).encode() for value in values]
    return pa.record_batch([pa.array(range(len(values)), pa.int64()), pa.array(texts, pa.binary())], ["n", "value"])


def convert(of: JsonConverter, *values: object) -> Converted:
    (made,) = of.convert(batch(*values))
    made.records.validate(full=True)
    return made


def columns(made: Converted) -> dict[str, str]:
    return {f.name: str(f.type) for f in made.records.schema if f.name != "n"}


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
def test_what_is_inferred(values: list[object], fields: dict[str, Any]) -> None:
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
def test_what_is_inferred_of_one_object_takes_it_and_of_others_each_is_taken_or_not(
    records: list[dict[str, Any]],
) -> None:
    made = convert(converter(None), records[0])
    assert not made.rejected
    made = convert(converter(None), *records)
    assert made.records.num_rows + len(made.rejected) == len(records)


@given(objects, objects)
def test_what_is_added_keeps_what_is_known_and_has_what_was_found(one: dict[str, Any], other: dict[str, Any]) -> None:
    known, found = (infer_fields(batch(each).column("value")) for each in (one, other))
    both = merged_fields(known, found)
    assert merged_fields(both, known) == merged_fields(both, found) == both
    assert set(field_paths(known)) <= set(field_paths(both))
    for written in both.values():
        arrow_type(written)


def test_two_who_infer_at_once_go_by_what_the_first_has_put() -> None:
    kept = Kept()
    one, two = converter(kept, "pin"), converter(kept, "pin")
    assert columns(convert(one, {"id": 1})) == {"id": "int64"}
    made = convert(two, {"id": "x", "more": 1}, {"id": 2})
    assert columns(made) == {"id": "int64"}
    assert list(made.rejected) == [0]
    assert one.known_schema_ids() == two.known_schema_ids() == (1,)
    assert list(kept.put) == [1]


def test_fields_that_are_new_become_columns_of_all_who_read_on() -> None:
    kept = Kept()
    one, two = converter(kept), converter(kept)
    convert(one, {"id": 1})
    assert columns(convert(two, {"id": 1, "in": {"x": "a"}})) == {"id": "int64", "in": "struct<x: string>"}
    assert columns(convert(one, {"id": 1})) == {"id": "int64"}, "who needs no more goes on as before"
    made = convert(one, {"in": {"y": 1.5}}, {"id": None, "nothing": None})
    assert columns(made) == {"id": "int64", "in": "struct<x: string, y: double>"}
    assert made.records.column("in").to_pylist() == [{"x": None, "y": 1.5}, None]
    assert (one.known_schema_ids(), two.known_schema_ids()) == ((1, 2, 3), (1, 2))
    assert not convert(one, {"nothing": None}).rejected
    assert one.known_schema_ids() == (1, 2, 3), "what has no type is no field"


@given(st.lists(objects, min_size=2, max_size=6), st.integers(1, 5))
def test_whatever_is_read_at_once_is_what_the_decoder_by_record_says(records: list[dict[str, Any]], cut: int) -> None:
    of = converter(Kept())
    for part in (records[:cut], records[cut:], records):
        if not part:
            continue
        made = convert(of, *part)
        fields = pa.schema([*made.records.schema][1:])
        values = batch(*part).column("value")
        alone = JsonReader(fields, exact_floats=True).read(values)
        assert alone.rejected == made.rejected
        assert alone.columns == made.records.columns[1:]
        known = of._inferred.fields or {}
        assert merged_fields(known, infer_fields(values)) == known


def test_what_is_only_ever_null_or_empty_is_not_searched_for_again() -> None:
    of = converter(Kept())
    empty: dict[str, Any] = {"nil": None, "l": [], "o": {}, "s": {"x": None}, "i": [{"y": None}]}
    convert(of, {"id": 1, **empty, "s": {"known": 1}}, empty)
    names = of._inferred.names
    made = convert(of, {"id": 2, **empty}, {"s": {"known": 3}})
    assert made.records.column("s").to_pylist() == [{"known": None}, {"known": 3}]
    assert of._inferred.names is names, "it was read at once"
    for name, value in {"nil": 1, "l": [1], "o": {"x": 1}, "s": {"x": "a"}, "i": [{"y": True}]}.items():
        assert name in columns(convert(of, {name: value}))
    assert of._inferred.fields == {
        "id": "int64",
        "s": {"known": "int64", "x": "string"},
        "nil": "int64",
        "l": ["int64"],
        "o": {"x": "int64"},
        "i": [{"y": "bool"}],
    }


@pytest.mark.parametrize("evolution", ["evolve", "pin", "fail"])
def test_a_type_never_changes(evolution: Policy) -> None:
    of = converter(Kept({7: {"id": "int64", "in": {"x": "string"}}}), evolution, (7,))
    made = convert(of, {"id": 1.5}, {"id": 2}, {"id": "x"}, {"in": {"x": 1}}, {"in": [1]})
    assert list(made.rejected) == [0, 2, 3, 4]
    assert of.known_schema_ids() == (7,)


def test_what_is_pinned_is_all_there_is() -> None:
    kept = Kept({7: {"id": "int64"}})
    made = convert(converter(kept, "pin", (7,)), {"id": 1, "more": 1}, None)
    assert (columns(made), made.rejected) == ({"id": "int64"}, {})
    assert made.records.column("id").to_pylist() == [1, None]
    assert list(kept.put) == [7]


def test_another_field_fails_the_work_unit_if_that_is_asked_for() -> None:
    of = converter(Kept({7: {"id": "int64", "in": {"x": "string"}}}), "fail", (7,))
    convert(of, {"id": 1, "in": {"x": "a"}, "nothing": None})
    with pytest.raises(RecordError, match=r"schema 7; found 'in.y'\."):
        convert(of, {"in": {"y": 1}})


def test_datasets_have_an_evolution_of_their_own_and_the_first_that_matches_holds() -> None:
    own = [{"match": "b*", "evolution": "pin"}, {"match": "b1", "evolution": "evolve"}]
    for urn, made in {"a": RecordError, "b1": {"id": "int64"}, "c": {"id": "int64", "more": "int64"}}.items():
        others: Policy = "evolve" if urn == "c" else "fail"
        of = converter(Kept({7: {"id": "int64"}}), others, (7,), urn, datasets=own)
        if made is RecordError:
            with pytest.raises(RecordError):
                convert(of, {"id": 1, "more": 1})
        else:
            assert columns(convert(of, {"id": 1, "more": 1})) == made


def test_the_newest_that_is_known_counts_whatever_the_order() -> None:
    kept = Kept({7: {"a": "int64"}, 9001: {"a": "int64", "b": "int64"}})
    assert columns(convert(converter(kept, "pin", (9001, 7)), {})) == {"a": "int64", "b": "int64"}


def test_nothing_is_put_before_there_is_an_object_and_records_stay_what_they_are() -> None:
    kept = Kept()
    of = converter(kept)
    made = convert(of, None, b"no JSON", {})
    assert (columns(made), made.records.column("n").to_pylist(), list(made.rejected)) == ({}, [0, 2], [1])
    assert (kept.put, of.known_schema_ids()) == ({}, ())
    assert columns(convert(of, {"a": 1})) == {"a": "int64"}


def test_what_was_learned_of_one_dataset_says_nothing_of_another() -> None:
    of = converter(Kept())
    convert(of, {"a": 1})
    of.begin_work_unit("b")
    assert of.known_schema_ids() == ()
    of.use_schema_store(Kept())
    assert columns(convert(of, {"b": 1})) == {"b": "int64"}


def test_of_a_name_that_stands_there_twice_the_last_says_what_the_column_is() -> None:
    made = convert(converter(Kept()), b'{"a": 1, "a": 2}', b'{"a": "x", "a": 3}', b'{"a": 4, "a": 5}')
    assert (columns(made), made.records.column("a").to_pylist(), list(made.rejected)) == ({"a": "int64"}, [2, 5], [1])


def test_what_is_nested_deeper_than_twenty_levels_is_no_column() -> None:
    deep: object = 1
    for _ in range(300):
        deep = {"x": deep}
    made = convert(converter(Kept()), {"id": 1, "deep": deep, "list": json.loads("[" * 60 + "]" * 60)})
    assert (columns(made), made.rejected) == ({"id": "int64"}, {})


def test_objects_with_names_for_data_are_refused() -> None:
    with pytest.raises(RecordError, match="at most 1000"):
        convert(converter(Kept()), {f"user-{n}": n for n in range(1001)})


def test_declared_fields_have_no_evolution() -> None:
    for told in ({"evolution": "pin"}, {"datasets": [{"match": "a", "evolution": "pin"}]}):
        with pytest.raises(ValidationError, match="must not be set with fields"):
            JsonConverter.model_validate({"type": "json", "fields": {"a": "int64"}, **told})


@pytest.mark.parametrize("beside", ["1.5", "0.1", "1e300"])
@pytest.mark.parametrize(
    "number",
    ["9007199254740993", "12345678901234567890", "0.12345678901234567890123", "5e-324000", "1.00000000000000001"],
)
def test_a_number_that_float64_would_round_is_rejected_and_not_rounded(number: str, beside: str) -> None:
    of = converter(Kept())
    made = convert(of, b'{"a": %s}' % beside.encode(), b'{"a": %s}' % number.encode(), b'{"a": 2}')
    assert made.records.column("a").to_pylist() == [float(beside), 2.0]
    assert "more digits than float64 can represent" in made.rejected[1]
    assert list(convert(of, b'{"a": %s}' % number.encode()).rejected) == [0]


@pytest.mark.parametrize("number", ["9007199254740992", "0.1", "1700000000000000", "123456789012345.6", "1e22", "-0.0"])
def test_a_number_that_float64_holds_is_taken_with_all_its_digits(number: str) -> None:
    made = convert(converter(Kept()), b'{"a": 0.5}', b'{"a": %s}' % number.encode())
    assert not made.rejected
    assert repr(made.records.column("a").to_pylist()[1]) == repr(float(number))


def test_whole_numbers_of_more_than_64_bits_keep_all_digits() -> None:
    made = convert(converter(Kept()), {"id": 2**63}, {"id": -(10**37) - 1}, {"id": 1}, {"id": 10**38})
    assert [str(value) for value in made.records.column("id").to_pylist()] == [str(2**63), str(-(10**37) - 1), "1"]
    assert list(made.rejected) == [3]


def test_a_field_that_is_called_star_is_a_column_at_each_level() -> None:
    made = convert(converter(Kept()), {"*": 1, "in": {"*": 2, "**": 3}})
    assert columns(made) == {"*": "int64", "in": "struct<*: int64, **: int64>"}
    assert made.records.drop_columns(["n"]).to_pylist() == [{"*": 1, "in": {"*": 2, "**": 3}}]
