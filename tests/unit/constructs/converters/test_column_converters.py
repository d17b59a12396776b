"""The output of each column converter, and the settings that it rejects."""

from __future__ import annotations

import hmac
import json
import pickle
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from distcommit.app.job_file.built_in_types import validated
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.constructs import Converted, Converter
from distcommit.testing.fakes.convert_batch import convert_batch
from tests.unit.covered_values import covered_arrays

KEY = "0123456789abcdef"


def converter_of(**section: Any) -> Converter:
    result: Converter = validated("converter", section)
    return result


def convert(given: dict[str, Any], /, **section: Any) -> Converted:
    (only,) = convert_batch(converter_of(**section), pa.record_batch(given))
    return only


def test_columns_are_selected_in_order_dropped_and_renamed_at_once() -> None:
    columns = {"a": [1], "b": [2], "c": [3]}
    assert convert(columns, type="select", columns=["c", "a"]).records.to_pydict() == {"c": [3], "a": [1]}
    assert convert(columns, type="drop", columns=["b"]).records.to_pydict() == {"a": [1], "c": [3]}
    renamed = convert(columns, type="rename", columns={"a": "b", "b": "a"}).records
    assert list(renamed.to_pydict().items()) == [("b", [1]), ("a", [2]), ("c", [3])]


@pytest.mark.parametrize(
    "section",
    [
        {"type": "select", "columns": ["z"]}, {"type": "select", "columns": ["a", "a"]},
        {"type": "filter", "when": {"column": "z", "op": "is_null"}},
        {"type": "filter", "when": {"any": [{"column": "a", "op": "is_null"}, {"column": "l", "op": ">", "value": 1}]}},
        {"type": "drop", "columns": ["z"]}, {"type": "drop", "columns": ["a", "b", "l"]},
        {"type": "rename", "columns": {"z": "y"}}, {"type": "rename", "columns": {"a": "b"}},
        {"type": "cast", "columns": {"z": "int64"}}, {"type": "cast", "columns": {"l": "int64"}},
        {"type": "sql", "where": "z > 1"}, {"type": "sql", "where": "sum(a) > 1"}, {"type": "sql", "where": "b + l"},
        {"type": "flatten", "columns": ["a"]}, {"type": "explode", "column": "a"},
        {"type": "mask", "columns": ["a"], "keep_last": 2}, {"type": "hash", "columns": ["a"], "key": KEY},
        {"type": "provenance", "copies": {"c": "z"}}, {"type": "provenance", "constants": {"a": 1}},
        {"type": "key", "format": "utf8", "column": "a"}, {"type": "tombstones", "column": "z"},
        {"type": "tombstones", "column": "a", "marker": "b"},
    ],
)  # fmt: skip
def test_columns_that_do_not_fit_are_rejected_before_any_record_is_read(section: dict[str, Any]) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("l", pa.list_(pa.string()))])
    with pytest.raises(ConfigurationError) as raised:
        converter_of(**section).convert_schema(schema, None)
    assert raised.value.found
    assert raised.value.todo


@pytest.mark.parametrize(
    "section",
    [
        {"type": "select", "columns": []}, {"type": "cast", "columns": {"a": "number"}},
        {"type": "cast", "columns": {"a": ["int64"]}}, {"type": "hash", "columns": ["a"], "key": "short"},
        {"type": "provenance"}, {"type": "provenance", "constants": {"a": 2**63}}, {"type": "sql"},
        {"type": "mask", "columns": ["a"], "keep_last": -1}, {"type": "key", "format": "json"},
        *({"type": "sql", "where": text} for text in [
            "(SELECT true)", "a IN (SELECT 1)", "row_number() OVER () > 1", "*", "COLUMNS('a') > 1", "unnest([true])",
            "true), (false", "true) FROM range(3", "true; DROP TABLE records", "a >", "SELECT 1",
        ]),
    ],
)  # fmt: skip
def test_incomplete_or_contradictory_settings_are_rejected(section: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        converter_of(**section)


def test_hash_key_is_never_shown() -> None:
    hashing = converter_of(type="hash", columns=["a"], key="the very secret key")
    with pytest.raises(ValidationError) as raised:
        converter_of(type="hash", columns=["a"], key="tiny secret")
    assert "secret" not in f"{hashing} {hashing!r} {hashing.model_dump_json()} {raised.value}"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("given", "kind", "expected"),
    [
        (["12", "x", None, "2147483648"], "int32", [12, None]),
        (["1.5", "1e-999999999", "1.555", "-.5", "12345", "1e2"], "decimal(4, 2)", [Decimal("1.5"), Decimal("-0.5")]),
        ([b"a", b"\xff"], "string", ["a"]),
        ([1.0, 1.5, float("nan")], "int64", [1]),
        ([2**53 + 1, 3], "float64", [3.0]),
        (["2024-02-29", "2023-02-29"], "date", [date(2024, 2, 29)]),
        (["2024-02-29T12:00:00+01:00", "2024-02-29"], "timestamp", [datetime(2024, 2, 29, 11, tzinfo=UTC)]),
    ],
)
def test_value_that_the_type_can_not_hold_rejects_its_record(given: list[Any], kind: str, expected: Any) -> None:
    cast = convert({"n": list(range(len(given))), "a": given}, type="cast", columns={"a": kind})
    assert cast.records.column("a").to_pylist() == expected
    assert cast.rows is not None
    assert cast.rows.to_pylist() == cast.records.column("n").to_pylist()
    assert sorted([*cast.rows.to_pylist(), *cast.rejected]) == list(range(len(given)))


