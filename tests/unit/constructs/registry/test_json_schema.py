"""JSON schemas as columns, without a registry: required properties, and invalid schemas."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from distcommit.constructs.converters.registry_formats.json_schema import JsonSchemaConverter
from distcommit.constructs.registry.registry_client import RegisteredSchema
from distcommit.constructs.registry.wire_format import Framed
from distcommit.schemas.schema_size_limits import UnusableSchemaError

MADE = JsonSchemaConverter.model_validate({"type": "json_schema", "registry": {"url": "http://nowhere"}})


def registered(schema: Any) -> RegisteredSchema:
    return RegisteredSchema(1, "JSON", json.dumps(schema), ())


def decoded(schema: Any, *messages: Any) -> tuple[list[dict[str, Any]], dict[int, str]]:
    texts = pa.array([json.dumps(message).encode() for message in messages], pa.binary())
    offsets = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1).astype(np.int64)
    data = np.frombuffer(texts.buffers()[2], np.uint8)
    framed = Framed(1, data, offsets[:-1], offsets[1:], np.arange(len(texts)))
    (decoded_batch,) = MADE.decoder(registered(schema), None).decode(framed)
    return decoded_batch.records.to_pylist(), dict(decoded_batch.wrong)


@pytest.mark.parametrize(
    "note",
    [
        {"type": ["string", "null"]},
        {"oneOf": [{"type": "null"}, {"type": "string"}]},
        {"anyOf": [{"$ref": "#/definitions/text"}, {"type": "null"}]},
        {"$ref": "#/definitions/note"},
    ],
)
def test_required_property_may_be_null_if_its_types_include_null(note: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "note": note},
        "required": ["id", "note", "gone"],
        "definitions": {"text": {"type": "string"}, "note": {"type": ["null", "string"]}},
    }
    records, wrong = decoded(schema, {"id": 1, "note": None}, {"id": None, "note": "a"}, {"id": 2, "note": "b"})
    assert records[0] == {"id": 1, "note": None}
    assert wrong == {1: "id is missing, but required"}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "object", "properties": ["a"]}, "not a JSON schema"),
        ({"type": 5}, "not a JSON schema"),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": 5}, "not a JSON schema"),
        ([], "not a JSON schema of an object"),
    ],
)
def test_invalid_schema_is_rejected_as_unusable(schema: Any, message: str) -> None:
    with pytest.raises(UnusableSchemaError, match=message):
        MADE.decoder(registered(schema), None)
