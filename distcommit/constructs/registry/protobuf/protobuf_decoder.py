"""Decoder of Protobuf messages by registered schema and message type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FileDescriptor
from numpy.typing import NDArray

from distcommit.constructs.bad_record_bisection import convert_or_bisect
from distcommit.constructs.registry.protobuf.batch_parser import BatchParser
from distcommit.constructs.registry.protobuf.descriptor_files import file_of
from distcommit.constructs.registry.protobuf.message_columns import Columns
from distcommit.constructs.registry.protobuf.pinned_type_check import PinnedTypeCheck
from distcommit.constructs.registry.registry_client import RegisteredSchema
from distcommit.constructs.registry.registry_converter import Decoded
from distcommit.constructs.registry.wire_format import Framed
from distcommit.schemas.schema_size_limits import UnusableSchemaError

_FIRST = (0,)
_MOST_BYTES = 100
"""Maximum size of the message indexes before a message, in bytes."""
Indexes = tuple[int, ...]


def message_at(file: FileDescriptor, indexes: Indexes) -> Descriptor:
    """Return the message type at the indexes; raises UnusableSchemaError if there is none."""
    messages = list(file.message_types_by_name.values())
    for depth, index in enumerate(indexes):
        if index >= len(messages):
            raise UnusableSchemaError(f"it has no message {'.'.join(map(str, indexes[: depth + 1]))}")
        message = messages[index]
        messages = list(message.nested_types)
    return message


class ProtobufDecoder:
    """Decoder of messages of a file's types. Each message names its type.

    With a pinned `reader`, the columns are those of the type at the same indexes in its file.

    Raises:
        UnusableSchemaError: if the first type is missing or without columns, or the schemas do not fit.
    """

    def __init__(self, file: FileDescriptor, reader: FileDescriptor | None) -> None:
        self._file, self._reader = file, reader
        self._handlers: dict[Indexes, _Reader | UnusableSchemaError] = {}
        first = self._handler(_FIRST)
        if isinstance(first, UnusableSchemaError):
            raise first
        self.schema = first.columns.schema

    def decode(self, framed: Framed) -> Iterator[Decoded]:
        wrong: dict[int, str] = {}
        for indexes, (numbers, begin) in _by_type(framed, wrong).items():
            handler = self._handler(indexes)
            if isinstance(handler, UnusableSchemaError):
                wrong |= dict.fromkeys(numbers.tolist(), str(handler))
            else:
                of_type = replace(framed, begin=begin, end=framed.end[numbers], rows=framed.rows[numbers])
                yield handler.read(of_type.messages(), numbers)
        if wrong:
            yield Decoded(pa.RecordBatch.from_pylist([], schema=self.schema), np.empty(0, np.int64), wrong)

    def _handler(self, indexes: Indexes) -> _Reader | UnusableSchemaError:
        if indexes not in self._handlers:
            try:
                message, pinned_schema = message_at(self._file, indexes), None
                if self._reader is not None:
                    reader = message_at(self._reader, indexes)
                    pinned_schema = PinnedTypeCheck(message, reader)
                    message = reader
                columns = Columns(message)
                self._handlers[indexes] = _Reader(columns, BatchParser(message, columns.widths, pinned_schema))
            except UnusableSchemaError as error:
                self._handlers[indexes] = error
        return self._handlers[indexes]


@dataclass(frozen=True, slots=True)
class _Reader:
    columns: Columns
    parser: BatchParser

    def read(self, messages: pa.Array, numbers: NDArray[np.int64]) -> Decoded:
        parsed = self.parser.canonical(messages.to_pylist())
        wrong = {n: _reason(e) for n, e in zip(numbers.tolist(), parsed, strict=True) if isinstance(e, ValueError)}
        canonical = [item for item in parsed if not isinstance(item, ValueError)]
        good = numbers[~np.isin(numbers, [*wrong])] if wrong else numbers
        bodies = pa.RecordBatch.from_arrays([pa.array(canonical, pa.binary())], ["body"])
        decoded = convert_or_bisect(
            bodies, self._read_batch, self.columns.schema, ValueError, lambda error, _: _reason(error)
        )
        rows = good if decoded.rows is None else good[decoded.rows.to_numpy()]
        wrong |= {int(good[row]): reason for row, reason in decoded.rejected.items()}
        return Decoded(decoded.records, rows, wrong)

    def _read_batch(self, bodies: pa.RecordBatch) -> tuple[pa.RecordBatch, None]:
        return self.columns.read(bodies.column(0)), None


def _reason(error: Exception) -> str:
    return f"it is not a message of its type: {error}"


def _by_type(framed: Framed, wrong: dict[int, str]) -> dict[Indexes, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return numbers and offsets of messages by their indexes. Rejections of invalid indexes go to `wrong`."""
    begin = framed.begin.copy()
    has_first = framed.end > begin
    is_first = has_first & (framed.data[np.where(has_first, begin, 0)] == 0)
    begin[is_first] += 1
    numbers_of: dict[Indexes, list[int]] = {}
    for number in np.flatnonzero(~is_first).tolist():
        offset = int(begin[number])
        try:
            indexes, size = _indexes(framed.data[offset : min(int(framed.end[number]), offset + _MOST_BYTES)].tobytes())
        except ValueError as error:
            wrong[number] = str(error)
            continue
        numbers_of.setdefault(indexes, []).append(number)
        begin[number] += size
    types = {indexes: np.array(numbers) for indexes, numbers in numbers_of.items()}
    if is_first.any():
        types[_FIRST] = np.union1d(np.flatnonzero(is_first), types.get(_FIRST, np.empty(0, np.int64)))
    return {indexes: (numbers, begin[numbers]) for indexes, numbers in types.items()}


def _indexes(body: bytes) -> tuple[Indexes, int]:
    """Return indexes and their length in bytes; raises ValueError if they are invalid."""
    values: list[int] = []
    offset, required = 0, 1
    while len(values) < required:
        value = shift = 0
        while True:
            if offset >= len(body) or shift > 28:
                raise ValueError("its message indexes are not valid")
            byte = body[offset]
            offset, value, shift = offset + 1, value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                break
        values.append(value >> 1 ^ -(value & 1))
        required = 1 + values[0]
        if min(values) < 0 or required == 1:
            raise ValueError("its message indexes are not valid")
    return tuple(values[1:]), offset


def schema_of(registered: RegisteredSchema, reader: RegisteredSchema | None) -> ProtobufDecoder:
    """Return the decoder of a schema, to the columns of `reader` if that is another; raises UnusableSchemaError."""
    same = reader is None or reader.schema_id == registered.schema_id
    return ProtobufDecoder(file_of(registered), None if same or reader is None else file_of(reader))
