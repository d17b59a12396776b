"""The rows that the converter `debezium` makes of change events, and the events that it rejects."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from distcommit.app.job_file.built_in_types import validated
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.constructs import Converted, Converter
from distcommit.testing.fakes.convert_batch import convert_batch

FIELDS = {"id": "int64", "name": "string"}
POSTGRESQL = {
    "version": "2.7.0.Final",
    "connector": "postgresql",
    "name": "shop",
    "ts_ms": 1_700_000_000_123,
    "snapshot": "false",
    "db": "shop",
    "sequence": '["24023119","24023128"]',
    "schema": "public",
    "table": "customers",
    "txId": 555,
    "lsn": 24_023_128,
    "xmin": None,
}
MYSQL = {
    "version": "2.7.0.Final",
    "connector": "mysql",
    "name": "shop",
    "ts_ms": 1_700_000_000_000,
    "snapshot": "last",
    "db": "inventory",
    "table": "customers",
    "server_id": 223_344,
    "gtid": None,
    "file": "mysql-bin.000003",
    "pos": 484,
    "row": 0,
    "thread": 7,
}
SQL_SERVER = {"connector": "sqlserver", "ts_ms": 1_700_000_000_999, "change_lsn": "00000027:00000758:0005"}
ADA, BOB = {"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}
_UNAVAILABLE = "__debezium_unavailable_value"


def event(op: Any, before: Any = None, after: Any = None, source: Any = None, **more: Any) -> dict[str, Any]:
    times = {"ts_ms": 1_700_000_000_500, "ts_us": 1_700_000_000_500_000}
    return {"before": before, "after": after, "source": source or POSTGRESQL, "op": op, **times, **more}


def converter(**section: Any) -> Converter:
    result: Converter = validated("converter", {"type": "debezium", **section})
    return result


def convert(*events: Any, text: bool = False, **section: Any) -> Converted:
    values = [value if isinstance(value, bytes) or value is None else json.dumps(value).encode() for value in events]
    column = pa.array(values, pa.binary())
    batch = pa.record_batch({"key": [b"k"] * len(values), "value": column.cast(pa.string()) if text else column})
    (only,) = convert_batch(converter(**section), batch)
    return only


def with_schema(payload: Any) -> dict[str, Any]:
    """Return an event as JsonConverter writes it with `schemas.enable`."""
    return {
        "schema": {"type": "struct", "optional": False, "name": "shop.public.customers.Envelope"},
        "payload": payload,
    }


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("envelope", [lambda e: e, with_schema], ids=["plain", "with schema"])
def test_each_operation_gives_the_row_that_it_leaves_or_deletes(envelope: Any, text: bool) -> None:
    events = [
        event("r", after=ADA),
        event("c", after=BOB),
        event("u", before={"id": 2, "name": "Rob"}, after=BOB),
        event("d", before=ADA),
    ]
    result = convert(*map(envelope, events), text=text, fields=FIELDS)
    assert not result.rejected
    assert result.records.to_pydict() == {
        "id": [1, 2, 2, 1],
        "name": ["Ada", "Bob", "Bob", "Ada"],
        "_op": ["r", "c", "u", "d"],
        "_position": [24_023_128] * 4,
    }


def test_tombstones_are_filtered() -> None:
    result = convert(event("d", before=ADA), None, event("c", after=BOB), b"null", with_schema(None), fields=FIELDS)
    assert result.rows is not None
    assert (result.rows.to_pylist(), result.rejected) == ([0, 2], {})


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (POSTGRESQL, 24_023_128),
        (POSTGRESQL | {"lsn": None}, None),
        (MYSQL, (3 << 32) + 484),
        (MYSQL | {"file": "", "pos": 0}, None),
        (MYSQL | {"file": "mysql-bin.000004", "pos": 4}, (4 << 32) + 4),
        (SQL_SERVER, 1_700_000_000_999),
        ({"lsn": "24023128"}, None),
        ({"lsn": 2**63}, None),
        ({}, 1),
    ],
)
def test_position_is_that_of_the_source_log(source: dict[str, Any], expected: int | None) -> None:
    result = convert(event("c", after=ADA, source=source or {"ts_ms": 1}), fields=FIELDS)
    assert result.records.column("_position").to_pylist() == [expected]


def test_selected_metadata_become_columns() -> None:
    names = ["op", "position", "ts_ms", "snapshot", "transaction"]
    transaction = {"id": "571:53195829", "total_order": 1, "data_collection_order": 1}
    events = [event("c", after=ADA, source=MYSQL, transaction=transaction), event("c", after=BOB, transaction=None)]
    rows = convert(*events, event("r", after=ADA, source={"snapshot": True}), fields=FIELDS, metadata=names).records
    assert rows.select([f"_{name}" for name in names]).to_pylist() == [
        {
            "_op": "c",
            "_position": (3 << 32) + 484,
            "_ts_ms": 1_700_000_000_000,
            "_snapshot": "last",
            "_transaction": "571:53195829",
        },
        {
            "_op": "c",
            "_position": 24_023_128,
            "_ts_ms": 1_700_000_000_123,
            "_snapshot": "false",
            "_transaction": None,
        },
        {"_op": "r", "_position": None, "_ts_ms": None, "_snapshot": "true", "_transaction": None},
    ]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"{", "is not a change event of Debezium"),
        (b"\xff", "is not a change event of Debezium"),
        (b"[1]", "is not a change event of Debezium"),
        (b"[" * 100_000, "is not a change event of Debezium"),
        ({"id": 1}, "it has no `op`"),
        ({"ddl": "ALTER TABLE customers ADD x int", "databaseName": "shop"}, "it has no `op`"),
        ({"status": "BEGIN", "id": "571:53195829", "event_count": None}, "it has no `op`"),
        (event("t"), "operation t (truncate)"),
        (event("m"), "operation m"),
        (event("x", after=ADA), "unknown operation 'x'"),
        (event(7, after=ADA), "is not a change event of Debezium"),
        (event("d"), "delete without an image of the row before it"),
        (event("u", before=ADA), "no image of the row after the change"),
        (event("c", after=[1]), ""),
        (event("c", after={"id": "one"}), "id"),
        (event("u", after={"id": 1, "name": _UNAVAILABLE}), "lacks a large value"),
    ],
)
def test_bad_event_is_rejected_alone(value: Any, reason: str) -> None:
    result = convert(event("c", after=ADA), None, value, event("c", after=BOB), fields=FIELDS)
    assert result.records.to_pydict()["id"] == [1, 2]
    assert result.rows is not None
    assert result.rows.to_pylist() == [0, 3]
    assert [*result.rejected] == [2]
    assert reason in result.rejected[2]


def test_delete_with_the_key_alone_has_no_other_values() -> None:
    """PostgreSQL sends the key columns only with REPLICA IDENTITY DEFAULT."""
    result = convert(event("d", before={"id": 1}), event("d", before={"id": 2, "name": _UNAVAILABLE}), fields=FIELDS)
    assert result.records.to_pydict()["id"] == [1, 2]


def test_fields_are_inferred_of_all_images() -> None:
    result = convert(event("d", before=BOB), event("c", after={"id": 1, "email": "a@b.example"}))
    assert result.records.to_pylist() == [
        {"id": 2, "name": "Bob", "email": None, "_op": "d", "_position": 24_023_128},
        {"id": 1, "name": None, "email": "a@b.example", "_op": "c", "_position": 24_023_128},
    ]


@pytest.mark.parametrize("is_decoded", [False, True])
def test_update_that_changes_a_key_column_is_rejected(is_decoded: bool) -> None:
    events = [
        event("u", BOB, {"id": 2, "name": "Rob"}),
        event("u", BOB, {"id": 3, "name": "Bob"}),
        event("u", after={"id": 4, "name": "no image before it"}),
        event("u", {"id": None, "name": "key not logged"}, {"id": 5, "name": ""}),
        event("d", before=ADA),
    ]
    if is_decoded:
        (result,) = convert_batch(converter(keys=["id"]), decoded(*events))
    else:
        result = convert(*events, keys=["id"])
    assert [*result.rejected] == [1]
    assert "changes a key column (id)" in result.rejected[1]
    assert result.records.column("id").to_pylist() == [2, 4, 5, 1]
    assert not convert(*events).rejected


def test_only_tombstones_and_bad_events_give_no_rows() -> None:
    sections: list[dict[str, Any]] = [{}, {"fields": FIELDS}]
    for section in sections:
        result = convert(None, b"?", **section)
        assert (result.records.num_rows, [*result.rejected]) == (0, [1])


def decoded(*events: Any) -> pa.RecordBatch:
    row = pa.struct([("id", pa.int64()), ("name", pa.string())])
    source = pa.struct([("connector", pa.string()), ("lsn", pa.int64()), ("snapshot", pa.string())])
    schema = pa.schema(
        [("before", row), ("after", row), ("source", source), ("op", pa.string()), ("ts_ms", pa.int64())]
    )
    return pa.RecordBatch.from_pylist([value or {} for value in events], schema=schema)


def test_decoded_events_give_the_same_rows() -> None:
    events = [event("r", after=ADA), None, event("u", ADA, BOB), event("d", before=ADA), event("d"), event("t")]
    (result,) = convert_batch(converter(), decoded(*events))
    assert result.rows is not None
    assert result.rows.to_pylist() == [0, 2, 3]
    assert result.records.to_pylist() == [
        {**ADA, "_op": "r", "_position": 24_023_128},
        {**BOB, "_op": "u", "_position": 24_023_128},
        {**ADA, "_op": "d", "_position": 24_023_128},
    ]
    assert [*result.rejected] == [4, 5]
    (empty,) = convert_batch(converter(), decoded(None))
    assert empty.records.num_rows == 0


@pytest.mark.parametrize("column", [pa.string(), pa.binary(), pa.list_(pa.string())], ids=str)
def test_decoded_event_that_lacks_a_large_value_is_rejected(column: pa.DataType) -> None:
    value: Any = [None, _UNAVAILABLE] if pa.types.is_list(column) else _UNAVAILABLE
    value = value.encode() if pa.types.is_binary(column) else value
    row = pa.struct([("id", pa.int64()), ("large", column)])
    schema = pa.schema([("before", row), ("after", row), ("op", pa.string())])
    events = [event("u", after={"id": 1}), event("u", after={"id": 2, "large": value}), event("d", {"id": 3})]
    batch = pa.RecordBatch.from_pylist([{name: e[name] for name in schema.names} for e in events], schema=schema)
    (result,) = convert_batch(converter(), batch)
    assert [*result.rejected] == [1]
    assert result.records.column("id").to_pylist() == [1, 3]


@pytest.mark.parametrize("text", [_UNAVAILABLE.encode().hex(), "b68a35a7-17ad-35b3-af2a-ae46edb4545a"])
def test_placeholder_in_another_form_is_rejected(text: str) -> None:
    assert [*convert(event("u", after={"id": 1, "name": text}), fields=FIELDS).rejected] == [0]


def test_columns_are_known_before_any_record_is_read() -> None:
    added = pa.schema([("_op", pa.string()), ("_position", pa.int64())])
    row = pa.schema([("id", pa.int64()), ("name", pa.string())])
    expected = pa.schema([*row, *added])
    assert converter(fields=FIELDS).convert_schema(pa.schema([("value", pa.binary())]), None) == expected
    assert converter().convert_schema(decoded().schema, None) == expected
    assert converter().convert_schema(pa.schema([("value", pa.binary())]), None) is None


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("key", pa.binary())]),
        pa.schema([("value", pa.int64())]),
        pa.schema([("op", pa.string()), ("before", pa.string()), ("after", pa.string())]),
        pa.schema([("before", pa.struct([("a", pa.int64())])), ("after", pa.struct([("a", pa.int64())]))]),
        pa.schema([
            ("op", pa.string()),
            ("before", pa.struct([("a", pa.null())])),
            ("after", pa.struct([("a", pa.int64())])),
        ]),
    ],
)  # fmt: skip
def test_columns_that_are_no_events_are_rejected(schema: pa.Schema) -> None:
    with pytest.raises(ConfigurationError):
        converter().convert_schema(schema, None)


@pytest.mark.parametrize(
    "section",
    [
        {"fields": {"_op": "int64"}},
        {"metadata": ["op", "op"]},
        {"metadata": ["lsn"]},
        {"fields": FIELDS, "evolution": "pin"},
    ],
)
def test_wrong_settings_are_rejected(section: dict[str, Any]) -> None:
    with pytest.raises((ValueError, ConfigurationError)):
        converter(**section).convert_schema(pa.schema([("value", pa.binary())]), None)
