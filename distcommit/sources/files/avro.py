"""Avro container files as Arrow batches, one for each block.

| Avro | Arrow |
| --- | --- |
| null, boolean, int, long, float, double, bytes, string | null, bool, int32, int64, float, double, binary, string |
| fixed | fixed-size binary |
| enum, uuid | string |
| decimal; date; time-millis, -micros | decimal128; date32; time32 (ms), time64 (us) |
| timestamp-millis, -micros; local- | timestamp in UTC; without a zone |
| record, array, map | struct, list, map |
| union of null and a type | that type |

Unions of several types, and records within themselves, have no column.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO
from uuid import UUID

import fastavro
import pyarrow as pa

_PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}


def read_avro(stream: BinaryIO) -> Iterator[pa.RecordBatch]:
    """The records of a file.

    Raises:
        ValueError: if its schema has no columns, or it is no Avro file.
    """
    blocks = fastavro.block_reader(stream)
    written = json.loads(blocks.metadata["avro.schema"])
    if not isinstance(written, dict) or written.get("type") != "record":
        raise ValueError("its schema is no record")
    has_uuids = '"uuid"' in blocks.metadata["avro.schema"]
    schema = pa.schema(list(_Types().of(fastavro.parse_schema(written))))
    for number, block in enumerate(blocks):
        try:
            yield pa.RecordBatch.from_pylist(_with_texts(list(block)) if has_uuids else list(block), schema)
        except Exception as error:
            raise ValueError(f"block {number}: {type(error).__name__}: {error}") from error


def _with_texts(value: Any) -> Any:
    """The same, with texts where fastavro makes Python's UUIDs."""
    match value:
        case UUID():
            return str(value)
        case dict():
            return {name: _with_texts(each) for name, each in value.items()}
        case list():
            return [_with_texts(each) for each in value]
    return value


@dataclass(slots=True)
class _Types:
    """Types of a parsed schema; `named`: those that have a name, once they are whole."""

    named: dict[str, pa.DataType] = field(default_factory=dict)

    def of(self, schema: Any) -> pa.DataType:
        """Raises ValueError if there is none."""
        if isinstance(schema, list):
            kinds = [each for each in schema if each != "null"]
            if len(kinds) == 1:
                return self.of(kinds[0])
            raise ValueError(f"a union of several types: {json.dumps(schema):.200}")
        if isinstance(schema, str):
            if found := _PLAIN.get(schema) or self.named.get(schema):
                return found
            raise ValueError(f"a record within itself: {schema}")
        found = self._of(schema, schema["type"], schema.get("logicalType"))
        if "name" in schema:
            self.named[schema["name"]] = found
        return found

    def _of(self, schema: Mapping[str, Any], kind: Any, logical: str | None) -> pa.DataType:
        if logical == "decimal":
            return pa.decimal128(schema["precision"], schema.get("scale", 0))
        match kind:
            case "record":
                return pa.struct([(each["name"], self.of(each["type"])) for each in schema["fields"]])
            case "array":
                return pa.list_(self.of(schema["items"]))
            case "map":
                return pa.map_(pa.string(), self.of(schema["values"]))
            case "fixed":
                return pa.binary(schema["size"])
            case "enum":
                return pa.string()
            case str() if found := _LOGICAL.get((kind, logical or "")):
                return found
        return self.of(kind)
