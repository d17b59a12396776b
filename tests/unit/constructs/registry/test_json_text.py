"""JSON schema properties with no type or several: their values are kept as JSON text."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from distcommit.constructs.converters.registry_formats.json_schema import _JsonSchemaDecoder
from distcommit.constructs.registry.json_schema_columns import columns_of
from distcommit.constructs.registry.registry_client import RegisteredSchema
from distcommit.constructs.registry.wire_format import Framed

NODE = {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/definitions/N"}}}


def read(properties: Any, message: str, **more: Any) -> tuple[dict[str, str], Any]:
    """Return the types of the columns, and the record or the reason why it is rejected."""
    schema = {"type": "object", "properties": properties, **more}
    columns, required = columns_of(RegisteredSchema(1, "JSON", json.dumps(schema), ()))
    decoder = _JsonSchemaDecoder(columns, required)
    data = np.frombuffer(message.encode(), np.uint8)
    framed = Framed(1, data, np.array([0]), np.array([len(data)]), np.array([0]))
    [decoded] = decoder.decode(framed)
    types = {field.name: str(field.type) for field in decoder.schema}
    return types, decoded.wrong[0] if decoded.wrong else decoded.records.to_pylist()[0]


@pytest.mark.parametrize(
    ("schema", "value", "kind", "expected"),
    [
        ({}, '{"b": [1, 1.50]}', "string", '{"b": [1, 1.50]}'),
        (True, "1", "string", "1"),
        ({}, "null", "string", None),
        ({"type": ["string", "integer"]}, '"x"', "string", '"x"'),
        ({"type": ["string", "integer", "null"]}, "123456789012345678901", "string", "123456789012345678901"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "5", "string", "5"),
        ({"allOf": [{"type": "string"}]}, '"x"', "string", "x"),
        ({"const": 5}, "5", "int64", 5),
        ({"const": "x"}, '"x"', "string", "x"),
        ({"const": True}, "true", "bool", True),
        ({"enum": [1, 2, None]}, "2", "int64", 2),
        ({"enum": [1, "a"]}, '"a"', "string", '"a"'),
        ({"type": "array"}, '[1, "a"]', "list<item: string>", ["1", '"a"']),
        ({"type": "object"}, '{"a": {"b": 1}}', "map<string, string>", [("a", '{"b": 1}')]),
    ],
)
def test_property_without_one_type_is_json_text_and_does_not_reject_its_topic(
    schema: Any, value: str, kind: str, expected: Any
) -> None:
    types, record = read({"x": schema, "y": {"type": "integer"}}, f'{{"x": {value}, "y": 7}}')
    assert types == {"x": kind, "y": "int64"}
    assert record == {"x": expected, "y": 7}


def test_absent_value_of_an_untyped_required_property_is_null() -> None:
    assert read({"x": {}}, "{}", required=["x"])[1] == {"x": None}


def test_recursive_property_is_json_text_below_its_first_level() -> None:
    types, record = read(
        {"n": {"$ref": "#/definitions/N"}}, '{"n": {"v": 1, "next": {"v": 2}}}', definitions={"N": NODE}
    )
    assert types == {"n": str(pa.struct([("v", pa.int64()), ("next", pa.string())]))}
    assert record == {"n": {"v": 1, "next": '{"v": 2}'}}


def test_malformed_text_is_still_rejected() -> None:
    assert "malformed" in read({"x": {}}, '{"x": [1}')[1]
