"""Avro container files as Arrow batches of at most some thousand records, each of one block.

| Avro | Arrow |
| --- | --- |
| null, boolean, int, long, float, double, bytes, string | null, bool, int32, int64, float, double, binary, string |
| fixed | fixed-size binary |
| enum, uuid | string |
| decimal; date; time-millis, -micros | decimal128; date32; time32 (ms), time64 (us) |
| timestamp-millis, -micros; local- | timestamp in UTC; without a zone |
| record, array, map | struct, list, map |
| union of null and a type | that type |

Unions of several types, and records within themselves, have no column. Nor have arrays of what takes no bytes: some
bytes could claim any number of items.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, BinaryIO
from uuid import UUID

import fastavro
import pyarrow as pa

from distcommit.core.support.nesting import MAX_COLUMNS, MAX_FIXED_BYTES, fixed_bytes
from distcommit.sources.files.avro_blocks import as_file, blocks, read_header

_BATCH_ROWS = 8192
_MOST_EMPTY = 65_536
"""By how many a block may have more records than bytes: records without a value take none."""
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
    header = read_header(stream)
    try:
        written = json.loads(header.schema)
        parsed = fastavro.parse_schema(written)
    except (RecursionError, KeyError, TypeError, AttributeError, fastavro.schema.SchemaParseException) as error:
        raise ValueError(f"its schema is no Avro schema: {type(error).__name__}: {error}") from error
    if not isinstance(written, dict) or written.get("type") != "record":
        raise ValueError("its schema is no record")
    has_uuids, schema = '"uuid"' in header.schema, pa.schema(list(_Types().of(parsed)))
    if (size := fixed_bytes(schema)) > MAX_FIXED_BYTES:
        raise ValueError(f"its fixed types have {size} bytes together, and at most {MAX_FIXED_BYTES} are allowed")
    begin = header.write()
    for number, (count, plain) in enumerate(blocks(stream, header)):
        if count > len(plain) + _MOST_EMPTY:
            raise ValueError(
                f"block {number} claims {count} records in {len(plain)} bytes, and at most {_MOST_EMPTY} more records"
                " than bytes are allowed"
            )
        try:
            [block] = fastavro.block_reader(as_file(begin, header.sync, count, plain))
            records = iter(block)
            while some := list(islice(records, _BATCH_ROWS)):
                yield pa.RecordBatch.from_pylist(_with_texts(some) if has_uuids else some, schema)
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
    """Types of a parsed schema.

    Attributes:
        named: those that have a name, once they are whole.
        columns: how many columns each type has, itself and those within it.
    """

    named: dict[str, pa.DataType] = field(default_factory=dict)
    columns: dict[pa.DataType, int] = field(default_factory=dict)

    def of(self, schema: Any) -> pa.DataType:
        """Return the type of a schema. Raises ValueError if there is none, or it has too many columns."""
        found = self._type(schema)
        if pa.types.is_nested(found) and found not in self.columns:
            within = [found.field(number).type for number in range(found.num_fields)]
            self.columns[found] = 1 + sum(self.columns.get(each, 1) for each in within)
            if self.columns[found] > MAX_COLUMNS:
                raise ValueError(f"its schema expands to more than {MAX_COLUMNS} columns, the most that are allowed")
        return found

    def _type(self, schema: Any) -> pa.DataType:
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
                items = self.of(schema["items"])
                if _takes_no_bytes(items):
                    raise ValueError("an array of what takes no bytes")
                return pa.list_(items)
            case "map":
                return pa.map_(pa.string(), self.of(schema["values"]))
            case "fixed":
                if not 0 < schema["size"] < 1 << 31:
                    raise ValueError(f"a fixed of {schema['size']} bytes")
                return pa.binary(schema["size"])
            case "enum":
                return pa.string()
            case str() if found := _LOGICAL.get((kind, logical or "")):
                return found
        return self.of(kind)


def _takes_no_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_takes_no_bytes(kind.field(number).type) for number in range(kind.num_fields))
    return bool(pa.types.is_null(kind))
