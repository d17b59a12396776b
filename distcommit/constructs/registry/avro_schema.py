"""Avro schemas as Arrow columns: how a writer's schema is read, as it is or as a reader's schema wants it.

| Avro | Arrow |
| --- | --- |
| boolean, int, long, float, double, bytes, string, null | bool, int32, int64, float, double, binary, string, null |
| fixed, uuid in a fixed, duration | fixed-size binary |
| enum, uuid in a string | string |
| decimal | decimal128, from 39 digits on decimal256; more than 76: none |
| date; time-millis, -micros | date32; time32 (ms), time64 (us) |
| timestamp-millis, -micros, -nanos; local- | timestamp in UTC; without a zone |
| record, array, map | struct, list, map |
| union of null and a type | that type |
| union of several types | struct of `member0`, `member1`, ...: for each that is not null, all but one null |
| a logical type that is not known, or does not fit its type | as if it were not there, as Avro says |
| recursive types; records without fields, and arrays of what takes no bytes | none: an error |

Whatever it is may be null, also within others: so what another schema of the topic does not have can be read beside it.

Sources: Apache Avro 1.12 specification, Schema Resolution; the mapping of unions is that of Spark's from_avro.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from distcommit.constructs.registry import avro_columns as columns
from distcommit.constructs.registry.avro_datums import REASONS, Datums, Wrong
from distcommit.constructs.registry.client import UnusableSchemaError
from distcommit.constructs.registry.schema_bounds import Expansion, SchemaTooLargeError
from distcommit.core.support.nesting import MAX_FIXED_BYTES, fixed_bytes

AvroSchema = Any
"""An Avro schema in its JSON form: a name, a union (list), or a complex type (dict)."""

_PRIMITIVES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    **{
        ("long", f"{local}timestamp-{name}"): pa.timestamp(unit, zone)
        for name, unit in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
        for local, zone in (("", "UTC"), ("local-", None))
    },
}
_PROMOTIONS = {
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "float": ("float", "double"),
    "double": ("double",),
    "string": ("string", "bytes"),
    "bytes": ("bytes", "string"),
}


@dataclass(frozen=True, slots=True)
class ParsedSchema:
    """A schema whose names are full, and the types that it names."""

    root: AvroSchema
    named: Mapping[str, AvroSchema]


def parse(text: str, referenced: list[str]) -> ParsedSchema:
    """A schema from its JSON text, and those that it refers to, each after those that it needs.

    Raises:
        UnusableSchemaError: if it is none.
    """
    named: dict[str, AvroSchema] = {}
    try:
        for each in referenced:
            fastavro.parse_schema(json.loads(each), named)
        return ParsedSchema(fastavro.parse_schema(json.loads(text), named), named)
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        fastavro.schema.SchemaParseException,
    ) as error:
        raise UnusableSchemaError(f"it is no Avro schema: {type(error).__name__}: {error}") from error


class AvroReader:
    """Reads datums of one schema.

    Args:
        writer: the schema that they were written with.
        reader: the one that they are read as; that of the writer, if None.
        name: of the column, if the schema is no record.

    Raises:
        UnusableSchemaError: if there is no column for a type, or the two do not fit.
    """

    def __init__(self, writer: ParsedSchema, reader: ParsedSchema | None, name: str) -> None:
        reader = reader or writer
        found = _Resolution(writer.named, reader.named, Expansion()).column(writer.root, reader.root, "")
        if isinstance(found, columns.Record):
            self._record = found
        else:
            self._record = columns.Record([(found, 0)], [pa.field(name, found.type)], [])
        self.schema = pa.schema(self._record.fields)
        if (size := fixed_bytes(self.schema)) > MAX_FIXED_BYTES:
            raise SchemaTooLargeError(
                f"its fixed types have {size} bytes together, and at most {MAX_FIXED_BYTES} are allowed"
            )

    def read(self, datums: Datums) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Records, one for each datum, and what is wrong with those that could not be read, by number; of these,
        what stands among the records means nothing."""
        found = self._record.columns(datums)
        datums.finish()
        wrong = {int(row): REASONS[Wrong(datums.wrong[row])] for row in np.flatnonzero(datums.wrong)}
        if not found:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(datums), pa.struct([]))), wrong
        return pa.RecordBatch.from_arrays(found, schema=self.schema), wrong


