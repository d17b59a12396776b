"""Change events of Debezium whose schemas are in a real registry become the same rows as those in JSON."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from confluent_kafka import Producer

from distcommit.app.job_file.built_in_types import validated
from distcommit.core.interfaces.constructs import Converter
from distcommit.testing.fakes.convert_batch import convert_batch
from tests.integration.sinks.test_table_sink_jobs import InSqlite
from tests.jobs.kafka_job import kafka_job
from tests.servers.registered_records import avro_records, framed, register
from tests.servers.registry import RegistryServer

ADA, BOB = {"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}
ROWS = [
    {**ADA, "_op": "r", "_position": 7},
    {**BOB, "_op": "u", "_position": 8},
    {**ADA, "_op": "d", "_position": 9},
]


def avro_envelope(*more: dict[str, Any]) -> dict[str, Any]:
    """Return the schema that Debezium registers for a table."""
    row = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}, *more]
    source = [
        {"name": "connector", "type": "string"},
        {"name": "ts_ms", "type": "long"},
        {"name": "snapshot", "type": ["null", "string"], "default": None},
        {"name": "lsn", "type": ["null", "long"], "default": None},
    ]
    value = {"type": "record", "name": "Value", "fields": row}
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.public.customers",
        "fields": [
            {"name": "before", "type": ["null", value], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": {"type": "record", "name": "Source", "fields": source}},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    }


def event(op: str, before: Any, after: Any, lsn: int) -> dict[str, Any]:
    source = {"connector": "postgresql", "ts_ms": 1, "snapshot": "false", "lsn": lsn}
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 2}


def rows_of(
    kind: str, server: RegistryServer, values: Sequence[bytes | None]
) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the rows, and the input row of each."""
    decoder: Converter = validated("converter", {"type": kind, "registry": {"url": server.url}})
    debezium: Converter = validated("converter", {"type": "debezium"})
    rows: list[dict[str, Any]] = []
    inputs: list[int] = []
    with closing(decoder):
        batch = pa.record_batch({"key": [b"k"] * len(values), "value": pa.array([*values], pa.binary())})
        for decoded in convert_batch(decoder, batch):
            assert not decoded.rejected
            for result in convert_batch(debezium, decoded.records):
                assert not result.rejected
                assert result.rows is not None
                rows += result.records.to_pylist()
                kept = result.rows if decoded.rows is None else decoded.rows.take(result.rows)
                inputs += kept.to_pylist()
    return rows, inputs


def test_avro_events_and_tombstones(registry_server: RegistryServer) -> None:
    topic = f"customers-{uuid.uuid4().hex[:8]}"
    events = [event("r", None, ADA, 7), event("u", ADA, BOB, 8), event("d", ADA, None, 9)]
    records = avro_records(registry_server.url, topic, avro_envelope(), events)
    assert rows_of("avro", registry_server, [*records, None]) == (ROWS, [0, 1, 2])


def test_avro_events_after_a_change_of_the_source_table_have_its_columns(registry_server: RegistryServer) -> None:
    topic = f"customers-{uuid.uuid4().hex[:8]}"
    old = avro_records(registry_server.url, topic, avro_envelope(), [event("r", None, ADA, 7)])
    email = {"name": "email", "type": ["null", "string"], "default": None}
    changed = [event("u", ADA, {**ADA, "email": "a@b.example"}, 8)]
    new = avro_records(registry_server.url, topic, avro_envelope(email), changed)
    rows, _ = rows_of("avro", registry_server, [*old, *new])
    assert rows == [ROWS[0], {**ADA, "email": "a@b.example", "_op": "u", "_position": 8}]


PROTO = """syntax = "proto3";
package shop.public.customers;
message Value { int64 id = 1; optional string name = 2; }
message Source { string connector = 1; optional int64 lsn = 2; }
message Envelope { Value before = 1; Value after = 2; Source source = 3; string op = 4; int64 ts_ms = 5; }
"""


def message(*fields: tuple[int, int | bytes | None]) -> bytes:
    """Encode fields with numbers below 128 and short texts or messages."""
    parts = [
        bytes([number << 3, value]) if isinstance(value, int) else bytes([number << 3 | 2, len(value)]) + value
        for number, value in fields
        if value is not None
    ]
    return b"".join(parts)


def protobuf_event(op: bytes, before: bytes | None, after: bytes | None, lsn: int) -> bytes:
    return message((1, before), (2, after), (3, message((1, b"postgresql"), (2, lsn))), (4, op), (5, 2))


def test_protobuf_events_and_tombstones(registry_server: RegistryServer) -> None:
    topic = f"customers-{uuid.uuid4().hex[:8]}"
    number = register(registry_server.url, f"{topic}-value", PROTO, "PROTOBUF")
    ada, bob = message((1, 1), (2, b"Ada")), message((1, 2), (2, b"Bob"))
    events = [
        protobuf_event(b"r", None, ada, 7),
        protobuf_event(b"u", ada, bob, 8),
        protobuf_event(b"d", ada, None, 9),
    ]
    envelope = b"\x02\x04"  # the third message of the schema
    records = [framed(number, envelope + encoded) for encoded in events]
    assert rows_of("protobuf", registry_server, [*records, None]) == (ROWS, [0, 1, 2])


def test_job_mirrors_avro_events_and_a_new_column_of_the_source(
    tmp_path: Path, registry_server: RegistryServer
) -> None:
    topic, place = f"customers_{uuid.uuid4().hex[:8]}", InSqlite(tmp_path)
    email = {"name": "email", "type": ["null", "string"], "default": None}
    cy = {"id": 3, "name": "Cy", "email": "c@y.example"}
    first = [event("r", None, ADA, 7), event("c", None, BOB, 8)]
    second = [event("d", ADA, None, 9), event("u", BOB, {**BOB, "email": "b@b.example"}, 10), event("c", None, cy, 11)]
    with kafka_job(tmp_path, {topic: 1}) as job:
        job.write(converters=[{"type": "avro", "registry": {"url": registry_server.url}}, {"type": "debezium"}])
        written = yaml.safe_load(job.path.read_text())
        sink = {**place.sink(), "mode": "mirror", "keys": ["id"], "evolve": "add_columns"}
        job.path.write_text(yaml.safe_dump({**written, "sink": sink}))
        for schema, events in ((avro_envelope(), first), (avro_envelope(email), second)):
            producer = Producer({"bootstrap.servers": job.broker.bootstrap_servers})
            for value in [*avro_records(registry_server.url, topic, schema, events), None]:
                producer.produce(topic, value, partition=0)
            assert producer.flush(30) == 0
            job.run()
        assert place.sql(f"SELECT id, name, email FROM {topic} ORDER BY id") == [
            (2, "Bob", "b@b.example"),
            (3, "Cy", "c@y.example"),
        ]
        audit = job.audit()
        assert audit.exact, audit
        assert (audit.records, audit.rejected) == (5, 0)
