"""Converters that use a real schema registry; confluent-kafka's own serializers produce the records."""

from __future__ import annotations

import json
import pickle
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaReference
from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2

from distcommit.app.job_file.built_in_types import validated
from distcommit.core.errors import ConfigurationError, RecordError, TransientError
from distcommit.core.interfaces.constructs import Converter
from distcommit.testing.fakes.convert_batch import convert_batch, unit_of
from tests.servers.process import free_ports
from tests.servers.registered_records import avro_records, framed, json_records, protobuf_records, register
from tests.servers.registry import GuardedRegistry, RegistryServer, guarded

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
WIDER = {**ORDER, "fields": [*ORDER["fields"], {"name": "n", "type": "int", "default": 7}]}
OTHER = {**ORDER, "fields": [{"name": "id", "type": "string"}]}
VALUES = [{"id": n, "price": Decimal(n) / 4, "note": "x" if n % 2 else None} for n in range(4)]
ANY_JSON = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Line { string sku = 1; int32 count = 2; }
message Order { int64 id = 1; optional string note = 2; repeated Line lines = 3; google.protobuf.Timestamp at = 4; }
"""


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid.uuid4().hex[:8]}"


_MADE: list[Converter] = []


@pytest.fixture(autouse=True)
def all_closed() -> Iterator[None]:
    yield
    while _MADE:
        _MADE.pop().close()


def converter(kind: str, server: RegistryServer | str, **settings: Any) -> Converter:
    url = server if isinstance(server, str) else server.url
    client = settings.pop("client", {"max.retries": 0})
    section = {"type": kind, "registry": {"url": url, "client": client}, **settings}
    instance: Converter = pickle.loads(pickle.dumps(validated("converter", section)))
    _MADE.append(instance)
    return instance


def batch_of(values: list[bytes | None]) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.binary()), "offset": pa.array(range(len(values)), pa.int64())})


def converted(instance: Converter, values: list[bytes | None]) -> tuple[list[list[dict[str, Any]]], dict[int, str]]:
    """Convert values; return the pieces, checked against their rows, and the rejected records."""
    pieces, rejected = [], dict[int, str]()
    for piece in convert_batch(instance, batch_of(values)):
        piece.records.validate(full=True)
        rejected |= piece.rejected
        assert piece.rows is not None
        assert piece.records.column("offset").to_pylist() == piece.rows.to_pylist()
        pieces.append([{name: item[name] for name in item if name != "offset"} for item in piece.records.to_pylist()])
    return [piece for piece in pieces if piece], rejected


def test_avro_comes_as_typed_columns(registry_server: RegistryServer, topic: str) -> None:
    avro = converter("avro", registry_server)
    assert avro.convert_schema(batch_of([]).schema, None) is None
    records = avro_records(registry_server.url, topic, ORDER, VALUES)
    pieces, rejected = converted(avro, [*records, None])
    assert rejected == {}
    assert pieces == [[*VALUES, {"id": None, "price": None, "note": None}]]
    (piece,) = convert_batch(avro, batch_of([records[0], None]))
    assert piece.records.schema.field("price").type == pa.decimal128(9, 2)
    assert piece.records.schema.metadata == {b"schema_id": str(int.from_bytes(records[0][1:5], "big")).encode()}


def test_null_values_before_any_record_have_the_columns_of_their_topic_s_newest_schema(
    registry_server: RegistryServer, topic: str
) -> None:
    """Otherwise a work unit that begins with tombstones would fail at the next construct that names a column."""
    avro_records(registry_server.url, topic, ORDER, VALUES)
    avro = converter("avro", registry_server)
    for dataset in (topic, f"{topic}@3"):
        avro.begin_work_unit(unit_of(dataset))
        assert converted(avro, [None]) == ([[{"id": None, "price": None, "note": None}]], {})
    avro.begin_work_unit(unit_of("a-topic-that-nobody-registered"))
    assert converted(avro, [None]) == ([[{}]], {}), "nothing of the dataset before"


def test_unreadable_record_is_rejected_with_its_reason(registry_server: RegistryServer, topic: str) -> None:
    good = avro_records(registry_server.url, topic, ORDER, VALUES)
    wrong_kind = register(registry_server.url, f"{topic}-json", json.dumps(ANY_JSON), "JSON")
    tree = {"type": "record", "name": "Tree", "fields": [{"name": "next", "type": ["null", "Tree"]}]}
    recursive = register(registry_server.url, f"{topic}-tree", json.dumps(tree))
    bad = {
        b"": "has 0 bytes",
        b"\0\0\0": "has 3 bytes",
        b"\1" + good[0][1:]: "begins with byte 1",
        b"\0\xff\xff\xff\xff\0": "schema id 4294967295 is larger than",
        framed(2_000_000_000, b"\0"): "does not have id 2000000000",
        framed(wrong_kind, b"{}"): "of type JSON",
        framed(recursive, b"\0"): "contains itself",
        good[1][:-1]: "a length is negative, or larger than",
        good[1] + b"\0": "bytes are left",
    }
    pieces, rejected = converted(converter("avro", registry_server), [good[0], *bad, good[1]])
    assert pieces == [VALUES[:2]]
    assert sorted(rejected) == list(range(1, len(bad) + 1))
    for row, expected in enumerate(bad.values(), 1):
        assert expected in rejected[row]
    assert converted(converter("avro", registry_server), [b""]) == ([], {0: rejected[1]})


def test_several_schemas_in_a_batch_come_in_pieces(registry_server: RegistryServer, topic: str) -> None:
    old = avro_records(registry_server.url, topic, ORDER, VALUES)
    new = avro_records(registry_server.url, topic, WIDER, [{**item, "n": 1} for item in VALUES])
    pieces, rejected = converted(converter("avro", registry_server), [old[0], new[1], old[2], new[3]])
    assert not rejected
    assert pieces == [[VALUES[0], VALUES[2]], [{**VALUES[1], "n": 1}, {**VALUES[3], "n": 1}]]


def test_pin_reads_records_as_one_schema_and_rejects_others(registry_server: RegistryServer, topic: str) -> None:
    old = avro_records(registry_server.url, topic, ORDER, VALUES)
    new = avro_records(registry_server.url, topic, WIDER, [{**item, "n": 1} for item in VALUES])
    foreign = avro_records(registry_server.url, f"{topic}-other", OTHER, [{"id": "a"}])
    pinned = {"schema": {"subject": f"{topic}-value", "version": 2}, "evolution": "pin"}
    avro = converter("avro", registry_server, **pinned)
    schema = avro.convert_schema(batch_of([]).schema, None)
    assert schema is not None
    assert schema.names == ["offset", "id", "price", "note", "n"]
    pieces, rejected = converted(avro, [old[0], new[1], foreign[0], None])
    nulls = dict.fromkeys(["id", "price", "note", "n"])
    assert [item for piece in pieces for item in piece] == [{**VALUES[0], "n": 7}, {**VALUES[1], "n": 1}, nulls]
    assert list(rejected) == [2]
    assert "field id is string" in rejected[2]
    assert all(piece.records.schema == schema for piece in convert_batch(avro, batch_of([old[0], new[1], None])))
    (empty,) = convert_batch(avro, batch_of([]))
    assert avro.convert_schema(batch_of([]).schema, None) == empty.records.schema
    only_nulls = convert_batch(converter("avro", registry_server, **pinned), batch_of([None]))
    assert next(iter(only_nulls)).records.schema == schema


def test_fail_fails_at_another_schema(registry_server: RegistryServer, topic: str) -> None:
    old = avro_records(registry_server.url, topic, ORDER, VALUES)
    new = avro_records(registry_server.url, topic, WIDER, [{**item, "n": 1} for item in VALUES])
    avro = converter("avro", registry_server, schema={"subject": f"{topic}-value", "version": 1}, evolution="fail")
    assert converted(avro, [old[0]]) == ([VALUES[:1]], {})
    with pytest.raises(RecordError, match="schema differs from the pinned schema"):
        converted(avro, [old[0], new[0]])


@pytest.mark.parametrize("version", [1, 9])
def test_unusable_pinned_schema_is_reported_before_the_run(
    registry_server: RegistryServer, topic: str, version: int
) -> None:
    register(registry_server.url, f"{topic}-value", json.dumps(ANY_JSON), "JSON")
    avro = converter("avro", registry_server, schema={"subject": f"{topic}-value", "version": version}, evolution="pin")
    with pytest.raises(ConfigurationError, match="the pinned schema can't be used"):
        avro.convert_schema(batch_of([]).schema, None)


def test_field_with_a_column_s_name_is_reported(registry_server: RegistryServer, topic: str) -> None:
    same = {**ORDER, "fields": [{"name": "offset", "type": "long"}]}
    records = avro_records(registry_server.url, topic, same, [{"offset": 1}])
    with pytest.raises(ConfigurationError, match="two columns would have one name"):
        list(convert_batch(converter("avro", registry_server), batch_of([records[0]])))


def test_source_column_may_stay_and_may_be_another(registry_server: RegistryServer, topic: str) -> None:
    (record,) = avro_records(registry_server.url, topic, "string", ["a"])
    batch = pa.record_batch({"key": [record], "value": [b"v"]})
    (piece,) = convert_batch(converter("avro", registry_server, column="key", keep_column=False), batch)
    assert piece.records.to_pylist() == [{"value": b"v", "key": "a"}]
    keeping = converter("avro", registry_server, keep_column=True)
    pieces, _ = converted(keeping, [avro_records(registry_server.url, topic, ORDER, VALUES)[0]])
    assert set(pieces[0][0]) == {"value", "id", "price", "note"}


def test_schemas_may_refer_to_others(registry_server: RegistryServer, topic: str) -> None:
    money = {"type": "record", "name": "shop.Money", "fields": [{"name": "amount", "type": "long"}]}
    register(registry_server.url, f"{topic}-money", json.dumps(money))
    order = {**ORDER, "fields": [{"name": "price", "type": "shop.Money"}]}
    references = [SchemaReference("shop.Money", f"{topic}-money", 1)]
    number = register(registry_server.url, f"{topic}-value", json.dumps(order), references=references)
    pieces, rejected = converted(converter("avro", registry_server), [framed(number, b"\x0a")])
    assert not rejected
    assert pieces == [[{"price": {"amount": 5}}]]


def test_protobuf_compiled_from_its_text(registry_server: RegistryServer, topic: str) -> None:
    number = register(registry_server.url, f"{topic}-value", PROTO, "PROTOBUF")
    line, order = b"\x0a\x01a\x10\x02", b"\x08\x05\x1a\x05\x0a\x01a\x10\x02"
    values = [
        framed(number, b"\x02\x02" + order),  # indexes: one of them, which is 1
        framed(number, b"\x00" + line),
        framed(number, b"\x02\x02" + order[:-1]),
        framed(number, b"\x02\x0a" + order),
        framed(number, b"\x01" + order),
        framed(number, b"\xff\xff\xff\xff\xff\xff"),
        framed(number, b""),
        framed(number, b"\x02\x02"),
        None,
    ]
    pieces, rejected = converted(converter("protobuf", registry_server), values)
    empty: dict[str, Any] = {"id": 0, "note": None, "lines": [], "at": None}
    assert sorted(rejected) == [2, 3, 4, 5, 6]
    assert "not a message of its type" in rejected[2]
    assert "it has no message 5" in rejected[3]
    assert all("indexes are not valid" in rejected[row] for row in (4, 5, 6))
    orders = [{"id": 5, "note": None, "lines": [{"sku": "a", "count": 2}], "at": None}, empty]
    assert [*orders, dict.fromkeys(empty)] in pieces
    assert [{"sku": "a", "count": 2}] in pieces
    assert sum(map(len, pieces)) == 4


def test_protobuf_s_first_message_is_named_in_two_ways(registry_server: RegistryServer, topic: str) -> None:
    number = register(registry_server.url, f"{topic}-value", PROTO, "PROTOBUF")
    values = [framed(number, indexes + b"\x10" + bytes([n])) for n, indexes in enumerate([b"\0", b"\2\0", b"\0"])]
    pieces, rejected = converted(converter("protobuf", registry_server), [*values])
    assert not rejected
    assert pieces == [[{"sku": "", "count": n} for n in range(3)]]


def test_invalid_protobuf_messages_among_many_are_rejected(registry_server: RegistryServer, topic: str) -> None:
    number = register(registry_server.url, f"{topic}-value", PROTO, "PROTOBUF")
    values = [framed(number, b"\0\x10" + (b"\x05" if n % 7 else b"")) for n in range(5000)]
    pieces, rejected = converted(converter("protobuf", registry_server), [*values])
    assert sorted(rejected) == list(range(0, 5000, 7))
    assert pieces == [[{"sku": "", "count": 5}] * (5000 - len(rejected))]


def protobuf_class(**fields: int) -> Any:
    """Return a message class for confluent-kafka's serializer, with int64 fields, a Timestamp and a wrapper."""
    from google.protobuf import descriptor_pool, message_factory

    name = f"m{uuid.uuid4().hex}"
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package=name, syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    message = file.message_type.add(name="Event")
    for field, number in fields.items():
        message.field.add(name=field, number=number, type=3, label=1)
    message.field.add(name="at", number=90, type=11, label=1, type_name=".google.protobuf.Timestamp")
    message.field.add(name="w", number=91, type=11, label=1, type_name=".google.protobuf.Int32Value")
    pool = descriptor_pool.DescriptorPool()
    for imported in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(imported.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{name}.Event"))


def test_protobuf_by_its_descriptor(registry_server: RegistryServer, topic: str) -> None:
    event = protobuf_class(id=1)
    messages = [event(id=n) for n in range(3)]
    messages[1].at.FromDatetime(datetime(2024, 2, 29))
    messages[1].w.value = 0
    records = protobuf_records(registry_server.url, topic, messages)
    pieces, rejected = converted(converter("protobuf", registry_server), [*records])
    assert not rejected
    assert pieces[0][1] == {"id": 1, "at": datetime(2024, 2, 29, tzinfo=UTC), "w": 0}
    assert pieces[0][2] == {"id": 2, "at": None, "w": None}


def test_protobuf_pinned(registry_server: RegistryServer, topic: str) -> None:
    register(registry_server.url, f"{topic}-value", 'syntax = "proto3"; message A { int32 x = 1; }', "PROTOBUF")
    more = 'syntax = "proto3"; message A { int64 x = 1; string y = 2; }'
    other = 'syntax = "proto3"; message A { string x = 1; }'
    numbers = [register(registry_server.url, f"{topic}-{n}", name, "PROTOBUF") for n, name in enumerate((more, other))]
    protobuf = converter(
        "protobuf", registry_server, schema={"subject": f"{topic}-value", "version": 1}, evolution="pin"
    )
    schema = protobuf.convert_schema(batch_of([]).schema, None)
    assert schema is not None
    assert schema.names == ["offset", "x"]
    pieces, rejected = converted(
        protobuf, [framed(numbers[0], b"\0\x08\x05\x12\x01a"), framed(numbers[1], b"\0\x0a\x01a")]
    )
    assert pieces == [[{"x": 5}]]
    assert "field 1 (A.x) is of another kind" in rejected[1]


@pytest.mark.parametrize("text", ['syntax = "proto3"; import "none.proto"; message A {}', 'syntax = "proto3";'])
def test_protobuf_schema_that_cannot_be_compiled_rejects_its_records(
    registry_server: RegistryServer, topic: str, text: str
) -> None:
    from distcommit.constructs.registry.protobuf.protobuf_decoder import schema_of
    from distcommit.constructs.registry.registry_client import RegisteredSchema
    from distcommit.schemas.schema_size_limits import UnusableSchemaError

    with pytest.raises(UnusableSchemaError):
        schema_of(RegisteredSchema(1, "PROTOBUF", text, ()), None)


JSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": ["number", "null"]},
        "at": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "buyer": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/Buyer"}]},
    },
    "required": ["id"],
    "definitions": {"Buyer": {"type": "object", "properties": {"name": {"type": "string"}}}},
}


