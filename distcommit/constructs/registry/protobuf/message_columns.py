"""Columns of Protobuf messages, read by ptars.

Some valid descriptors make ptars panic (editions, names that differ in case alone, look-alikes of well-known types), so
it gets a generated proto3 descriptor that reads the same bytes, with generated names and one copy of a message for each
occurrence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ptars
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from distcommit.constructs.registry.protobuf.message_parser import KNOWN_FIELDS, is_google_type, is_map
from distcommit.schemas.schema_size_limits import Expansion, UnusableSchemaError

_CONFIG = ptars.PtarsConfig(timestamp_unit="us", time_unit="us", duration_unit="us", enum_repr="string")
_PACKAGE, _FILE = "layout", "layout.proto"
_NO_VALUE = "value 0, which the enum does not have"
_F = FieldDescriptor
_Kind = tuple[int, str]
"""Protobuf type of a field, and full name of its message or enum; empty for other types."""


class Columns:
    """Reader of canonical messages of one type as columns, all of which may be null.

    `widths`: greatest number of columns by message type, without columns within its lists and maps.

    Raises:
        UnusableSchemaError: if a field has no column type.
        SchemaTooLargeError: if there are too many columns, or they are nested too deep.
    """

    def __init__(self, source: Descriptor) -> None:
        layout = _Layout()
        root = layout.message(source, "", frozenset())
        self._names, self._maps = layout.names, frozenset(layout.maps)
        self.widths: Mapping[str, int] = layout.widths
        self._handler = _handler(layout.file, root)
        self.schema: pa.Schema = pa.schema([self._field(item) for item in self._handler.schema()])

    def read(self, messages: pa.Array) -> pa.RecordBatch:
        """Return the columns of messages; raises ValueError if ptars can't read one."""
        if not len(self.schema):
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(messages), pa.struct([])))
        read = self._handler.array_to_record_batch(messages)
        columns = [_typed(array, column.type) for array, column in zip(read.columns, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _field(self, created: pa.Field) -> pa.Field:
        kind = self._type(created.type)
        if created.name in self._maps:
            kind = pa.map_(*(column.type for column in kind.value_type))
        return pa.field(self._names[created.name], kind)

    def _type(self, created: pa.DataType) -> pa.DataType:
        if pa.types.is_struct(created):
            return pa.struct([self._field(value) for value in created])
        if pa.types.is_list(created):
            return pa.list_(pa.field("item", self._type(created.value_type)))
        return created


def _typed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type.num_fields == 0:
        return array
    if pa.types.is_struct(kind):
        children = [_typed(array.field(number), kind.field(number).type) for number in range(kind.num_fields)]
    else:
        children = [_typed(array.values, kind.field(0).type)]
    own = array.buffers()[: 1 if pa.types.is_struct(kind) else 2]
    return pa.Array.from_buffers(kind, len(array), own, array.null_count, array.offset, children)


def _handler(file: descriptor_pb2.FileDescriptorProto, root: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for package in sorted({name.rpartition(".")[0] for name in KNOWN_FIELDS}):
        existing = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
        for full_name, fields in KNOWN_FIELDS.items():
            if full_name.rpartition(".")[0] == package:
                created = existing.message_type.add(name=full_name.rpartition(".")[2])
                for number, (name, kind) in enumerate(fields, 1):
                    created.field.add(name=name, number=number, type=kind, label=_F.LABEL_OPTIONAL)
        pool.Add(existing)
        file.dependency.append(existing.name)
    pool.Add(file)
    handlers = ptars.HandlerPool([pool.FindFileByName(file.name)], _CONFIG)
    return handlers.get_for_message(pool.FindMessageTypeByName(root))


@dataclass(slots=True)
class _Layout:
    """Generated descriptor. `names`: column names by generated field. `maps`: generated fields that are maps."""

    file: descriptor_pb2.FileDescriptorProto = field(
        default_factory=lambda: descriptor_pb2.FileDescriptorProto(name=_FILE, package=_PACKAGE, syntax="proto3")
    )
    widths: dict[str, int] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    maps: set[str] = field(default_factory=set)
    expansion: Expansion = field(default_factory=Expansion)
    _repeated: int = 0
    """Number of columns within lists and maps so far."""
    _enums: dict[str, str] = field(default_factory=dict)

    def message(self, source: Descriptor, path: str, within: frozenset[str]) -> str:
        """Add a message type, and return its generated name."""
        target = self.file.message_type.add(name=f"M{len(self.file.message_type)}")
        before = self.expansion.columns - self._repeated
        for item in source.fields:
            below = f"{path}.{item.name}" if path else item.name
            with self.expansion.column(below):
                self._field(target, item, below, within | {source.full_name})
        width = self.expansion.columns - self._repeated - before
        self.widths[source.full_name] = max(width, self.widths.get(source.full_name, 0))
        return f"{_PACKAGE}.{target.name}"

    def _field(self, holder: Any, source: FieldDescriptor, path: str, within: frozenset[str]) -> None:
        name = f"f{len(self.names)}"
        self.names[name] = source.name
        repeated, columns = self._repeated, self.expansion.columns
        if is_map(source):
            self.maps.add(name)
            entry = holder.nested_type.add(name=name.upper())  # ptars panics at maps of Google's own messages
            for number, part in enumerate(("key", "value"), 1):
                kind = self._kind(source.message_type.fields_by_number[number], path, within)
                self.names[f"{name}{part}"] = part
                _add(entry, f"{name}{part}", number, kind, _F.LABEL_OPTIONAL)
            kind = _F.TYPE_MESSAGE, f"{_PACKAGE}.{holder.name}.{entry.name}"
        else:
            kind = self._kind(source, path, within)
        if source.is_repeated:
            self._repeated = repeated + self.expansion.columns - columns
        target = _add(holder, name, source.number, kind, _F.LABEL_REPEATED if source.is_repeated else _F.LABEL_OPTIONAL)
        if source.has_presence and kind[0] != _F.TYPE_MESSAGE:
            target.proto3_optional = True
            target.oneof_index = len(holder.oneof_decl)
            holder.oneof_decl.add(name=f"o{name}")

    def _kind(self, source: FieldDescriptor, path: str, within: frozenset[str]) -> _Kind:
        below: Descriptor | None = source.message_type
        if source.type == _F.TYPE_GROUP:
            raise UnusableSchemaError(f"field {path} is a group (an encoding with delimiters), which can't be read")
        if source.enum_type is not None:
            return _F.TYPE_ENUM, self._enum(source.enum_type)
        if below is None:
            return source.type, ""
        if is_google_type(below):
            return _F.TYPE_MESSAGE, below.full_name
        if below.full_name in within or not below.fields:
            return _F.TYPE_BYTES, ""
        return _F.TYPE_MESSAGE, self.message(below, path, within)

    def _enum(self, source: EnumDescriptor) -> str:
        if source.full_name not in self._enums:
            holder = self.file.message_type.add(name=f"E{len(self._enums)}")
            target = holder.enum_type.add(name="E")
            by_number = source.values_by_number
            for number in [0, *sorted({*by_number} - {0})]:  # proto3 wants 0 in front; an alias has the number twice
                target.value.add(name=by_number[number].name if number in by_number else _NO_VALUE, number=number)
            self._enums[source.full_name] = f"{_PACKAGE}.{holder.name}.E"
        return self._enums[source.full_name]


def _add(holder: Any, name: str, number: int, kind: _Kind, label: int) -> Any:
    target = holder.field.add(name=name, number=number, type=kind[0], label=label)
    if kind[1]:
        target.type_name = f".{kind[1]}"
    return target