def test_timestamp_cast_to_a_date_keeps_the_day_in_its_zone() -> None:
    given = pa.array([datetime(2024, 2, 29, 23, tzinfo=UTC)]).cast(pa.timestamp("us", "Europe/Berlin"))
    assert convert({"a": given}, type="cast", columns={"a": "date"}).records.to_pydict() == {"a": [date(2024, 3, 1)]}


@pytest.mark.parametrize(
    "settings", [{"type": "cast"}, {"type": "parse"}, {"type": "json"}], ids=lambda one: one["type"]
)
@pytest.mark.parametrize(
    ("text", "hour"), [("2024-02-29T12:00:00", 12), ("2024-02-29T12:00:00+01:00", 11), ("2024-02-29T12:00:00Z", 12)]
)
def test_timestamp_without_a_zone_is_in_utc_for_each_converter(settings: dict[str, Any], text: str, hour: int) -> None:
    is_json = settings["type"] == "json"
    given = {"value": [json.dumps({"at": text})]} if is_json else {"at": [text, None]}
    read = convert(given, **settings, **{"fields" if is_json else "columns": {"at": "timestamp"}})
    assert read.records.column("at").to_pylist()[0] == datetime(2024, 2, 29, hour, tzinfo=UTC)


def test_dictionary_text_is_validated_as_other_text() -> None:
    given = pa.array(["1", "1e-999999999"]).dictionary_encode()
    cast = convert({"a": given}, type="cast", columns={"a": "decimal(4, 2)"})
    assert cast.records.column("a").to_pylist() == [Decimal(1)]


def test_sql_filters_and_computes_and_rejects_failing_records() -> None:
    columns = {"a": [1, 2, 3, None, 5], "s": ["1", "x", "3", "4", None], "row": [0, 1, 2, 3, 4]}
    result = convert(
        columns,
        type="sql",
        where="a IS NULL OR a <> 3 -- not three",
        columns={"n": "CAST(s AS INTEGER) * 2", "s": "a + row"},
    )
    assert result.records.to_pydict() == {"a": [1, None, 5], "s": [1, None, 9], "row": [0, 3, 4], "n": [2, 8, None]}
    assert result.rows is not None
    assert result.rows.to_pylist() == [0, 3, 4]
    assert list(result.rejected) == [1]
    assert "'x'" in result.rejected[1]


def test_sql_does_not_reject_filtered_rows_whose_columns_would_fail() -> None:
    result = convert({"s": ["1", "x"]}, type="sql", where="s <> 'x'", columns={"n": "CAST(s AS INTEGER)"})
    assert (result.records.column("n").to_pylist(), result.rejected) == ([1], {})
    result = convert({"s": ["1", "x", "0"]}, type="sql", where="CAST(s AS INTEGER) > 0")
    assert (result.records.column("s").to_pylist(), list(result.rejected)) == (["1"], [1])


def test_sql_rejects_each_bad_record_among_many_good_ones_and_nulls() -> None:
    given = [None if n % 7 == 0 else "x" if n % 5 == 0 else str(n) for n in range(500)]
    result = convert({"s": given}, type="sql", columns={"n": "CAST(s AS INTEGER)"})
    assert list(result.rejected) == [row for row, text in enumerate(given) if text == "x"]
    assert result.records.column("n").to_pylist() == [None if s is None else int(s) for s in given if s != "x"]


