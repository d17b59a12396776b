"""Schema resolution: decoders of data in a writer's schema into Arrow columns of that or of a reader's schema.

| Avro | Arrow |
| --- | --- |
| boolean, int, long, float, double, bytes, string, null | bool, int32, int64, float, double, binary, string, null |
| fixed, uuid in a fixed, duration | fixed-size binary |
| enum, uuid in a string | string |
| decimal | decimal128, from 39 digits on decimal256; with more than 76 digits an error |
| date; time-millis, -micros | date32; time32 (ms), time64 (us) |
| timestamp-millis, -micros, -nanos; local- | timestamp in UTC; without a zone |
| record, array, map | struct, list, map |
| union of null and a type | that type |
| union of several types | struct of `member0`, `member1`, ..., one for each type but null; all but one are null |
| a logical type that is unknown, or does not fit its type | ignored, as the specification requires |
| recursive types, records without fields, arrays of items that take no bytes | an error |

Items that take no bytes are refused, because a few bytes could claim any number of them.

Sources: Apache Avro 1.12 specification, Schema Resolution. Unions are mapped as Spark's from_avro maps them.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field

import fastavro
import numpy as np
import pyarrow as pa

from distcommit.avro import AvroSchema, column_decoders
from distcommit.avro.datum_ends import item_skip
from distcommit.avro.lockstep_decoding import Datums
from distcommit.schemas.schema_size_limits import MAX_FIXED_BYTES, Expansion, SchemaTooLargeError, UnusableSchemaError

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
_MAX_PRECISION = 76


@dataclass(slots=True)
class Resolution:
    """Builder of decoders that read the writer's types as the reader's types."""

    written_names: Mapping[str, AvroSchema]
    """Named types of the writer's schema, by full name."""
    read_names: Mapping[str, AvroSchema]
    """Named types of the reader's schema, by full name."""
    expansion: Expansion
    """Counter that limits the number of columns."""
    keeps_required: bool = False
    """Whether fields without a null branch become required columns. If not, all are nullable, so that records of
    several schemas fit one table."""
    open_records: list[str] = field(default_factory=list)
    """Names of the enclosing records, to detect recursion."""
    skipped: dict[str, column_decoders.Skipped] | None = None
    """Decoders of enclosing records by name, while a field that the reader lacks is built; otherwise None."""

    def column(self, writer: AvroSchema, reader: AvroSchema, path: str) -> column_decoders.Column:
        """Return the decoder that reads the type `writer` as the type `reader`.

        Args:
            path: path of the field, for messages; empty for the schema itself.

        Raises:
            UnusableSchemaError: if Arrow has no type for `reader`, or the two types are incompatible.
        """
        writer, reader = _definition(writer, self.written_names), _definition(reader, self.read_names)
        if isinstance(writer, list):
            return self._union(writer, reader, path)
        if isinstance(reader, list):
            return self._as_branch(writer, reader, path)
        with self.expansion.column(path):
            return self._column(writer, reader, path)

    def _column(self, writer: AvroSchema, reader: AvroSchema, path: str) -> column_decoders.Column:
        kind, required = _kind(writer), _kind(reader)
        if required in ("record", "error"):
            if reader["name"] in self.open_records:
                if self.skipped is not None:
                    return self.skipped[reader["name"]]
                raise UnusableSchemaError(f"{_at(path)} is of a type that contains itself ({reader['name']})")
            self.open_records.append(reader["name"])
            recursive = column_decoders.Skipped()
            if self.skipped is not None:
                self.skipped[reader["name"]] = recursive
            try:
                recursive.record = self._record(_of_kind(required, writer, path), reader, path)
            finally:
                self.open_records.pop()
            return recursive.record
        if required == "array":
            items = self.column(_of_kind(required, writer, path)["items"], reader["items"], f"{path}[]")
            if not items.min_bytes:
                raise UnusableSchemaError(f"{_at(path)} is an array of items that take no bytes")
            return column_decoders.Array(items, self._field("item", items), item_skip(items, has_key=False))
        if required == "map":
            values = self.column(_of_kind(required, writer, path)["values"], reader["values"], f"{path}{{}}")
            return column_decoders.Map(values, self._field("value", values), item_skip(values, has_key=True))
        if required == "enum":
            return _enum(_of_kind(required, writer, path), reader)
        return _primitive(writer, reader, kind, required, path)

    def _field(self, name: str, column: column_decoders.Column) -> pa.Field:
        return pa.field(name, column.type, nullable=not self.keeps_required or _may_be_null(column))

    def _record(self, writer: AvroSchema, reader: AvroSchema, path: str) -> column_decoders.Record:
        indices = {item["name"]: index for index, item in enumerate(reader["fields"])}
        for fields in (writer["fields"], reader["fields"]):
            if len({item["name"] for item in fields}) < len(fields):
                raise UnusableSchemaError(f"{_at(path)} has two fields of one name")
        if path and not indices:
            raise UnusableSchemaError(f"{_at(path)} is a record without fields")
        by_alias = {alias: item["name"] for item in reader["fields"] for alias in item.get("aliases", ())}
        arrow_fields: list[pa.Field] = [None] * len(indices)
        written: list[tuple[column_decoders.Column, int | None]] = []
        skipping = Resolution(self.written_names, self.written_names, self.expansion, skipped={})
        for item in writer["fields"]:
            name = item["name"] if item["name"] in indices else by_alias.get(item["name"], item["name"])
            index, below = indices.get(name), f"{path}.{name}" if path else name
            if index is None:
                written.append((skipping.column(item["type"], item["type"], below), None))
                continue
            column = self.column(item["type"], reader["fields"][index]["type"], below)
            written.append((column, index))
            arrow_fields[index] = self._field(name, column)
        constants = []
        for name, index in indices.items():
            if arrow_fields[index] is None:
                constant = self._default(reader["fields"][index], f"{path}.{name}" if path else name)
                constants.append((constant, index))
                arrow_fields[index] = pa.field(name, constant.type)
        return column_decoders.Record(written, arrow_fields, constants)

    def _default(self, reader: AvroSchema, path: str) -> column_decoders.Constant:
        """Return a missing field's default, encoded by fastavro and decoded as a column."""
        if "default" not in reader:
            raise UnusableSchemaError(f"{_at(path)} is not in the writer's schema, and the pinned one has no default")
        column = self._of_reader().column(reader["type"], reader["type"], path)
        value, encoded = reader["default"], io.BytesIO()
        kind = _definition(reader["type"], self.read_names)
        if _kind(kind[0] if isinstance(kind, list) else kind) in ("bytes", "fixed") and isinstance(value, str):
            value = value.encode("latin-1")
        try:
            fastavro.schemaless_writer(encoded, fastavro.parse_schema(reader["type"], dict(self.read_names)), value)
        except Exception as error:
            raise UnusableSchemaError(f"the default of {_at(path)} is not of its type: {error}") from error
        datum = np.frombuffer(encoded.getvalue(), np.uint8)
        return column_decoders.Constant(column.read(Datums.of(datum, np.array([0]), np.array([len(datum)])))[0])

    def _of_reader(self) -> Resolution:
        return Resolution(self.read_names, self.read_names, self.expansion, open_records=list(self.open_records))

    def _union(self, writer: AvroSchema, reader: AvroSchema, path: str) -> column_decoders.Column:
        if any(isinstance(_definition(item, self.written_names), list) for item in writer):
            raise UnusableSchemaError(f"{_at(path)} is a union within a union")
        if writer is reader:
            return self._own_union(writer, path)
        branches: list[column_decoders.Column | None] = []
        reasons: list[str] = []
        for branch in writer:
            try:
                branches.append(self.column(branch, reader, path))
            except SchemaTooLargeError:
                raise
            except UnusableSchemaError as error:
                branches.append(None)
                reasons.append(str(error))
        usable = [branch for branch in branches if branch is not None]
        if not usable:
            raise UnusableSchemaError(reasons[0] if reasons else f"{_at(path)} is a union without branches")
        types = {branch.type for branch in usable if not isinstance(branch, column_decoders.Nulls)}
        return column_decoders.Union(branches, types.pop() if types else pa.null())

    def _own_union(self, members: list[AvroSchema], path: str) -> column_decoders.Column:
        if not members:
            raise UnusableSchemaError(f"{_at(path)} is a union without branches")
        is_null = [_kind(_definition(item, self.read_names)) == "null" for item in members]
        built: list[column_decoders.Column] = [
            self.column(item, item, path) for item, null in zip(members, is_null, strict=True) if not null
        ]
        if len(built) > 1:
            kind = pa.struct([pa.field(f"member{index}", item.type) for index, item in enumerate(built)])
            built = [column_decoders.Member(item, index, kind) for index, item in enumerate(built)]
        members_left = iter(built)
        branches: list[column_decoders.Column] = [
            column_decoders.Nulls() if null else next(members_left) for null in is_null
        ]
        return column_decoders.Union(branches, built[0].type if built else pa.null())

    def _as_branch(self, writer: AvroSchema, reader: AvroSchema, path: str) -> column_decoders.Column:
        """Return the decoder into a branch of the reader's union: of the same type, or else the first compatible."""
        members = [_definition(item, self.read_names) for item in reader]
        if any(isinstance(item, list) for item in members):
            raise UnusableSchemaError(f"{_at(path)} is a union within a union")
        if _kind(writer) == "null" and any(_kind(item) == "null" for item in members):
            return column_decoders.Nulls()
        some = [item for item in members if _kind(item) != "null"]
        order = sorted(range(len(some)), key=lambda index: not _is_alike(writer, some[index]))
        reason = f"{_at(path)} is a union without a branch for {_kind(writer)}"
        for index in order:
            try:
                column = self.column(writer, some[index], path)
            except SchemaTooLargeError:
                raise
            except UnusableSchemaError as error:
                reason = str(error) if len(some) == 1 else reason
                if "contains itself" in str(error):
                    raise
                continue
            return column if len(some) == 1 else column_decoders.Member(column, index, self._members(some, path))
        raise UnusableSchemaError(reason)

    def _members(self, members: list[AvroSchema], path: str) -> pa.DataType:
        own = self._of_reader()
        types = [own.column(item, item, f"{path}.member{index}").type for index, item in enumerate(members)]
        return pa.struct([pa.field(f"member{index}", item) for index, item in enumerate(types)])