@dataclass(slots=True)
class _Resolution:
    """Puts columns together for a writer's type and the reader's, and counts them."""

    written_names: Mapping[str, AvroSchema]
    read_names: Mapping[str, AvroSchema]
    expansion: Expansion
    within: list[str] = field(default_factory=list)
    skipped: dict[str, columns.Skipped] | None = None
    """Of what is walked and not made: the records that it stands in."""

    def column(self, writer: AvroSchema, reader: AvroSchema, path: str) -> columns.Column:
        """Return what reads a type. Raises UnusableSchemaError."""
        with self.expansion.column(path):
            return self._column(writer, reader, path)

    def _column(self, writer: AvroSchema, reader: AvroSchema, path: str) -> columns.Column:
        writer, reader = _named(writer, self.written_names), _named(reader, self.read_names)
        if isinstance(writer, list):
            return self._union(writer, reader, path)
        if isinstance(reader, list):
            return self._as_branch(writer, reader, path)
        kind, wanted = _kind(writer), _kind(reader)
        if wanted in ("record", "error"):
            if reader["name"] in self.within:
                if self.skipped is not None:
                    return self.skipped[reader["name"]]
                raise UnusableSchemaError(f"{_at(path)} is of a type that holds itself ({reader['name']})")
            self.within.append(reader["name"])
            again = columns.Skipped()
            if self.skipped is not None:
                self.skipped[reader["name"]] = again
            try:
                again.record = self._record(_same(kind, wanted, writer, path), reader, path)
            finally:
                self.within.pop()
            return again.record
        if wanted == "array":
            items = self.column(_same(kind, wanted, writer, path)["items"], reader["items"], f"{path}[]")
            return columns.Array(_item(items, path), pa.field("item", items.type))
        if wanted == "map":
            values = self.column(_same(kind, wanted, writer, path)["values"], reader["values"], f"{path}{{}}")
            return columns.Map(values, pa.field("value", values.type))
        if wanted == "enum":
            return _enum(_same(kind, wanted, writer, path), reader)
        return _plain(writer, reader, kind, wanted, path)

    def _record(self, writer: AvroSchema, reader: AvroSchema, path: str) -> columns.Record:
        indices = {each["name"]: index for index, each in enumerate(reader["fields"])}
        for fields in (writer["fields"], reader["fields"]):
            if len({each["name"] for each in fields}) < len(fields):
                raise UnusableSchemaError(f"{_at(path)} has two fields of one name")
        if path and not indices:
            raise UnusableSchemaError(f"{_at(path)} is a record without fields")
        by_alias = {alias: each["name"] for each in reader["fields"] for alias in each.get("aliases", ())}
        made: list[pa.Field] = [None] * len(indices)
        written: list[tuple[columns.Column, int | None]] = []
        own = _Resolution(self.written_names, self.written_names, self.expansion, [], {})
        for each in writer["fields"]:
            name = each["name"] if each["name"] in indices else by_alias.get(each["name"], each["name"])
            index, below = indices.get(name), f"{path}.{name}" if path else name
            if index is None:
                written.append((own.column(each["type"], each["type"], below), None))
                continue
            wanted = reader["fields"][index]["type"]
            column = self.column(each["type"], wanted, below)
            written.append((column, index))
            made[index] = pa.field(name, column.type)
        constants = []
        for name, index in indices.items():
            if made[index] is None:
                constant = self._default(reader["fields"][index], f"{path}.{name}" if path else name)
                constants.append((constant, index))
                made[index] = pa.field(name, constant.type)
        return columns.Record(written, made, constants)

    def _default(self, reader: AvroSchema, path: str) -> columns.Constant:
        """The default of a field, read from the datum that it would be."""
        if "default" not in reader:
            raise UnusableSchemaError(f"{_at(path)} is not in the writer's schema, and the pinned one has no default")
        own = _Resolution(self.read_names, self.read_names, self.expansion, list(self.within))
        same = own.column(reader["type"], reader["type"], path)
        value, written = reader["default"], io.BytesIO()
        kind = _named(reader["type"], self.read_names)
        if _kind(kind[0] if isinstance(kind, list) else kind) in ("bytes", "fixed") and isinstance(value, str):
            value = value.encode("latin-1")
        try:
            fastavro.schemaless_writer(written, fastavro.parse_schema(reader["type"], dict(self.read_names)), value)
        except Exception as error:
            raise UnusableSchemaError(f"the default of {_at(path)} is not of its type: {error}") from error
        datum = np.frombuffer(written.getvalue(), np.uint8)
        datums = Datums.of(datum, np.array([0]), np.array([len(datum)]))
        return columns.Constant(same.read(datums)[0])

    def _union(self, writer: AvroSchema, reader: AvroSchema, path: str) -> columns.Column:
        if writer is reader:
            return self._own_union(writer, path)
        branches: list[columns.Column | None] = []
        reasons: list[str] = []
        for branch in writer:
            try:
                whole = isinstance(reader, list)
                made = self._as_branch(branch, reader, path) if whole else self.column(branch, reader, path)
                branches.append(made)
            except SchemaTooLargeError:
                raise
            except UnusableSchemaError as error:
                branches.append(None)
                reasons.append(str(error))
        types = {found.type for found in branches if found is not None and not isinstance(found, columns.Nulls)}
        usable = [found for found in branches if found is not None]
        if not usable:
            raise UnusableSchemaError(reasons[0] if reasons else f"{_at(path)} is a union of nothing")
        return columns.Union(branches, types.pop() if types else pa.null())

    def _own_union(self, members: list[AvroSchema], path: str) -> columns.Column:
        """A union that is read as it was written: each branch is expanded once."""
        made = [self.column(each, each, path) for each in members if _kind(_named(each, self.read_names)) != "null"]
        if not members:
            raise UnusableSchemaError(f"{_at(path)} is a union of nothing")
        kind = pa.null() if not made else made[0].type
        if len(made) > 1:
            kind = pa.struct([pa.field(f"member{index}", each.type) for index, each in enumerate(made)])
        some = iter(enumerate(made))
        branches: list[columns.Column] = []
        for each in members:
            if _kind(_named(each, self.read_names)) == "null":
                branches.append(columns.Nulls())
                continue
            index, column = next(some)
            branches.append(columns.Member(column, index, kind) if len(made) > 1 else column)
        return columns.Union(branches, kind)

    def _as_branch(self, writer: AvroSchema, reader: AvroSchema, path: str) -> columns.Column:
        """A type that is read as a union: as its branch of the same kind, else as the first that takes it."""
        writer = _named(writer, self.written_names)
        members = [_named(each, self.read_names) for each in reader]
        if _kind(writer) == "null" and any(_kind(each) == "null" for each in members):
            return columns.Nulls()
        some = [each for each in members if _kind(each) != "null"]
        order = sorted(range(len(some)), key=lambda index: not _alike(writer, some[index]))
        reason = f"{_at(path)} is a union without a branch for {_kind(writer)}"
        for index in order:
            try:
                found = self.column(writer, some[index], path)
            except SchemaTooLargeError:
                raise
            except UnusableSchemaError as error:
                reason = str(error) if len(some) == 1 else reason
                if "holds itself" in str(error):
                    raise
                continue
            return found if len(some) == 1 else columns.Member(found, index, self._members(some, path))
        raise UnusableSchemaError(reason)

    def _members(self, members: list[AvroSchema], path: str) -> pa.DataType:
        same = _Resolution(self.read_names, self.read_names, self.expansion, list(self.within))
        types = [same.column(each, each, f"{path}.member{index}").type for index, each in enumerate(members)]
        return pa.struct([pa.field(f"member{index}", found) for index, found in enumerate(types)])


