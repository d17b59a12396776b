"""JSON into columns: types, nulls, rejected records, and equal results of the batch reader and the record reader."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from distcommit.constructs.converters.json import JsonConverter
from distcommit.constructs.json_decoding import json_reader
from distcommit.constructs.json_decoding.json_reader import JsonReader, JsonRecords, _wire_type
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.constructs import Converted
from distcommit.schemas.column_types import arrow_type
from distcommit.testing.fakes.convert_batch import convert_batch


def converter(fields: dict[str, Any], **settings: Any) -> JsonConverter:
    return JsonConverter.model_validate({"type": "json", "fields": fields, **settings})


ALL = converter({"text": "string", "count": "int64", "ratio": "float64", "flag": "bool", "at": "timestamp"})


def batch(*values: bytes | None) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(len(values))), pa.array(values, pa.binary())], names=["offset", "value"])


def converted(result: JsonConverter, *values: bytes | None) -> Converted:
    (only,) = convert_batch(result, batch(*values))
    return only


def read_one(field_type: Any, text: str) -> Converted:
    return converted(converter({"x": field_type}), b'{"x": %s}' % text.encode())


def test_declared_fields_become_columns_of_their_types_in_their_order() -> None:
    value = b'{"at": "2024-02-29T12:00:00+01:00", "flag": true, "ratio": 2, "count": -5, "text": "\xc3\xbc", "z": 0}'
    result = converted(ALL, value)
    assert result.records.schema.names == ["offset", "value", "text", "count", "ratio", "flag", "at"]
    assert result.records.to_pylist() == [
        {
            "offset": 0, "value": value, "text": "ü", "count": -5, "ratio": 2.0, "flag": True,
            "at": datetime(2024, 2, 29, 11, tzinfo=UTC),
        }
    ]  # fmt: skip
    assert (result.rows, result.rejected) == (None, {})


@pytest.mark.parametrize(
    "value", [None, b"{}", b'{"text": null, "count": null, "ratio": null, "flag": null, "at": null}']
)
@pytest.mark.parametrize("beside", [b'{"text": "a"}', b'{"count": 1.5}'])
def test_null_values_and_absent_and_null_fields_give_nulls(value: bytes | None, beside: bytes) -> None:
    result = converted(ALL, value, beside)
    assert 0 not in result.rejected
    assert [result.records.column(name)[0].as_py() for name in ALL.fields or ()] == [None] * 5


@pytest.mark.parametrize(
    ("field_type", "text"),
    [
        ("string", "5"), ("string", "true"), ("string", "[]"), ("string", "{}"),
        ("int64", '"5"'), ("int64", "5.5"), ("int64", "true"), ("int64", str(2**63)), ("int64", str(-(2**63) - 1)),
        ("int32", str(2**31)), ("float64", '"1"'), ("float64", "true"), ("float64", "NaN"), ("float64", "[1]"),
        ("float64", "Infinity"), ("float64", "1e400"), ("bool", "1"), ("bool", '"true"'),
        ("timestamp", "5"), ("timestamp", '"yesterday"'), ("timestamp", '"2024-02-30T00:00:00Z"'),
        ("timestamp", '"2024-02-29"'), ("date", '"2024-02-30"'), ("date", "5"), ("date", '"0000-01-01"'),
        ("decimal(4, 2)", "1.555"), ("decimal(4, 2)", "123"), ("decimal(4, 2)", '"NaN"'), ("decimal(4, 2)", "true"),
        (["int64"], "[1, null, true]"), ({"y": "int64"}, '{"y": "1"}'), ({"*": "int64"}, '{"a": "1"}'),
    ],
)  # fmt: skip
def test_field_of_another_type_rejects_its_record(field_type: Any, text: str) -> None:
    result = read_one(field_type, text)
    assert result.records.num_rows == 0
    assert result.records.schema.names == ["offset", "value", "x"]
    assert list(result.rejected) == [0]
    assert text[:50] in result.rejected[0]


@pytest.mark.parametrize(
    ("field_type", "text", "expected"),
    [
        ("int64", str(2**63 - 1), 2**63 - 1),
        ("int64", str(-(2**63)), -(2**63)),
        ("float64", "1e308", 1e308),
        ("float64", "3", 3.0),
        ("string", '"\\u0000\\ud83d\\ude00"', "\0\U0001f600"),
        ("timestamp", '"2024-01-01T00:00:00Z"', datetime(2024, 1, 1, tzinfo=UTC)),
        ("timestamp", '"2024-01-01T00:00:00.123456"', datetime(2024, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)),
        ("timestamp", '"0001-01-01T00:00:00"', datetime(1, 1, 1, tzinfo=UTC)),
        ("timestamp", '"2024-01-01T00:00:00.1234567Z"', datetime(2024, 1, 1, 0, 0, 0, 123457, tzinfo=UTC)),
        ("date", '"2024-02-29"', date(2024, 2, 29)),
        ("date", '"9999-12-31"', date(9999, 12, 31)),
        ("decimal(4, 2)", "-99.99", Decimal("-99.99")),
        ("decimal(4, 2)", '"1.5"', Decimal("1.50")),
        ("decimal(38, 2)", "123456789012345678901234567890.12", Decimal("123456789012345678901234567890.12")),
        (["int64"], "[]", []),
        (["int64"], "[1, null]", [1, None]),
        ([{"y": "date"}], '[{"y": "2024-02-29", "z": 1}, null, {}]', [{"y": date(2024, 2, 29)}, None, {"y": None}]),
        ({"*": "int64"}, '{"b": 1, "a": null}', [("b", 1), ("a", None)]),
        ({"*": ["string"]}, "{}", []),
    ],
)
def test_values_are_kept_exactly(field_type: Any, text: str, expected: object) -> None:
    for beside in (b"{}", b'{"x": "\xff"}'):  # read as a batch where possible, and record by record
        result = converted(converter({"x": field_type}), b'{"x": %s}' % text.encode(), beside)
        assert result.records.column("x")[0].as_py() == expected
        assert result.records.schema.field("x").type == arrow_type(field_type)


@pytest.mark.parametrize(
    "value",
    [
        b"", b"{", b"[]", b"5", b"null", b'"text"', b"\xff\xfe", b'{"text": "\xff"}', b'{"other": "\xff"}', b"{}{}",
        b'{"other": NaN}', b'{"text": "\\ud800"}', b'{"text": "a\nb"}', b"{}\0{}", b"[" * 100_000,
        b'{"z": ' + b"[" * 100_000, b'{"z": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"z":' * 100_000 + b"1" + b"}" * 100_000,
    ],
)  # fmt: skip
def test_value_that_is_not_a_json_object_is_rejected(value: bytes) -> None:
    result = converted(ALL, b'{"count": 1}', value, b'{"count": 3}')
    assert result.records.column("count").to_pylist() == [1, 3]
    assert result.records.column("offset").to_pylist() == [0, 2]
    assert result.rows is not None
    assert result.rows.to_pylist() == [0, 2]
    assert list(result.rejected) == [1]
    assert repr(value[:100]) in result.rejected[1]
    assert len(result.rejected[1]) < 1000


@pytest.mark.parametrize(
    ("field", "text", "where", "value"),
    [
        ("int64", '"abc"', "$.x", '"abc"'),
        ("int32", "99999999999", "$.x", "99999999999"),
        ({"n": "decimal(5, 2)"}, '{"n": 123456.789}', "$.x.n", "123456.789"),
        ([{"n": "decimal(5, 2)"}], '[{"n": 1}, {"n": 1234.5}]', "$.x[1].n", "1234.5"),
        ([{"n": "int32"}], '[{"n": 1}, 7]', "$.x[1]", "7"),
        ({"*": "date"}, '{"good": "2024-01-01", "bad": "soon"}', "$.x['bad']", '"soon"'),
        ("timestamp", '"0001-01-01T00:00:00+14:00"', "$.x", '"0001-01-01T00:00:00+14:00"'),
    ],
)
def test_rejection_reason_names_the_field_and_the_value_beyond_the_shown_part_of_the_record(
    field: Any, text: str, where: str, value: str
) -> None:
    record = f'{{"before": "{"b" * 200}", "x": {text}}}'
    (reason,) = converted(converter({"x": field}), record.encode()).rejected.values()
    assert f' - at `{where}`, value {value.encode()!r}: record b\'{{"before"' in reason


def test_shown_value_of_a_rejection_reason_is_bounded() -> None:
    assert len(read_one("int64", f'"{"y" * 100_000}"').rejected[0]) < 400
    assert len(read_one({"*": "int64"}, f'{{"{"k" * 100_000}": "no"}}').rejected[0]) < 400


def test_values_that_only_together_form_objects_are_rejected() -> None:
    for values in (
        [b'{"count": 1}{"count": 2}', b""],
        [b'{"count": 1', b"}"],
        [b'{"text": "}', b'{"}'],
        [b"{}\0}", b"{}"],
    ):
        result = converted(ALL, *values, b'{"count": 3}')
        assert list(result.rejected) == [row for row, value in enumerate(values) if value != b"{}"]
        assert result.records.column("count").to_pylist()[-1] == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e-999999999", []), ("1E+999999999", []), ("1e-77", []), ("0." + "0" * 76 + "1", []), ("1" * 5000, []),
        ("-0e5", [Decimal(0)]), ("0E-999999", [Decimal(0)]), ("1.5e3", [Decimal(1500)]),
        ("1.50000000", [Decimal("1.5")]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("quote", ["", '"'])
def test_decimals_far_beyond_their_column_are_rounded_or_rejected(
    text: str, expected: list[Decimal], quote: str
) -> None:
    for fields in ({"x": "decimal(6, 2)"}, {"x": "decimal(6, 2)", "m": {"*": "int64"}}):
        result = converted(converter(fields), f'{{"x": {quote}{text}{quote}}}'.encode())
        assert result.records.column("x").to_pylist() == expected
        assert len(result.rejected) == 1 - len(expected)


def test_last_value_of_a_repeated_name_counts() -> None:
    assert converted(ALL, b'{"count": 1, "count": 2, "z": 1, "z": 2}').records.column("count").to_pylist() == [2]


def test_all_values_of_a_repeated_name_must_have_its_type() -> None:
    for first, last in ((1, '"x"'), ('"x"', 1)):
        result = converted(ALL, f'{{"count": {first}, "count": {last}}}'.encode(), b'{"count": 3}')
        assert (result.records.column("count").to_pylist(), list(result.rejected)) == ([3], [0])


def test_nesting_in_undeclared_fields_is_ignored() -> None:
    value = b'{"count": 1, "z": ' + b"[" * 250 + b"]" * 250 + b', "y": "' + b"[" * 2000 + b'"}'
    assert converted(ALL, value).records.column("count").to_pylist() == [1]


def test_field_names_may_be_any_text() -> None:
    names = ["class", "", "a.b", "f0", "ünï", "x y", "__init__", "\0", '"', "*"]
    value = json.dumps({name: place for place, name in enumerate(names)}).encode()
    records = converted(converter(dict.fromkeys(names, "int64")), value).records
    assert [records.column(name).to_pylist() for name in names] == [[place] for place in range(len(names))]


def test_non_ascii_names_are_read_record_by_record() -> None:
    """The malformed second record forces the first one to be decoded by itself."""
    fields = {"na\u00efve": "int64", "\u00fcn\u00ef": {"\u00e9t\u00e9": "int64"}}
    value = {"na\u00efve": 1, "\u00fcn\u00ef": {"\u00e9t\u00e9": 2}, "": []}
    result = converted(converter(fields), json.dumps(value, ensure_ascii=False).encode(), b'{"na')
    assert result.records.select(list(fields)).to_pylist() == [{name: value[name] for name in fields}]
    assert list(result.rejected) == [1]


def test_source_column_may_be_text_with_another_name_and_may_be_dropped() -> None:
    given_batch = pa.record_batch({"offset": [0, 1], "body": pa.array(['{"x": 1}', "bad"], pa.large_string())})
    (result,) = convert_batch(converter({"x": "int64"}, column="body", keep_column=False), given_batch)
    assert result.records.to_pylist() == [{"offset": 0, "x": 1}]
    assert list(result.rejected) == [1]


def test_only_column_can_be_replaced() -> None:
    result = converter({"x": "int64"}, keep_column=False)
    (only,) = convert_batch(result, batch(b'{"x": 1}', b"{").select(["value"]))
    assert only.records.to_pylist() == [{"x": 1}]


def test_batch_without_rows_gives_empty_columns() -> None:
    result = converted(ALL)
    assert result.records.num_rows == 0
    assert result.records.schema == ALL.convert_schema(batch().schema, None)


def test_json_converter_pickles_before_and_after_its_first_use() -> None:
    for _ in range(2):
        sent: JsonConverter = pickle.loads(pickle.dumps(ALL))
        assert sent == ALL
        assert converted(sent, b'{"count": 7}').records.column("count").to_pylist() == [7]
        converted(ALL, b"{}")


def test_columns_that_do_not_fit_are_rejected_before_any_record_is_read() -> None:
    for schema in ([("value", pa.int64())], [], [("value", pa.binary()), ("count", pa.int64())]):
        with pytest.raises(ConfigurationError, match="json"):
            ALL.convert_schema(pa.schema(schema), None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"fields": {}}, {"fields": {"x": "int"}}, {"fields": {"x": "binary"}}, {"fields": {"x": ["int64", "int64"]}},
        {"fields": {"x": []}}, {"fields": {"x": {}}}, {"fields": {"x": "decimal(39, 2)"}},
        {"fields": {"x": {"y": None}}},
        {"fields": {"x": "decimal(4, 5)"}}, {"fields": {"x": {1: "int64"}}}, {"fields": {"x": "int64"}, "keep": True},
    ],
)  # fmt: skip
def test_unknown_type_or_option_is_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        JsonConverter.model_validate({"type": "json", **wrong})


def test_types_nested_too_deep_are_rejected() -> None:
    written: Any = "int64"
    for _ in range(10_000):
        written = [written]
    with pytest.raises(ValueError, match="deep"):
        arrow_type(written)


# -- both ways of reading

WIDE = converter(
    {
        "s": "string", "i": "int64", "j": "int32", "f": "float64", "b": "bool", "n": "decimal(6, 2)", "d": "date",
        "t": "timestamp", "l": ["int32"], "o": {"f": "float64", "t": "timestamp", "l": [{"d": "date"}]},
    }
)  # fmt: skip
COLUMNS = pa.schema([(name, arrow_type(kind)) for name, kind in (WIDE.fields or {}).items()])
READER = JsonReader(COLUMNS)
OF_OTHERS = JsonReader(COLUMNS)
OF_OTHERS.read(pa.array(['{"z": 1}']))  # has encountered a field that it ignores
KNOWN = pa.schema([*((f.name, _wire_type(f.type)) for f in COLUMNS), ("z", pa.null()), ("y", pa.list_(pa.null()))])
numbers = st.sampled_from(
    ["1e-77", "1e-999999999", "0E-9", "1.5e3", "0", "-0",
     "-0.0", "0e0", "-0e5", "1", "01", "+1", "1.", ".5", "1.5", "1.50", "1.555", "1e2", "1E400", "-1e-400",
     "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "NaN", "-NaN", "Infinity", "-Infinity",
     "Inf", "9999.99", "10000", "123456789012345678901234567890", "0.1", "5e-324", "1.7976931348623157e308"]
) | st.floats().map(str) | st.integers().map(str)  # fmt: skip
texts = (
    st.sampled_from(
        [
            '""',
            '"a"',
            '"\\u0000"',
            '"\\ud83d\\ude00"',
            '"\\ud800"',
            '"\\udc00"',
            '"NaN,"',
            '"Inf"',
            '"}"',
            '"{"',
            '"1.5"',
            '" 1"',
            '"1_0"',
            '"1e2"',
            '"NaN"',
            '"\\x"',
            '"\\/"',
            '"2024-02-29"',
            '"2023-02-29"',
            '"0000-01-01"',
            '"9999-12-31"',
            '"2024-2-9"',
            '"2024-02-29T12:00:00Z"',
            '"2024-02-29T12:00:00"',
            '"2024-02-29 12:00:00Z"',
            '"2024-02-29T12:00Z"',
            '"2024-02-29T24:00:00Z"',
            '"2024-02-29T23:59:60Z"',
            '"2024-02-29T12:00:00.5+01:00"',
            '"2024-02-29T12:00:00+25:00"',
            '"2024-02-29T12:00:00-00:00"',
            '"2024-02-29T12:00:00+0100"',
            '"2024-02-29T12:00:00.1234567"',
            '"2024-02-30T12:00:00"',
            '"0001-01-01T00:00:00+01:00"',
            '"9999-12-31T23:59:59-01:00"',
            '"2024-02-29t12:00:00z"',
            '"2024-02-29T12:00:00."',
            '"2024-02-29T12:00:00,5Z"',
            '"1900-02-29T00:00:00"',
            '"1677-01-01T00:00:00.000001Z"',
        ]
    )
    | st.text(max_size=5).map(json.dumps)
    | st.text(max_size=3).map(lambda t: f'"{t}"')
)
times = st.datetimes().map(lambda t: f'"{t.isoformat()}"') | st.dates().map(lambda t: f'"{t.isoformat()}"')
leaves = numbers | texts | times | st.sampled_from(["null", "true", "false", "{}", "[]", "tru", ""])
names = st.sampled_from([*(WIDE.fields or ()), "z", "s", "\\u0073"])


def an_object(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.lists(st.tuples(names, values).map(lambda pair: f'"{pair[0]}": {pair[1]}'), max_size=3)
    return pairs.map(lambda results: "{" + ", ".join(results) + "}")


any_json = st.recursive(
    leaves,
    lambda below: an_object(below) | st.lists(below, max_size=3).map(lambda results: f"[{','.join(results)}]"),
    max_leaves=6,
)
likely = st.one_of(
    st.tuples(st.just("s"), texts),
    st.tuples(st.sampled_from("ijfnn"), numbers),
    st.tuples(st.sampled_from("dt"), times | texts),
    st.tuples(st.just("o"), st.one_of(times.map(lambda t: f'{{"t": {t}}}'), numbers.map(lambda n: f'{{"f": {n}}}'))),
    st.tuples(st.just("z"), any_json),
    st.tuples(names, any_json),
)
an_input = st.lists(likely, max_size=2).map(lambda results: "{" + ", ".join(f'"{n}": {v}' for n, v in results) + "}")
values = st.lists(
    (
        an_input
        | st.sampled_from(["{}", "", "{}{}", "{", "}", '{"s": "', '{"}', "{}\0}", "{} {}", "{\n}", '{"i": 1\n}', " {}"])
    ).map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.none(),
    max_size=3,
)


def comparable(read: JsonRecords) -> tuple[list[str], list[int] | None]:
    return [repr(column.to_pylist()) for column in read.columns], read.rows and read.rows.to_pylist()


@pytest.mark.thorough
@settings(max_examples=300, deadline=None)
@given(values)
@example([b'{"f": -0}'])
@example([b'{"z": NaN}'])
@example([b'{"f": Infinity}'])
@example([b'{"o": {"f": -0}}'])
@example([b'{"d": "2024-02-29"}', None])
@example([b'{"t": "2024-02-29T24:00:00Z"}'])
@example([b'{"t": "2024-02-29"}'])
@example([b"{}{}{}\0}", b"{}", b"{}"])
@example([b'{"n": 10000}'])
@example([b"{}{}", b""])
@example([b'{"f": NaN}'])
@example([b'{"f": -Infinity}'])
@example([b'{"f": NaN, "f": 1}'])
@example([b'{"o": {"f": Inf}}'])
@example([b'{"f": 1e400}'])
@example([b'{"o": {"z": NaN}}'])
@example([b'{"i": NaN}'])
@example([b'{"n": NaN}'])
@example([b'{"s": NaN}'])
@example([b'{"l": [NaN]}'])
@example([b'{"z": [[1]]}'])
@example([b'{"y": [NaN]}'])
def test_batch_reader_returns_the_same_as_reading_one_by_one(given_values: list[bytes | None]) -> None:
    """Uses a reader without ignored fields so far, one that has encountered some, and one that knows all names."""
    array = pa.array(given_values, pa.binary())
    one_by_one = READER._one_by_one(array)
    READER._has_others = False
    for at_once in (READER._at_once(array), OF_OTHERS._at_once(array), READER._at_once(array, KNOWN)):
        if at_once is not None:
            assert comparable(JsonRecords(at_once)) == comparable(one_by_one)
            assert [column.type for column in at_once] == [column.type for column in one_by_one.columns]
    read = one_by_one.rows.to_pylist() if one_by_one.rows is not None else list(range(len(array)))
    assert sorted([*read, *one_by_one.rejected]) == list(range(len(array)))


def test_good_records_are_read_as_a_batch() -> None:
    """Reading record by record would be exact but slow."""
    value = {
        "s": "ü NaN Inf",
        "i": 1,
        "j": 2,
        "f": 0.5,
        "b": True,
        "n": 1.25,
        "d": "2024-02-29",
        "t": "2024-02-29T12:00:00Z",
        "l": [1, None],
        "o": {"f": 1, "t": "2024-02-29T12:00:00.5+01:00", "l": [{"d": "2024-02-29"}]},
        "z": {"y": []},
    }
    array = pa.array([json.dumps(value).encode(), b"{}", None, b'{"i": 5}'], pa.binary())
    del value["z"]
    without_others = pa.array([json.dumps(value).encode(), b"{}", None, b'{"i": 5}'], pa.binary())
    reader = JsonReader(COLUMNS)
    for given_values, is_looked_through in ((without_others, 0), (array, 1), (without_others, 1)):
        with patch.object(json_reader, "_may_hide", wraps=json_reader._may_hide) as looked:
            at_once = reader._at_once(given_values)
        assert at_once is not None
        assert comparable(JsonRecords(at_once)) == comparable(READER._one_by_one(given_values))
        assert looked.call_count == is_looked_through
