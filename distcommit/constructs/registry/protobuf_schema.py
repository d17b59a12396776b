"""Protobuf schemas of a registry: descriptors of their messages, and what is read of these.

A registry gives what was registered: a `.proto` file's text, which protoc (of grpcio-tools) compiles, or a descriptor
in Base64, as confluent-kafka for Python registers it.
"""

from __future__ import annotations

import base64
import binascii
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import ptars
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from numpy.typing import NDArray

from distcommit.constructs.by_halves import by_halves
from distcommit.constructs.evolution import nullable
from distcommit.constructs.registry.client import FoundSchema, UnusableSchemaError
from distcommit.constructs.registry.converter import Decoded
from distcommit.constructs.registry.wire import Framed
from distcommit.model.errors import ConfigurationError

_CONFIG = ptars.PtarsConfig(timestamp_unit="us", time_unit="us", duration_unit="us", enum_repr="string")
_MAIN = "registered.proto"
_PROTOC_S = 60.0
_FIRST = (0,)
_MOST_BYTES = 100
"""More than the indexes of a message take."""
Indexes = tuple[int, ...]


def file_of(found: FoundSchema) -> FileDescriptor:
    """The schema's file, with all that it imports.

    Raises:
        UnusableSchemaError: if it can't be compiled.
        ConfigurationError: if the compiler is needed and not installed.
    """
    texts = {**dict(found.references), _MAIN: found.text}
    try:
        files = [_decoded(name, text) for name, text in texts.items()]
    except (ValueError, message.DecodeError):
        files = list(_compiled(texts).file)
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()
    try:
        for each in files:
            for name in each.dependency:
                _add_known(pool, name, added | {file.name for file in files})
            pool.Add(each)
            added.add(each.name)
        return pool.FindFileByName(_MAIN)
    except (TypeError, KeyError) as error:
        raise UnusableSchemaError(f"its descriptor is not complete: {error}") from error


def _decoded(name: str, text: str) -> descriptor_pb2.FileDescriptorProto:
    try:
        made = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except binascii.Error as error:
        raise ValueError(str(error)) from error
    made.name = name
    return made


def _add_known(pool: Any, name: str, added: set[str]) -> None:
    """A file of Google's own that descriptors in Base64 name and do not hold."""
    if name in added:
        return
    known = descriptor_pb2.FileDescriptorProto()
    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    if not name.startswith("google/protobuf/") or find_spec(module) is None:
        raise KeyError(name)
    __import__(module)
    file = descriptor_pool.Default().FindFileByName(name)
    for each in file.dependencies:
        _add_known(pool, each.name, added)
    file.CopyToProto(known)
    pool.Add(known)
    added.add(name)


def _compiled(texts: dict[str, str]) -> descriptor_pb2.FileDescriptorSet:
    tools = find_spec("grpc_tools")
    if tools is None or tools.origin is None:
        raise ConfigurationError(
            "the compiler of Protobuf schemas is not installed",
            expected="distcommit[registry], on the driver's machine and on each executor's",
            found="no grpcio-tools",
            todo="pip install 'distcommit[registry]'",
        )
    with tempfile.TemporaryDirectory(prefix="distcommit-proto-") as folder:
        for name, text in texts.items():
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                raise UnusableSchemaError(f"it imports a file of a name that is none: {name!r:.100}")
            Path(folder, path).parent.mkdir(parents=True, exist_ok=True)
            Path(folder, path).write_text(text, encoding="utf-8")
        made = Path(folder, ".descriptors")
        includes = [f"-I{folder}", f"-I{Path(tools.origin).parent / '_proto'}"]
        command = [sys.executable, "-m", "grpc_tools.protoc", *includes, "--include_imports"]
        command += [f"--descriptor_set_out={made}", _MAIN]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PROTOC_S, cwd=folder)
        except subprocess.TimeoutExpired as error:
            raise UnusableSchemaError(f"protoc has not compiled it within {_PROTOC_S:g} s") from error
        if done.returncode:
            raise UnusableSchemaError(f"protoc refuses it: {done.stderr.strip()[:500]}")
        return descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes())


def message_at(file: FileDescriptor, indexes: Indexes) -> Descriptor:
    """The message that the wire format's indexes name: one of the file, one within that, ...

    Raises:
        UnusableSchemaError: if there is none.
    """
    messages = list(file.message_types_by_name.values())
    for depth, index in enumerate(indexes):
        if index >= len(messages):
            raise UnusableSchemaError(f"it has no message {'.'.join(map(str, indexes[: depth + 1]))}")
        found = messages[index]
        messages = list(found.nested_types)
    return found


def check_readable(writer: Descriptor, reader: Descriptor, seen: frozenset[str] = frozenset()) -> None:
    """That messages of one type can be read as another: a field that both have by number has to be of one kind.

    Raises:
        UnusableSchemaError: else, naming the field.
    """
    if writer.full_name in seen:
        return
    for number, field in reader.fields_by_number.items():
        written = writer.fields_by_number.get(number)
        if written is None:
            continue
        if _kind(written) != _kind(field) or written.is_repeated != field.is_repeated:
            raise UnusableSchemaError(
                f"field {number} ({writer.full_name}.{written.name}) is of another kind than {field.name} of the pinned"
            )
        if field.message_type is not None:
            check_readable(written.message_type, field.message_type, seen | {writer.full_name})


