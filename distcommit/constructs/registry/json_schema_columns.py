"""Arrow columns of registered JSON schemas.

| JSON schema | Arrow |
| --- | --- |
| string; of format date, date-time; an enum or const of strings | string; date32, timestamp (us, UTC); string |
| integer, number, boolean | int64, float64, bool |
| array of items; object of properties; object of additionalProperties alone | list; struct; map |
| `type: [X, "null"]`, oneOf or anyOf of null and X | X |
| `$ref`, into the schema or one that it refers to | the type of the target |
| const, enum without a type | the type of the values, if it is one type |
| several types, allOf of several, recursive schemas, schemas without a type | string: the value as JSON text |
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from referencing import Registry
from referencing import Resource as Reference
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from distcommit.constructs.registry.registry_client import RegisteredSchema
from distcommit.schemas.column_types import JSON_TEXT
from distcommit.schemas.evolution import is_readable_as
from distcommit.schemas.schema_size_limits import Expansion, UnusableSchemaError

_SCALARS = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
_FORMATS = {"date": pa.date32(), "date-time": pa.timestamp("us", "UTC")}
_OF_VALUES = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def columns_of(registered: RegisteredSchema) -> tuple[pa.Schema, frozenset[str]]:
    """Return an object's columns, and the required ones that must not be null.

    Raises:
        UnusableSchemaError: if it is not an object schema with properties, or has an unknown type or reference.
    """
    try:
        return _columns_of(registered)
    except (AttributeError, TypeError, RecursionError) as error:  # such as a number instead of a list
        raise UnusableSchemaError(f"it is not a JSON schema: {error}") from error


def _columns_of(registered: RegisteredSchema) -> tuple[pa.Schema, frozenset[str]]:
    try:
        contents = {name: json.loads(text) for name, text in registered.references}
        root = json.loads(registered.text)
    except ValueError as error:
        raise UnusableSchemaError(f"it is not JSON: {error}") from error
    if not isinstance(root, dict):
        raise UnusableSchemaError("it is not a JSON schema of an object")
    resources = [(name, Reference.from_contents(item, DRAFT7)) for name, item in contents.items()]
    registry = Registry().with_resources([*resources, ("", Reference.from_contents(root, DRAFT7))])
    resolver = registry.resolver(root.get("$id", "") if root.get("$id") in contents else "")
    types = _Types(Expansion())
    root_type, _ = types.of(root, resolver, "")
    if not pa.types.is_struct(root_type):
        raise UnusableSchemaError("it is not a JSON schema of an object with properties")
    properties = root.get("properties", {})
    required = [name for name in root.get("required", ()) if name in properties]
    return pa.schema(list(root_type)), frozenset(n for n in required if not types.of(properties[n], resolver, n)[1])


@dataclass(slots=True)
class _Types:
    """Conversion of one JSON schema to Arrow types."""

    expansion: Expansion
    """Counter of the schema's columns."""
    within: list[int] = field(default_factory=list)
    """Identities of enclosing schemas, to find recursion."""

    def of(self, schema: Any, resolver: Any, path: str) -> tuple[pa.DataType, bool]:
        """Return a schema's type, and whether null is allowed."""
        if not isinstance(schema, dict) or id(schema) in self.within:
            return JSON_TEXT, True
        self.within.append(id(schema))
        try:
            with self.expansion.column(path):
                return self._of(schema, resolver, path)
        finally:
            self.within.pop()

    def _of(self, schema: dict[str, Any], resolver: Any, path: str) -> tuple[pa.DataType, bool]:
        if "$ref" in schema:
            try:
                resolved = resolver.lookup(schema["$ref"])
            except Unresolvable as error:
                raise UnusableSchemaError(f"{path or 'it'} refers to {schema['$ref']}, which is not there") from error
            return self.of(resolved.contents, resolved.resolver, path)
        for key in ("oneOf", "anyOf", "allOf"):
            if key in schema:
                some = [item for item in schema[key] if not isinstance(item, dict) or item.get("type") != "null"]
                if len(some) != 1 or "properties" in schema:
                    return JSON_TEXT, True
                inner, nullable = self.of(some[0], resolver, path)
                return inner, nullable or len(schema[key]) > 1
        kinds = schema.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else list(kinds)
        some = [item for item in kinds if item != "null"]
        if len(some) == 1:
            return self._one(some[0], schema, resolver, path), len(some) < len(kinds)
        values = schema.get("enum", [schema["const"]] if "const" in schema else [])
        of_values = {type(item) for item in values} - {type(None)}
        if not kinds and len(of_values) == 1 and (kind := of_values.pop()) in _OF_VALUES:
            return _OF_VALUES[kind], None in values
        return JSON_TEXT, True

    def _one(self, kind: str, schema: dict[str, Any], resolver: Any, path: str) -> pa.DataType:
        if kind == "array":
            return pa.list_(self.of(schema.get("items"), resolver, f"{path}[]")[0])
        if kind == "object":
            properties = schema.get("properties")
            if properties:
                below = {n: self.of(item, resolver, f"{path}.{n}".lstrip(".")) for n, item in properties.items()}
                return pa.struct([(name, kind_below) for name, (kind_below, _) in below.items()])
            return pa.map_(pa.string(), self.of(schema.get("additionalProperties"), resolver, f"{path}.*")[0])
        if kind == "string":
            return _FORMATS.get(schema.get("format", ""), pa.string())
        if kind not in _SCALARS:
            raise UnusableSchemaError(f"{path or 'it'} is of an unknown type: {kind!r:.100}")
        return _SCALARS[kind]


def check_readable(writer: pa.Schema, reader: pa.Schema, required: frozenset[str]) -> None:
    """Raise UnusableSchemaError if the writer's messages can't be read with the reader's columns.

    Types must be equal, except that an integer can be read as a number. Columns in `required` must exist.
    """
    for item in reader:
        index = writer.get_field_index(item.name)
        if index < 0:
            if item.name in required:
                raise UnusableSchemaError(f"it has no {item.name}, which the pinned schema requires")
            continue
        written = writer.field(index).type
        if not is_readable_as(written, item.type, _is_number_as):
            raise UnusableSchemaError(f"{item.name} is {written}, and {item.type} in the pinned schema")


def _is_number_as(written: pa.DataType, read: pa.DataType) -> bool:
    return bool(written == pa.int64() and read == pa.float64())
