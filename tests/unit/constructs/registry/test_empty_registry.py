"""A registry that has no schema at all, and records that hold themselves."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from confluent_kafka.schema_registry.error import SchemaRegistryError

from distcommit.constructs.registry.client import Registry, RegistrySettings, UnknownSchemaError
from distcommit.core.errors import TransientError
from distcommit.formats.avro.datums import Datums
from distcommit.formats.avro.reader import AvroReader, parse
from tests.unit.formats.test_avro_datums import datum, record


@dataclass
class Client:
    """A client of a registry that knows no id."""

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
    made = Registry(RegistrySettings(url="http://127.0.0.1:1"))
    made.__dict__["_client"] = client
    return made


def test_an_empty_registry_is_reported_as_that_and_records_wait() -> None:
    registry = registry_of(Client([]))
    with pytest.raises(TransientError, match="the schema registry is empty") as raised:
        registry.schema(5)
    assert "restore its schemas" in str(raised.value)
    with pytest.raises(TransientError, match="the schema registry is empty"):
        registry.latest("orders-value")


def test_an_unknown_id_of_a_registry_with_schemas_belongs_to_the_record_and_lists_once() -> None:
    client = Client(["other-value"])
    registry = registry_of(client)
    for schema_id in (5, 6):
        with pytest.raises(UnknownSchemaError):
            registry.schema(schema_id)
    assert (client.listed, client.asked) == (1, [5, 6])


def test_a_client_that_may_not_list_subjects_takes_an_unknown_id_for_unknown() -> None:
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
    ("writer", "reader", "values", "found"),
    [
        (NODE, {**NODE, "fields": NODE["fields"][:1]}, [node(1, 3, 2), node(5), node(8, 40)], [1, 5, 8]),
        (TREE, record(("a", "int")), [{"a": 3, "tree": node(1, 2, 1)}, {"a": 4, "tree": node(1)}], [3, 4]),
    ],
)
def test_a_recursive_field_that_the_pinned_schema_lacks_is_passed_over(
    writer: Any, reader: Any, values: list[Any], found: list[int]
) -> None:
    made = AvroReader(parse(json.dumps(writer), []), parse(json.dumps(reader), []), "value")
    data = [datum(writer, value) for value in values]
    ends = np.cumsum([len(each) for each in data])
    begins = ends - [len(each) for each in data]
    records, wrong = made.read(Datums.of(np.frombuffer(b"".join(data), np.uint8), begins, ends))
    assert not wrong
    assert records.columns[0].to_pylist() == found


def test_a_record_that_holds_itself_too_deep_is_rejected_alone() -> None:
    reader = {**NODE, "fields": NODE["fields"][:1]}
    made = AvroReader(parse(json.dumps(NODE), []), parse(json.dumps(reader), []), "value")
    data = [datum(NODE, node(1, 200)), datum(NODE, node(2))]
    ends = np.cumsum([len(each) for each in data])
    records, wrong = made.read(Datums.of(np.frombuffer(b"".join(data), np.uint8), ends - [len(d) for d in data], ends))
    assert wrong == {0: "a record contains itself more than 64 levels deep"}
    assert records.columns[0].to_pylist()[1] == 2