def _plain(writer: AvroSchema, reader: AvroSchema, kind: str, wanted: str, path: str) -> columns.Column:
    """A type that holds no others."""
    found = _arrow_type(reader, wanted, path)
    counts = [_time_type(writer, kind), _time_type(reader, wanted)]
    if None not in counts and counts[0] != counts[1]:  # the same number would be another time
        raise UnusableSchemaError(f"{_at(path)} is {_shown(writer)}, and the pinned schema has {_shown(reader)}")
    if pa.types.is_decimal(found):
        if _arrow_type(writer, kind, path) != found:
            raise UnusableSchemaError(f"{_at(path)} is {_shown(writer)}, and the pinned schema has {_shown(reader)}")
        return columns.Decimals(found, writer["size"] if kind == "fixed" else None)
    if kind == "fixed" and wanted == "fixed" and writer["size"] == reader["size"]:
        return columns.Fixed(found)
    if kind != wanted and wanted not in _PROMOTIONS.get(kind, ()):
        raise UnusableSchemaError(f"{_at(path)} is {_shown(writer)}, and the pinned schema has {_shown(reader)}")
    match kind:
        case "null":
            return columns.Nulls()
        case "boolean":
            return columns.Booleans()
        case "int" | "long":
            return columns.Numbers(found, kind == "int")
        case "float" | "double":
            return columns.Reals(found, "<f4" if kind == "float" else "<f8")
        case "bytes" | "string":
            return columns.Texts(found)
    raise UnusableSchemaError(f"{_at(path)} is {_shown(writer)}, and the pinned schema has {_shown(reader)}")