def _may_be_null(column: column_decoders.Column) -> bool:
    if isinstance(column, column_decoders.Union):
        return any(isinstance(branch, column_decoders.Nulls) for branch in column.branches)
    return isinstance(column, column_decoders.Nulls)


def _primitive(writer: AvroSchema, reader: AvroSchema, kind: str, required: str, path: str) -> column_decoders.Column:
    arrow_type = _arrow_type(reader, required, path)
    misfit = UnusableSchemaError(f"{_at(path)} is {_shown(writer)}, and the pinned schema has {_shown(reader)}")
    times = [_time_type(writer, kind), _time_type(reader, required)]
    if None not in times and times[0] != times[1]:  # the same number would be another time
        raise misfit
    if pa.types.is_decimal(arrow_type):
        if _arrow_type(writer, kind, path) != arrow_type:
            raise misfit
        return column_decoders.Decimals(arrow_type, writer["size"] if kind == "fixed" else None)
    if kind == "fixed" and required == "fixed" and writer["size"] == reader["size"]:
        return column_decoders.Fixed(arrow_type)
    if kind != required and required not in _PROMOTIONS.get(kind, ()):
        raise misfit
    match kind:
        case "null":
            return column_decoders.Nulls()
        case "boolean":
            return column_decoders.Booleans()
        case "int" | "long":
            return column_decoders.Numbers(arrow_type, kind == "int")
        case "float" | "double":
            return column_decoders.Reals(arrow_type, "<f4" if kind == "float" else "<f8")
        case "bytes" | "string":
            return column_decoders.Texts(arrow_type)
    raise misfit


