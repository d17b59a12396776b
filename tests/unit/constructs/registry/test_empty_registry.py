"""A registry without any schema, and recursive records."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from confluent_kafka.schema_registry.error import SchemaRegistryError

from distcommit.avro.datum_reader import AvroReader, parse
from distcommit.avro.lockstep_decoding import Datums
from distcommit.constructs.registry.registry_client import Registry, RegistrySettings, UnknownSchemaError
from distcommit.core.errors import TransientError
from tests.unit.avro.test_avro_datums import datum, record


@dataclass
class Client:
    """A client of a registry that knows no schema id."""

    subjects: list[str]
    error: Exception | None = None
    listed: int = 0
    asked: list[int] = field(default_factory=list)

    def get_schema(self, schema_id: int) -> Any:
        self.asked.append(schema_id)
        raise SchemaRegistryError(404, 40403, "Schema not found")

    def get_latest_version(self, subject: str) -> Any:
        raise SchemaRegistryError(404, 40401, "Subject not found")

    def get_subjects(self) -> list[str]:
        self.listed += 1
        if self.error is not None:
            raise self.error
        return self.subjects


def registry_of(client: Client) -> Registry:
    reader_under_test = Registry(RegistrySettings(url="http://127.0.0.1:1"))
    reader_under_test.__dict__["_client"] = client
    return reader_under_test


def test_empty_registry_is_reported_as_an_outage() -> None:
    registry = registry_of(Client([]))
    with pytest.raises(TransientError, match="the schema registry is empty") as raised:
        registry.schema(5)
    assert "restore its schemas" in str(raised.value)
    with pytest.raises(TransientError, match="the schema registry is empty"):
        registry.latest("orders-value")


def test_unknown_id_of_a_registry_with_schemas_rejects_its_record_and_lists_subjects_once() -> None:
    client = Client(["other-value"])
    registry = registry_of(client)
    for schema_id in (5, 6):
        with pytest.raises(UnknownSchemaError):
            registry.schema(schema_id)
    assert (client.listed, client.asked) == (1, [5, 6])


def test_unknown_id_is_unknown_if_the_client_may_not_list_subjects() -> None:
    registry = registry_of(Client([], SchemaRegistryError(403, 40301, "denied")))
    with pytest.raises(UnknownSchemaError):
        registry.schema(5)


NODE = {
    "type": "record",
    "name": "N",
    "fields": [
        {"name": "v", "type": "int"},
        {"name": "next", "type": ["null", "N"]},
        {"name": "below", "type": {"type": "array", "items": "N"}},
    ],
}
TREE = record(("a", "int"), ("tree", NODE))


def node(value: int, more: int = 0, below: int = 0) -> dict[str, Any]:
    after = node(value + 1, more - 1) if more else None
    return {"v": value, "next": after, "below": [node(9) for _ in range(below)]}


@pytest.mark.parametrize(
    ("writer", "reader", "values", "expected"),
    [
        (NODE, {**NODE, "fields": NODE["fields"][:1]}, [node(1, 3, 2), node(5), node(8, 40)], [1, 5, 8]),
        (TREE, record(("a", "int")), [{"a": 3, "tree": node(1, 2, 1)}, {"a": 4, "tree": node(1)}], [3, 4]),
    ],
)
def test_recursive_field_that_the_pinned_schema_lacks_is_skipped(
    writer: Any, reader: Any, values: list[Any], expected: list[int]
) -> None:
    reader_under_test = AvroReader(parse(json.dumps(writer), []), parse(json.dumps(reader), []), "value")
    data = [datum(writer, value) for value in values]
    ends = np.cumsum([len(body) for body in data])
    begins = ends - [len(body) for body in data]
    records, wrong = reader_under_test.read(Datums.of(np.frombuffer(b"".join(data), np.uint8), begins, ends))
    assert not wrong
    assert records.columns[0].to_pylist() == expected


def test_record_that_contains_itself_too_deep_is_rejected_alone() -> None:
    reader = {**NODE, "fields": NODE["fields"][:1]}
    reader_under_test = AvroReader(parse(json.dumps(NODE), []), parse(json.dumps(reader), []), "value")
    data = [datum(NODE, node(1, 200)), datum(NODE, node(2))]
    ends = np.cumsum([len(body) for body in data])
    records, wrong = reader_under_test.read(
        Datums.of(np.frombuffer(b"".join(data), np.uint8), ends - [len(d) for d in data], ends)
    )
    assert wrong == {0: "a record contains itself more than 64 levels deep"}
    assert records.columns[0].to_pylist()[1] == 2