def _arrow_type(schema: AvroSchema, kind: str, path: str) -> pa.DataType:
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if not (
            isinstance(precision, int) and isinstance(scale, int) and 0 < precision <= 76 and 0 <= scale <= precision
        ):
            raise UnusableSchemaError(
                f"{_at(path)} is a decimal of {precision} digits, {scale} of them behind the point"
            )
        return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    if kind == "fixed":
        if not schema["size"]:
            raise UnusableSchemaError(f"{_at(path)} is a fixed of no bytes")
        if schema["size"] > MAX_FIXED_BYTES:
            raise SchemaTooLargeError(
                f"{_at(path)} is a fixed of {schema['size']} bytes, and at most {MAX_FIXED_BYTES} are allowed"
            )
        return pa.binary(schema["size"])
    if kind not in _PRIMITIVES:
        raise UnusableSchemaError(f"{_at(path)} is of a type that is not known: {_shown(schema)}")
    return _time_type(schema, kind) or _PRIMITIVES[kind]


def _time_type(schema: AvroSchema, kind: str) -> pa.DataType | None:
    """The type of a date or a time; None for all else, such as a number that says nothing of the kind."""
    return _LOGICAL.get((kind, str(schema.get("logicalType")))) if isinstance(schema, dict) else None


def _enum(writer: AvroSchema, reader: AvroSchema) -> columns.Symbols:
    default = reader.get("default")
    return columns.Symbols(tuple(each if each in reader["symbols"] else default for each in writer["symbols"]))


def _item(items: columns.Column, path: str) -> columns.Column:
    if not items.least_bytes:
        raise UnusableSchemaError(f"{_at(path)} is an array of what takes no bytes")
    return items


def _named(schema: AvroSchema, named: Mapping[str, AvroSchema]) -> AvroSchema:
    if isinstance(schema, str) and schema not in _PRIMITIVES:
        return named[schema]
    if isinstance(schema, dict) and isinstance(schema["type"], dict | list):
        return _named(schema["type"], named)
    return schema


def _kind(schema: AvroSchema) -> str:
    return str(schema["type"] if isinstance(schema, dict) else schema)


def _same(kind: str, wanted: str, writer: AvroSchema, path: str) -> AvroSchema:
    if kind != wanted:
        raise UnusableSchemaError(f"{_at(path)} is {_shown(writer)}, and the pinned schema has {wanted}")
    return writer


def _alike(one: AvroSchema, other: AvroSchema) -> bool:
    logical = [each.get("logicalType") if isinstance(each, dict) else None for each in (one, other)]
    names = [each.get("name") if isinstance(each, dict) else None for each in (one, other)]
    return _kind(one) == _kind(other) and names[0] == names[1] and logical[0] == logical[1]


def _shown(schema: AvroSchema) -> str:
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    return f"{_kind(schema)} ({logical})" if logical else _kind(schema)


def _at(path: str) -> str:
    return f"field {path}" if path else "the schema"
