"""Decoding values into columns: types, nulls, and what is turned away record by record."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from distcommit.ingest.decode import Decoded, Decoder

ALL = Decoder(
    format="json",
    fields={"text": "string", "count": "int64", "ratio": "float64", "flag": "bool", "at": "timestamp"},
)


def batch(*values: bytes | None) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(len(values))), pa.array(values, pa.binary())], names=["offset", "value"])


def decode_one(field_type: str, text: str) -> Decoded:
    decoder = Decoder.model_validate({"format": "json", "fields": {"x": field_type}})
    return decoder.decode(batch(b'{"x": %s}' % text.encode()))


def test_raw_values_are_left_as_they_are() -> None:
    given_batch = batch(b"\xff", None, b"{}")
    decoded = Decoder().decode(given_batch)
    assert decoded == Decoded(given_batch, None, "")


def test_declared_fields_become_columns_of_their_types_in_their_order() -> None:
    value = b'{"at": "2024-02-29T12:00:00+01:00", "flag": true, "ratio": 2, "count": -5, "text": "\xc3\xbc", "z": 0}'
    decoded = ALL.decode(batch(value))
    assert decoded.records.schema.names == ["offset", "value", "text", "count", "ratio", "flag", "at"]
    assert decoded.records.schema.types[2:] == [
        pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.timestamp("us", "UTC"),
    ]  # fmt: skip
    assert decoded.records.to_pylist() == [
        {
            "offset": 0, "value": value, "text": "ü", "count": -5, "ratio": 2.0, "flag": True,
            "at": datetime(2024, 2, 29, 11, tzinfo=UTC),
        }
    ]  # fmt: skip
    assert decoded.rejected is None


@pytest.mark.parametrize(
    "value", [None, b"{}", b'{"text": null, "count": null, "ratio": null, "flag": null, "at": null}']
)
def test_null_values_and_absent_and_null_fields_give_nulls(value: bytes | None) -> None:
    decoded = ALL.decode(batch(value))
    assert decoded.rejected is None
    assert [decoded.records.column(name).null_count for name in ALL.fields] == [1] * 5


@pytest.mark.parametrize(
    ("field_type", "text"),
    [
        ("string", "5"), ("string", "true"), ("string", "[]"), ("string", "{}"),
        ("int64", '"5"'), ("int64", "5.5"), ("int64", "true"), ("int64", str(2**63)), ("int64", str(-(2**63) - 1)),
        ("float64", '"1"'), ("float64", "true"), ("float64", "NaN"), ("float64", "[1]"),
        ("bool", "1"), ("bool", '"true"'),
        ("timestamp", "5"), ("timestamp", '"yesterday"'), ("timestamp", '"2024-02-30T00:00:00Z"'),
    ],
)  # fmt: skip
def test_a_field_of_another_type_turns_its_record_away(field_type: str, text: str) -> None:
    decoded = decode_one(field_type, text)
    assert decoded.records.num_rows == 0
    assert decoded.records.schema.names == ["offset", "value", "x"]
    assert decoded.rejected is not None
    assert decoded.rejected.num_rows == 1
    assert decoded.first_error


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
    ],
)
def test_values_at_the_edges_of_their_types_are_kept_exactly(field_type: str, text: str, expected: object) -> None:
    assert decode_one(field_type, text).records.column("x").to_pylist() == [expected]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b"null",
        b'"text"',
        b"\xff\xfe",
        b'{"text": "\xff"}',
        b"{}{}",
        b"[" * 100_000,
        b'{"z": ' + b"[" * 100_000,
    ],
)
def test_a_value_that_is_not_a_json_object_is_turned_away_as_it_came(value: bytes) -> None:
    decoded = ALL.decode(batch(b'{"count": 1}', value, b'{"count": 3}'))
    assert decoded.records.column("count").to_pylist() == [1, 3]
    assert decoded.records.column("offset").to_pylist() == [0, 2]
    assert decoded.rejected is not None
    assert decoded.rejected.to_pylist() == [{"offset": 1, "value": value}]
    assert len(decoded.first_error) < 1000


def test_bad_records_are_turned_away_one_by_one_and_the_first_error_is_told() -> None:
    decoded = ALL.decode(batch(b'{"count": "x"}', b'{"count": 1}', b"{", None, b'{"flag": 5}'))
    assert decoded.records.column("offset").to_pylist() == [1, 3]
    assert decoded.rejected is not None
    assert decoded.rejected.column("offset").to_pylist() == [0, 2, 4]
    assert "Expected `int | null`, got `str` - at `$.count`" in decoded.first_error


def test_field_names_may_be_any_text() -> None:
    names = ["class", "", "a.b", "f0", "ünï", "x y", "__init__"]
    decoder = Decoder(format="json", fields=dict.fromkeys(names, "int64"))
    value = json.dumps({name: place for place, name in enumerate(names)}).encode()
    records = decoder.decode(batch(value)).records
    assert [records.column(name).to_pylist() for name in names] == [[place] for place in range(len(names))]


def test_the_undecoded_bytes_can_be_left_out_but_rejected_records_keep_them() -> None:
    decoder = Decoder(format="json", fields={"x": "int64"}, keep_value=False)
    decoded = decoder.decode(batch(b'{"x": 1}', b"bad"))
    assert decoded.records.schema.names == ["offset", "x"]
    assert decoded.rejected is not None
    assert decoded.rejected.column("value").to_pylist() == [b"bad"]


def test_an_empty_batch_gives_empty_columns() -> None:
    decoded = ALL.decode(batch())
    assert (decoded.records.num_rows, decoded.rejected) == (0, None)
    assert decoded.records.schema.types[3] == pa.int64()


def test_a_decoder_pickles_before_and_after_its_first_use() -> None:
    for _ in range(2):
        sent: Decoder = pickle.loads(pickle.dumps(ALL))
        assert sent == ALL
        assert sent.decode(batch(b'{"count": 7}')).records.column("count").to_pylist() == [7]
        ALL.decode(batch(b"{}"))


def test_an_unknown_type_or_option_is_refused() -> None:
    wrong: list[dict[str, Any]] = [{"fields": {"x": "int32"}}, {"format": "avro"}, {"keep": True}]
    for options in wrong:
        with pytest.raises(ValidationError):
            Decoder.model_validate(options)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)
)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.none()
        | st.binary(max_size=20)
        | st.dictionaries(st.sampled_from([*ALL.fields, "other"]), json_values).map(lambda d: json.dumps(d).encode()),
        max_size=8,
    )
)
def test_every_record_is_either_decoded_or_turned_away_whatever_it_holds(values: list[bytes | None]) -> None:
    decoded = ALL.decode(batch(*values))
    kept = decoded.records.column("offset").to_pylist()
    away = decoded.rejected.column("offset").to_pylist() if decoded.rejected is not None else []
    assert sorted(kept + away) == list(range(len(values)))
    assert bool(away) == bool(decoded.first_error)