_F = FieldDescriptor
_KINDS = [
    {_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_UINT32, _F.TYPE_UINT64, _F.TYPE_BOOL, _F.TYPE_ENUM},
    {_F.TYPE_SINT32, _F.TYPE_SINT64},
    {_F.TYPE_FIXED32, _F.TYPE_SFIXED32},
    {_F.TYPE_FIXED64, _F.TYPE_SFIXED64},
    {_F.TYPE_STRING, _F.TYPE_BYTES},
]


def _kind(field: FieldDescriptor) -> int:
    """A number that fields share whose bytes mean the same to Protobuf (its rules of updating a message type)."""
    return next((-number for number, kinds in enumerate(_KINDS, 1) if field.type in kinds), int(field.type))


class ProtobufDecoder:
    """Decodes messages of a file, each as the type that it names; or all as one type, if a reader's is given.

    Raises:
        UnusableSchemaError: if the file does not have such a message, or the two do not fit.
    """

    def __init__(self, file: FileDescriptor, reader: FileDescriptor | None) -> None:
        self._file, self._reader = file, reader
        self._handlers: dict[Indexes, Any | str] = {}
        first = self._handler(_FIRST)
        if isinstance(first, str):
            raise UnusableSchemaError(first)
        self.schema = nullable(first.schema())

    def decode(self, framed: Framed) -> Iterator[Decoded]:
        wrong: dict[int, str] = {}
        for indexes, (numbers, begin) in _by_type(framed, wrong).items():
            handler = self._handler(indexes)
            if isinstance(handler, str):
                wrong |= dict.fromkeys(numbers.tolist(), handler)
            else:
                of_type = replace(framed, begin=begin, end=framed.end[numbers], rows=framed.rows[numbers])
                yield _read(handler, of_type.messages(), numbers)
        if wrong:
            yield Decoded(pa.RecordBatch.from_pylist([], schema=self.schema), np.empty(0, np.int64), wrong)

    def _handler(self, indexes: Indexes) -> Any | str:
        if indexes not in self._handlers:
            try:
                found = message_at(self._file, indexes)
                if self._reader is not None:
                    reader = message_at(self._reader, indexes)
                    check_readable(found, reader)
                    found = reader
                self._handlers[indexes] = ptars.HandlerPool([found.file], _CONFIG).get_for_message(found)
            except UnusableSchemaError as error:
                self._handlers[indexes] = str(error)
        return self._handlers[indexes]


def _read(handler: Any, messages: pa.Array, numbers: NDArray[np.int64]) -> Decoded:
    schema = nullable(handler.schema())

    def make(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, None]:
        made = handler.array_to_record_batch(batch.column(0))
        columns = [column.cast(each.type) for column, each in zip(made.columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=schema), None

    bodies = pa.RecordBatch.from_arrays([messages], ["body"])
    found = by_halves(bodies, make, schema, ValueError, lambda error, _: str(error))
    rows = None if found.rows is None else found.rows.to_numpy()
    wrong = {int(numbers[row]): f"it is no message of its type: {reason}" for row, reason in found.rejected.items()}
    return Decoded(found.records, numbers if rows is None else numbers[rows], wrong)


def _by_type(framed: Framed, wrong: dict[int, str]) -> dict[Indexes, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The numbers of messages by the indexes before them, and where each begins behind these."""
    begin = framed.begin.copy()
    has_first = framed.end > begin
    is_first = has_first & (framed.data[np.where(has_first, begin, 0)] == 0)
    begin[is_first] += 1
    found: dict[Indexes, list[int]] = {}
    for number in np.flatnonzero(~is_first).tolist():
        offset = int(begin[number])
        try:
            indexes, size = _indexes(framed.data[offset : min(int(framed.end[number]), offset + _MOST_BYTES)].tobytes())
        except ValueError as error:
            wrong[number] = str(error)
            continue
        found.setdefault(indexes, []).append(number)
        begin[number] += size
    types = {indexes: np.array(numbers) for indexes, numbers in found.items()}
    if is_first.any():
        types[_FIRST] = np.union1d(np.flatnonzero(is_first), types.get(_FIRST, np.empty(0, np.int64)))
    return {indexes: (numbers, begin[numbers]) for indexes, numbers in types.items()}


def _indexes(body: bytes) -> tuple[Indexes, int]:
    """The indexes before a message, and how many bytes they take.

    Raises:
        ValueError: if they are none.
    """
    values: list[int] = []
    offset, wanted = 0, 1
    while len(values) < wanted:
        value = shift = 0
        while True:
            if offset >= len(body) or shift > 28:
                raise ValueError("its message indexes are none")
            byte = body[offset]
            offset, value, shift = offset + 1, value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                break
        values.append(value >> 1 ^ -(value & 1))
        wanted = 1 + values[0]
        if min(values) < 0 or wanted == 1:
            raise ValueError("its message indexes are none")
    return tuple(values[1:]), offset


def schema_of(found: FoundSchema, reader: FoundSchema | None) -> ProtobufDecoder:
    """The decoder for a schema, and the reader's. Raises as `ProtobufDecoder`."""
    same = reader is None or reader.schema_id == found.schema_id
    return ProtobufDecoder(file_of(found), None if same or reader is None else file_of(reader))