def test_sql_without_try_still_rejects_only_the_failing_record() -> None:
    result = convert({"s": ["1", "x", "3"]}, type="sql", columns={"n": "CAST(s AS INTEGER) + random() * 0"})
    assert (result.records.column("n").to_pylist(), list(result.rejected)) == ([1.0, 3.0], [1])


def test_sql_reads_a_slice_of_structs_at_its_offset() -> None:
    batch = pa.record_batch({"p": pa.array([{"x": n} for n in range(9)]), "n": range(9)})
    sql = converter_of(type="sql", where="p.x >= 0", columns={"y": "p.x"})
    for start in range(9):
        (result,) = convert_batch(sql, batch.slice(start, 3))
        assert result.records.column("y").to_pylist() == result.records.column("n").to_pylist()


def test_sql_rejects_names_that_differ_in_case_only_if_it_uses_them() -> None:
    columns = {"a": [1], "A": [2], "b": [3]}
    assert convert(columns, type="sql", where="b = 3").records.num_rows == 1
    with pytest.raises(ConfigurationError, match="same name in SQL"):
        convert(columns, type="sql", where="a = 1")


def test_sql_can_not_access_files(tmp_path: Any) -> None:
    from distcommit.constructs.expressions.duckdb_expressions import SqlExpressions

    (tmp_path / "a.csv").write_text("a\n1\n")
    connection = SqlExpressions("true", {})._connection
    for query in [
        f"SELECT * FROM '{tmp_path}/a.csv'",
        f"COPY (SELECT 1) TO '{tmp_path}/b'",
        "SET enable_external_access=true",
    ]:
        with pytest.raises(Exception, match=r"disabled|locked"):
            connection.execute(query).fetchall()


def test_structs_become_columns_at_all_levels() -> None:
    kind = pa.struct([("x", pa.int64()), ("in", pa.struct([("y", pa.string())]))])
    columns = {"a": [1, 2, 3], "p": pa.array([{"x": 1, "in": {"y": "a"}}, None, {"x": 3, "in": None}], kind)}
    flat = {"a": [1, 2, 3], "p_x": [1, None, 3], "p_in_y": ["a", None, None]}
    assert convert(columns, type="flatten", delimiter="_").records.to_pydict() == flat
    two = {**columns, "q": columns["p"]}
    assert convert(two, type="flatten", columns=["q"]).records.schema.names == ["a", "p", "q.x", "q.in.y"]


def test_each_item_of_a_list_becomes_a_record_and_a_null_list_stays_one() -> None:
    columns = {"a": [1, 2, 3, 4], "l": [["x", None], [], None, ["y"]]}
    exploded = convert(columns, type="explode", column="l")
    assert exploded.records.to_pydict() == {"a": [1, 1, 3, 4], "l": ["x", None, None, "y"]}
    assert exploded.rows is not None
    assert exploded.rows.to_pylist() == [0, 0, 2, 3]
    assert converter_of(type="explode", column="l").makes_several


LISTS = [pa.list_(pa.string()), pa.large_list(pa.int8()), pa.list_(pa.list_(pa.string()))]
STRUCTS = [pa.struct([("f", kind), ("g", pa.struct([("h", pa.string())]))]) for kind in LISTS]


@given(st.sampled_from(LISTS), st.data())
def test_values_below_a_null_list_are_not_exploded(kind: pa.DataType, data: st.DataObject) -> None:
    column, values = data.draw(covered_arrays(kind))
    exploded = convert({"row": list(range(len(values))), "l": column}, type="explode", column="l")
    expected = [(row, item) for row, items in enumerate(values) for item in ([None] if items is None else items)]
    assert exploded.rows is not None
    assert list(zip(exploded.rows.to_pylist(), exploded.records["l"].to_pylist(), strict=True)) == expected
    assert exploded.records["row"].to_pylist() == [row for row, _ in expected]
    exploded.records.validate(full=True)


@given(st.sampled_from(STRUCTS), st.data())
def test_values_below_a_null_struct_are_not_flattened(kind: pa.DataType, data: st.DataObject) -> None:
    column, values = data.draw(covered_arrays(kind))
    flat = convert({"s": column}, type="flatten").records
    assert flat["s.f"].to_pylist() == [value and value["f"] for value in values]
    assert flat["s.g.h"].to_pylist() == [value and value["g"] and value["g"]["h"] for value in values]