def test_json_schema(registry_server: RegistryServer, topic: str) -> None:
    values: list[dict[str, Any]] = [
        {"id": 1, "price": 1.5, "at": "2024-02-29T12:00:00Z", "tags": ["a"], "buyer": {"name": "b"}},
        {"id": 2, "price": None, "buyer": None},
    ]
    records = json_records(registry_server.url, topic, JSON, values)
    bad = [records[0][:5] + body for body in (b'{"id": "x"}', b'{"price": 1}', b"{", b'{"id": 1}{}', b"\xff")]
    pieces, rejected = converted(converter("json_schema", registry_server), [*records, *bad])
    assert pieces == [
        [
            {**values[0], "at": datetime(2024, 2, 29, 12, tzinfo=UTC)},
            {"id": 2, "price": None, "at": None, "tags": None, "buyer": None},
        ]
    ]
    assert sorted(rejected) == [2, 3, 4, 5, 6]
    assert "id is missing" in rejected[3]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"$ref": "#/definitions/none"}, "which is not there"),
    ],
)
def test_json_schema_without_columns_rejects_its_records(
    registry_server: RegistryServer, topic: str, broken: Any, message: str
) -> None:
    schema = {**JSON, "properties": {**JSON["properties"], "price": broken}}  # type: ignore[dict-item]
    number = register(registry_server.url, f"{topic}-value", json.dumps(schema), "JSON")
    _, rejected = converted(converter("json_schema", registry_server), [framed(number, b"{}")])
    assert message in rejected[0]


