"""Records of producers that use a schema registry, made by confluent-kafka's own serializers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext


def avro_records(url: str, topic: str, schema: Any, values: Iterable[Any]) -> list[bytes]:
    """Register that Avro schema, and return values of the topic."""
    with SchemaRegistryClient({"url": url}) as client:
        serializer = AvroSerializer(client, json.dumps(schema))
        return [serializer(value, SerializationContext(topic, MessageField.VALUE)) for value in values]


def json_records(url: str, topic: str, schema: Any, values: Iterable[Any]) -> list[bytes]:
    """Register that JSON schema, and return values of the topic."""
    with SchemaRegistryClient({"url": url}) as client:
        serializer = JSONSerializer(json.dumps(schema), client)
        return [serializer(value, SerializationContext(topic, MessageField.VALUE)) for value in values]


def protobuf_records(url: str, topic: str, messages: Sequence[Any]) -> list[bytes]:
    """Return values of the topic that are generated messages of one class."""
    with SchemaRegistryClient({"url": url}) as client:
        serializer = ProtobufSerializer(type(messages[0]), client)
        return [serializer(item, SerializationContext(topic, MessageField.VALUE)) for item in messages]


def register(url: str, subject: str, text: str, kind: str = "AVRO", references: Sequence[Any] = ()) -> int:
    """Register a schema unchanged, and return its id."""
    with SchemaRegistryClient({"url": url}) as client:
        return int(client.register_schema(subject, Schema(text, kind, list(references))))


def framed(schema_id: int, body: bytes) -> bytes:
    """Return a message in the wire format, without a serializer."""
    return b"\0" + schema_id.to_bytes(4, "big") + body