def test_masked_values_show_only_their_last_characters() -> None:
    columns = {"a": ["4929123456789012", "12345678", "", None], "n": [1, 2, 3, None]}
    masked = convert(columns, type="mask", columns=["a"], keep_last=4).records
    assert masked.column("a").to_pylist() == ["****9012", "****", "****", None]
    masked = convert(columns, type="mask", columns=["a", "n"]).records
    assert masked.to_pydict() == {"a": ["****"] * 3 + [None], "n": [None] * 4}


def test_hashes_are_hmac_sha256_of_utf8() -> None:
    hashed = convert(
        {"a": ["ü", None, "ü", ""], "b": [b"\xff", b"", None, b""]}, type="hash", columns=["a", "b"], key=KEY
    )
    expected = [hmac.digest(KEY.encode(), value, "sha256").hex() for value in ("ü".encode(), b"", b"\xff")]
    assert hashed.records.column("a").to_pylist() == [expected[0], None, expected[0], expected[1]]
    assert hashed.records.column("b").to_pylist() == [expected[2], expected[1], None, expected[1]]


def test_provenance_columns_are_appended_after_the_others() -> None:
    before = datetime.now(UTC)
    added = convert(
        {"o": [7, 8]},
        type="provenance",
        copies={"source_offset": "o"},
        constants={"job": "x", "v": 1},
        ingest_time="at",
    ).records
    assert added.schema.names == ["o", "source_offset", "job", "v", "at"]
    assert added.drop_columns(["at"]).to_pylist()[1] == {"o": 8, "source_offset": 8, "job": "x", "v": 1}
    assert all(before - timedelta(seconds=1) <= at <= datetime.now(UTC) for at in added.column("at").to_pylist())


def test_keys_are_decoded_as_kafka_serializers_write_them() -> None:
    keys = [(-2).to_bytes(4, "big", signed=True), (2**40).to_bytes(8, "big"), None, b"", b"abc"]
    decoded = convert({"key": keys}, type="key", format="int")
    assert decoded.records.column("key").to_pylist() == [-2, 2**40, None]
    assert list(decoded.rejected) == [3, 4]
    assert "b'abc'" in decoded.rejected[4]
    decoded = convert({"key": ["ü".encode(), b"\xff", None]}, type="key", format="utf8")
    assert decoded.records.column("key").to_pylist() == ["ü", None]
    assert list(decoded.rejected) == [1]


def test_tombstone_keeps_its_key_through_all_converters() -> None:
    batch = pa.record_batch({"key": [b"a", b"b"], "value": pa.array([b'{"l": ["x"]}', None], pa.binary())})
    chain: list[dict[str, Any]] = [
        {"type": "tombstones"},
        {"type": "json", "fields": {"l": ["string"]}, "keep_column": False},
        {"type": "key", "format": "utf8"},
        {"type": "explode", "column": "l"},
        {"type": "cast", "columns": {"l": "binary"}},
        {"type": "hash", "columns": ["l"], "key": KEY},
        {"type": "mask", "columns": ["l"]},
        {"type": "sql", "where": "is_deleted OR l IS NOT NULL"},
    ]
    for section in chain:
        (result,) = convert_batch(converter_of(**section), batch)
        batch = result.records
    assert batch.to_pydict() == {"key": ["a", "b"], "is_deleted": [False, True], "l": ["****", None]}


def test_custom_class_receives_its_options_and_is_not_pickled() -> None:
    section = {"type": "python", "class": "tests.contract.test_converters:Doubled", "options": {"column": "a"}}
    own = converter_of(**section)
    assert own.makes_several
    assert b"Doubled" not in pickle.dumps(own).replace(b"test_converters:Doubled", b"")
    (result,) = convert_batch(own, pa.record_batch({"a": ["x"]}))
    assert result.records.to_pydict() == {"it": ["x", "x"]}
    for wrong in ({"class": "nowhere:At"}, {"class": "builtins:dict", "options": {}}, {"options": {"no": 1}}):
        with pytest.raises(ConfigurationError):
            converter_of(**{**section, **wrong}).convert_schema(pa.schema([("a", pa.string())]), None)