def test_json_schema_pinned(registry_server: RegistryServer, topic: str) -> None:
    texts = [
        {"type": "object", "properties": {"x": {"type": kind}, **more}}
        for kind, more in (("number", {}), ("integer", {"y": {"type": "string"}}), ("string", {}))
    ]
    numbers = [
        register(registry_server.url, f"{topic}-{n}", json.dumps(collections), "JSON")
        for n, collections in enumerate(texts)
    ]
    json_schema = converter(
        "json_schema", registry_server, schema={"subject": f"{topic}-0", "version": 1}, evolution="pin"
    )
    pieces, rejected = converted(json_schema, [framed(number, b'{"x": 1, "y": "a"}') for number in numbers])
    assert pieces == [[{"x": 1.0}], [{"x": 1.0}]]
    assert "x is string" in rejected[2]


# -- the registry itself


@pytest.fixture
def guard(registry_server: RegistryServer, tmp_path: Path) -> Iterator[GuardedRegistry]:
    with guarded(registry_server, tmp_path) as guard:
        yield guard


def client_of(guard: GuardedRegistry, credentials: str) -> dict[str, Any]:
    return {"ssl.ca.location": str(guard.ca_file), "basic.auth.user.info": credentials, "max.retries": "0"}


def test_tls_and_password_file_work_and_each_schema_id_is_requested_once(
    registry_server: RegistryServer, guard: GuardedRegistry, topic: str, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{guard.credentials}\n")
    (record, *_) = avro_records(registry_server.url, topic, ORDER, VALUES)
    avro = converter("avro", guard.url, client=client_of(guard, f"${{file:{secret}}}"))
    assert guard.credentials not in repr(avro)
    for _ in range(3):
        pieces, rejected = converted(avro, [record, framed(2_000_000_000, b""), record])
        assert pieces == [[VALUES[0]] * 2]
        assert list(rejected) == [1]
    number = int.from_bytes(record[1:5], "big")
    schemas = [path for path in guard.asked if not path.startswith("/subjects?")]
    assert sorted(schemas) == sorted([f"/schemas/ids/{number}", "/schemas/ids/2000000000"])
    assert len(guard.asked) == 3, "whether the registry is empty is asked once"
    avro.close()
    avro.close()
    converted(avro, [record, framed(2_000_000_000, b"")])
    assert len([path for path in guard.asked if path.startswith("/schemas/")]) == 3  # another test may have cached it


def test_wrong_credentials_and_unknown_certificates_are_reported_without_the_secret(
    guard: GuardedRegistry,
) -> None:
    refused = converter("avro", guard.url, client=client_of(guard, "reader:wrong-secret"))
    with pytest.raises(ConfigurationError, match="rejects this client") as caught:
        converted(refused, [framed(1, b"")])
    assert "wrong-secret" not in str(caught.value)
    client = {key: value for key, value in client_of(guard, guard.credentials).items() if key != "ssl.ca.location"}
    with pytest.raises(TransientError, match="CERTIFICATE_VERIFY_FAILED") as unknown:
        converted(converter("avro", guard.url, client=client), [framed(1, b"")])
    assert guard.credentials not in str(unknown.value)


@contextmanager
def silent() -> Iterator[str]:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_unreachable_or_silent_registry_is_transient_and_not_cached(topic: str) -> None:
    (port,) = free_ports(1)
    away = converter("avro", f"http://127.0.0.1:{port}/apis/ccompat/v7")
    with pytest.raises(TransientError, match="does not answer"):
        converted(away, [framed(1, b"\0")])
    with silent() as url, pytest.raises(TransientError, match="does not answer"):
        converted(converter("avro", url, client={"timeout": 0.2, "max.retries": 0}), [framed(1, b"\0")])
    with RegistryServer(port) as server:
        (record,) = avro_records(server.url, topic, ORDER, VALUES[:1])
        assert converted(away, [record]) == ([VALUES[:1]], {})


def test_settings_that_the_client_cannot_use_are_reported_without_secrets(
    registry_server: RegistryServer, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2x")
    for key, value in (("basic.auth", "x"), ("timeout", f"${{file:{secret}}}"), ("ssl.ca.location", "/none")):
        with pytest.raises(ConfigurationError, match="rejects its settings") as caught:
            converted(converter("avro", registry_server, client={key: value}), [framed(1, b"")])
        assert "hunter2x" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="a secret's file can't be read"):
        converted(
            converter("avro", registry_server, client={"basic.auth.user.info": "${file:/none}"}), [framed(1, b"")]
        )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"evolution": "pin"}, "schema must be set with evolution: pin"),
        ({"schema": {"subject": "a", "version": 1}}, "schema must only be set with evolution: pin or fail"),
        ({"schema": {"subject": "a", "version": 0}, "evolution": "pin"}, "greater than or equal to 1"),
        ({"registry": {"url": "ftp://x"}}, "must begin with http"),
        ({"registry": {"url": "http://user:password@x"}}, "must begin with http"),
        ({"evolutoin": "pin"}, "Extra inputs"),
        (
            {"registry": {"url": "http://x", "client": {"a": "${file:b}"}}},
            "an absolute path",
        ),
    ],
)
def test_settings_are_checked_before_anything_runs(settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        validated("converter", {"type": "avro", "registry": {"url": "http://127.0.0.1:1"}, **settings})


def test_column_that_is_not_binary_is_refused() -> None:
    avro = converter("avro", "http://127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="can't use the type"):
        avro.convert_schema(pa.schema([("value", pa.string())]), None)
    with pytest.raises(ConfigurationError, match="do not have"):
        avro.convert_schema(pa.schema([("other", pa.binary())]), None)
