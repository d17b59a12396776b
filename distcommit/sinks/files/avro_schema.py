"""Convert Arrow schemas to Avro schemas and back.

Timestamps and dates are converted as integers, as Python's types do not have all values.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from distcommit.core.errors import ConfigurationError, CorruptError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_PLAIN: dict[pa.DataType, str] = {
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.uint8(): "int",
    pa.uint16(): "int",
    pa.int64(): "long",
    pa.uint32(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
}
_FROM_PLAIN = {
    "bytes": pa.binary(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
}
_UNITS = {"ms": "millis", "us": "micros"}
_FROM_LOGICAL = {
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "date": pa.date32(),
}

AvroSchema = Any
"""An Avro schema in its JSON form: a name, a union (list), or a complex type (dict)."""


def avro_schema(schema: pa.Schema) -> AvroSchema:
    """Return the Avro record of the rows of an Arrow schema. Nullable columns become unions with null.

    Raises:
        ConfigurationError: if Avro has no type for a column, or rejects its name.
    """
    return _record(list(schema), "record", "", "")


def arrow_schema(record: AvroSchema) -> pa.Schema:
    """Return the Arrow schema of an Avro record from `avro_schema`.

    Raises:
        CorruptError: if it has a type that `avro_schema` never returns.
    """
    return pa.schema([_arrow_field(field["name"], field["type"]) for field in record["fields"]])


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with integers for timestamps and dates, and values for dictionaries; columns can be cast to
    it."""
    return pa.schema([_plain_field(field) for field in schema])


def without_logical_types(schema: AvroSchema) -> AvroSchema:
    """Return the Avro schema without logical types."""
    if isinstance(schema, list):
        return [without_logical_types(branch) for branch in schema]
    if isinstance(schema, dict):
        return {key: without_logical_types(value) for key, value in schema.items() if key != "logicalType"}
    return schema


def _record(fields: list[pa.Field], name: str, namespace: str, column: str) -> AvroSchema:
    inner = f"{namespace}.{name}" if namespace else name
    for field in fields:
        path = f"{column}.{field.name}" if column else field.name
        if not _NAME.match(field.name):
            raise ConfigurationError(
                "a column can't be written to Avro",
                expected="a name of letters, digits and _, not beginning with a digit",
                found=repr(field.name),
                todo="rename the column in a converter, or write Parquet",
                column=path,
            )
    return {
        "type": "record",
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        "fields": [_avro_field(f, f.name, inner, f"{column}.{f.name}" if column else f.name) for f in fields],
    }


def _avro_field(field: pa.Field, name: str, namespace: str, column: str) -> AvroSchema:
    found = _avro_type(field.type, name, namespace, column)
    return {"name": name, "type": ["null", found], "default": None} if field.nullable else {"name": name, "type": found}


def _avro_type(found: pa.DataType, name: str, namespace: str, column: str) -> AvroSchema:
    if found in _PLAIN:
        return _PLAIN[found]
    if pa.types.is_timestamp(found) and found.unit in _UNITS:
        local = "" if found.tz else "local-"
        return {"type": "long", "logicalType": f"{local}timestamp-{_UNITS[found.unit]}"}
    if pa.types.is_date32(found):
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_dictionary(found):
        return _avro_type(found.value_type, name, namespace, column)
    if pa.types.is_list(found) or pa.types.is_large_list(found):
        item = _avro_field(found.value_field, "item", f"{namespace}.{name}", column)
        return {"type": "array", "items": item["type"]}
    if pa.types.is_struct(found) and found.num_fields:
        return _record([found.field(index) for index in range(found.num_fields)], name, namespace, column)
    raise ConfigurationError(
        "a column can't be written to Avro",
        expected="binary, text, bool, int, float, date32, timestamp (ms or us), or lists and structs of these",
        found=str(found),
        todo="convert the column, or write Parquet",
        column=column,
    )


def _plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _plain_type(field.type), field.nullable)


def _plain_type(found: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(found):
        return pa.int64()
    if pa.types.is_date32(found):
        return pa.int32()
    if pa.types.is_dictionary(found):
        return _plain_type(found.value_type)
    if pa.types.is_large_list(found):
        return pa.large_list(_plain_field(found.value_field))
    if pa.types.is_list(found):
        return pa.list_(_plain_field(found.value_field))
    if pa.types.is_struct(found):
        return pa.struct([_plain_field(found.field(index)) for index in range(found.num_fields)])
    return found


def _arrow_field(name: str, found: AvroSchema) -> pa.Field:
    if isinstance(found, list):
        return pa.field(name, _arrow_type(found[1]), nullable=True)
    return pa.field(name, _arrow_type(found), nullable=False)


def _arrow_type(found: AvroSchema) -> pa.DataType:
    if isinstance(found, str) and found in _FROM_PLAIN:
        return _FROM_PLAIN[found]
    if isinstance(found, dict) and found.get("logicalType") in _FROM_LOGICAL:
        return _FROM_LOGICAL[found["logicalType"]]
    if isinstance(found, dict) and found["type"] == "array":
        return pa.list_(_arrow_field("item", found["items"]))
    if isinstance(found, dict) and found["type"] == "record":
        return pa.struct([_arrow_field(field["name"], field["type"]) for field in found["fields"]])
    raise CorruptError("an Avro schema was not written by distcommit", found=str(found)[:200])
