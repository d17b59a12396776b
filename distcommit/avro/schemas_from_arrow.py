"""Avro schemas for Arrow data. Times are encoded as integers, because Python's types cannot represent all of them."""

from __future__ import annotations

import re

import pyarrow as pa

from distcommit.avro import AvroSchema
from distcommit.core.errors import ConfigurationError
from distcommit.schemas.storable_types import replace_types

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
_UNITS = {"ms": "millis", "us": "micros"}


def avro_schema(schema: pa.Schema) -> AvroSchema:
    """Return the record type for an Arrow schema, with a nullable column as a union with null.

    Raises ConfigurationError if Avro does not support a column's type or name.
    """
    return _record(list(schema), "record", "", "")


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the Arrow schema that rows are cast to for encoding: times as integers, dictionaries as plain values."""
    return pa.schema([pa.field(f.name, replace_types(f.type, _plain_type), f.nullable) for f in schema])


def without_logical_types(schema: AvroSchema) -> AvroSchema:
    """Return the schema without logical types, which do not affect the encoding."""
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
                id="COLUMN_UNSUPPORTED",
                expected="a name of letters, digits and _, not starting with a digit",
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
    kind = _avro_type(field.type, name, namespace, column)
    return {"name": name, "type": ["null", kind], "default": None} if field.nullable else {"name": name, "type": kind}


def _avro_type(kind: pa.DataType, name: str, namespace: str, column: str) -> AvroSchema:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pa.types.is_timestamp(kind) and kind.unit in _UNITS:
        local = "" if kind.tz else "local-"
        return {"type": "long", "logicalType": f"{local}timestamp-{_UNITS[kind.unit]}"}
    if pa.types.is_date32(kind):
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_dictionary(kind):
        return _avro_type(kind.value_type, name, namespace, column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = _avro_field(kind.value_field, "item", f"{namespace}.{name}", column)
        return {"type": "array", "items": item["type"]}
    if pa.types.is_struct(kind) and kind.num_fields:
        return _record([kind.field(index) for index in range(kind.num_fields)], name, namespace, column)
    raise ConfigurationError(
        "a column can't be written to Avro",
        id="COLUMN_UNSUPPORTED",
        expected="binary, text, bool, int, float, date32, timestamp (ms or us), or lists and structs of these",
        found=str(kind),
        todo="convert the column, or write Parquet",
        column=column,
    )


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_dictionary(kind):
        return replace_types(kind.value_type, _plain_type)
    return kind