def _arrow_type(schema: AvroSchema, kind: str, path: str) -> pa.DataType:
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        is_valid = isinstance(precision, int) and isinstance(scale, int)
        if not (is_valid and 0 < precision <= _MAX_PRECISION and 0 <= scale <= precision):
            raise UnusableSchemaError(f"{_at(path)} is a decimal of {precision} digits with scale {scale}")
        return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    if kind == "fixed":
        if schema["size"] <= 0:
            raise UnusableSchemaError(f"{_at(path)} is a fixed of {schema['size']} bytes")
        if schema["size"] > MAX_FIXED_BYTES:
            raise SchemaTooLargeError(
                f"{_at(path)} is a fixed of {schema['size']} bytes; it must have at most {MAX_FIXED_BYTES}"
            )
        return pa.binary(schema["size"])
    if kind not in _PRIMITIVES:
        raise UnusableSchemaError(f"{_at(path)} is of an unknown type: {_shown(schema)}")
    return _time_type(schema, kind) or _PRIMITIVES[kind]


def _time_type(schema: AvroSchema, kind: str) -> pa.DataType | None:
    return _LOGICAL.get((kind, str(schema.get("logicalType")))) if isinstance(schema, dict) else None


def _enum(writer: AvroSchema, reader: AvroSchema) -> column_decoders.Symbols:
    default = reader.get("default")
    return column_decoders.Symbols(tuple(item if item in reader["symbols"] else default for item in writer["symbols"]))


def _definition(schema: AvroSchema, named: Mapping[str, AvroSchema]) -> AvroSchema:
    if isinstance(schema, str) and schema not in _PRIMITIVES:
        return named[schema]
    if isinstance(schema, dict) and isinstance(schema["type"], dict | list):
        return _definition(schema["type"], named)
    return schema


def _kind(schema: AvroSchema) -> str:
    return str(schema["type"] if isinstance(schema, dict) else schema)


def _of_kind(required: str, writer: AvroSchema, path: str) -> AvroSchema:
    if _kind(writer) != required:
        raise UnusableSchemaError(f"{_at(path)} is {_shown(writer)}, and the pinned schema has {required}")
    return writer


def _is_alike(one: AvroSchema, other: AvroSchema) -> bool:
    logical = [item.get("logicalType") if isinstance(item, dict) else None for item in (one, other)]
    names = [item.get("name") if isinstance(item, dict) else None for item in (one, other)]
    return _kind(one) == _kind(other) and names[0] == names[1] and logical[0] == logical[1]


def _shown(schema: AvroSchema) -> str:
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    return f"{_kind(schema)} ({logical})" if logical else _kind(schema)


def _at(path: str) -> str:
    return f"field {path}" if path else "the schema"
