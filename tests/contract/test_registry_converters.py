"""Converters with a schema registry fulfill the converter contract, on a real registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from distcommit.app.job_file.built_in_types import validated
from distcommit.core.interfaces.constructs import Converter
from distcommit.testing.contracts import ConverterContract
from tests.servers.registered_records import avro_records, framed, register
from tests.servers.registry import RegistryServer

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
PROTO = 'syntax = "proto3"; message Order { optional int64 id = 1; repeated string tags = 2; }'
JSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}},
}


def records_of(kind: str, url: str) -> list[bytes]:
    if kind == "avro":
        values: list[Any] = [{"price": Decimal(n), "tags": ["a", "b"][:n]} for n in range(3)]
        return avro_records(url, "contract-avro", AVRO, values)
    if kind == "protobuf":
        number = register(url, "contract-protobuf-value", PROTO, "PROTOBUF")
        return [framed(number, body) for body in (b"\0", b"\0\x08\x05", b"\0\x12\x01a\x12\x01b")]
    number = register(url, "contract-json_schema-value", json.dumps(JSON), "JSON")
    return [framed(number, body) for body in (b"{}", b'{"id": 1}', b'{"tags": ["a"]}')]


@pytest.mark.parametrize("evolution", ["evolve", "pin", "fail"])
@pytest.mark.parametrize("kind", ["avro", "protobuf", "json_schema"])
class TestRegistryConverters(ConverterContract):
    @pytest.fixture(autouse=True)
    def _of(self, kind: str, evolution: str, registry_server: RegistryServer) -> Iterator[None]:
        url = registry_server.url
        self.records = records_of(kind, url)
        self.section: dict[str, Any] = {"type": kind, "registry": {"url": url}, "evolution": evolution}
        if evolution != "evolve":
            self.section["schema"] = {"subject": f"contract-{kind}-value", "version": 1}
        self.made: list[Converter] = []
        yield
        for converter in self.made:
            converter.close()

    def make_converter(self) -> Converter:
        instance: Converter = validated("converter", self.section)
        self.made.append(instance)
        return instance

    def converter(self) -> Converter:
        self.made.append(super().converter())
        return self.made[-1]

    def make_batch(self) -> pa.RecordBatch:
        return pa.record_batch({"value": [*self.records, None], "offset": pa.array([1, 2, 3, 4], pa.int64())})
