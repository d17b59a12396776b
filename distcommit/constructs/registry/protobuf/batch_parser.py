"""Parser of many Protobuf messages at once, in an envelope: a message with one repeated field of their type.

The length of each message precedes it, so a damaged message cannot change the next. Messages that may be rejected, and
envelopes that the official parser rejects, are parsed one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, message, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from distcommit.constructs.registry.protobuf.message_parser import (
    CheckedType,
    Comparison,
    MessageParser,
    MisplacedValueCheck,
    checked_types,
    is_google_type,
    message_types,
)
from distcommit.constructs.registry.protobuf.range_checks import Ranges
from distcommit.schemas.schema_size_limits import MAX_RECORD_VALUES

_MOST, _FEW = 1024, 32
"""Maximum number of messages in an envelope, and in the smaller envelopes that are tried next."""
_MAX_PARSED_BYTES = 64 << 20
"""Maximum size of a parsed envelope, in bytes. A larger message has its own envelope."""
_MAX_LEVELS = 48
"""Maximum levels of messages in an envelope that detects misplaced values. The official parser discards unknown fields
in 63 levels."""
_TAG = b"\x0a"
"""Tag of field 1 with a length."""
_F = FieldDescriptor


class BatchParser:
    """Parser of messages of one type, with the arguments and results of `MessageParser`, but faster.

    Messages are parsed one by one if they must be compared with a pinned schema, or if their type is one of Google's
    well-known types.
    """

    def __init__(self, source: Descriptor, widths: Mapping[str, int], pinned_schema: Comparison | None = None) -> None:
        self._parser = MessageParser(source, widths, pinned_schema)
        is_compared = pinned_schema is not None and not pinned_schema.is_exact
        self._envelope = None if is_compared or is_google_type(source) else _envelope_of(source, widths)
        fields = max(len(item.fields) for item in message_types(source).values())
        # two bytes can be an empty message, which takes at most 16 for each field of it, or begin a list or a map
        self._max_bytes = _MAX_PARSED_BYTES // (8 * (fields + 16))

    def canonical(self, bodies: list[bytes]) -> list[bytes | ValueError]:
        """Return for each message its canonical encoding, or the error that rejects it."""
        return [item for part in parts(bodies, self._max_bytes) for item in self._of(part)]

    def _of(self, bodies: list[bytes]) -> list[bytes | ValueError]:
        together = None if self._envelope is None else self._envelope.canonical(bodies)
        if together is not None:
            return [self._alone(body) if item is None else item for body, item in zip(bodies, together, strict=True)]
        if len(bodies) <= _FEW or self._envelope is None:
            return [self._alone(body) for body in bodies]
        few = (bodies[start : start + _FEW] for start in range(0, len(bodies), _FEW))
        return [item for part in few for item in self._of(part)]

    def _alone(self, body: bytes) -> bytes | ValueError:
        try:
            return self._parser.canonical(body)
        except ValueError as error:
            return ValueError(str(error))  # the traceback of the error itself would keep the parsed message alive


def parts(bodies: list[bytes], max_bytes: int) -> Iterator[list[bytes]]:
    """Split messages into parts of at most 1024 messages and `max_bytes`. A larger message is a part by itself."""
    ends = np.cumsum(np.fromiter(map(len, bodies), np.int64, len(bodies)))
    start, begin = 0, 0
    while start < len(bodies):
        count = int(np.searchsorted(ends, begin + max_bytes, "right"))
        stop = min(start + _MOST, max(start + 1, count))
        yield bodies[start:stop]
        start, begin = stop, int(ends[stop - 1])


class Envelope:
    """Parser of many messages of one type.

    `may_set_aside`: whether the official parser may treat a value as unknown. `levels`: levels of
    nested messages with checks.
    """

    def __init__(self, source: Descriptor, widths: Mapping[str, int]) -> None:
        self._class: Any = _envelope_class(source)
        self._widest = max(widths.values(), default=0)
        types = checked_types(source)
        self.may_set_aside = any(isinstance(item, MisplacedValueCheck) for one in types.values() for item in one.checks)
        self.levels = _levels(types, (source.full_name,))
        self._may_be_incomplete = any(
            item.is_extendable or any(field.is_required for field in item.fields)
            for item in message_types(source).values()
        )
        self._ranges = Ranges(source, types)

    def canonical(self, bodies: list[bytes]) -> list[bytes | None] | None:
        """Return canonical encodings, with None for messages to parse alone.

        If a message may be damaged, incomplete or too large, return None, so that the caller tries fewer.
        """
        if max(map(len, bodies)) * self._widest > MAX_RECORD_VALUES:
            return None
        chunks = [b""] * (2 * len(bodies))
        chunks[::2], chunks[1::2] = map(_head, map(len, bodies)), bodies
        framed = b"".join(chunks)
        try:
            parsed = self._class.FromString(framed)
            if self._may_be_incomplete and not parsed.IsInitialized():
                return None
            serialized = parsed.SerializePartialToString(deterministic=True)
            canonical = bodies if serialized == framed else _split(serialized)
            doubtful = self._ranges.beyond(canonical)
            if doubtful is None:
                return None
            results: list[bytes | None] = [*canonical]
            for row in doubtful.tolist():
                results[row] = None
            if self.may_set_aside:
                # removes unknown fields, and with them values that were set aside
                parsed.DiscardUnknownFields()
                without = parsed.SerializePartialToString(deterministic=True)
                if without != serialized:
                    results = [own if own == body else None for own, body in zip(results, _split(without), strict=True)]
            return results
        except message.Error:
            return None


def _envelope_of(source: Descriptor, widths: Mapping[str, int]) -> Envelope | None:
    """Return a type's envelope; None if it has too many levels, or the schema already has the envelope's name."""
    try:
        envelope = Envelope(source, widths)
        return None if envelope.may_set_aside and envelope.levels > _MAX_LEVELS else envelope
    except TypeError:
        return None


def _levels(types: Mapping[str, CheckedType], within: tuple[str, ...]) -> int:
    fields = types[within[-1]].fields if within[-1] in types else ()
    below = {child.full_name for _, child in fields} - {*within}
    return 1 + max((_levels(types, (*within, name)) for name in below), default=0)


def _envelope_class(source: Descriptor) -> Any:
    name = f"distcommit_envelope_{source.full_name.encode().hex()}"
    file = descriptor_pb2.FileDescriptorProto(name=name, syntax="proto3", dependency=[source.file.name])
    type_name = f".{source.full_name}"
    message = file.message_type.add(name=name)
    message.field.add(name="m", number=1, type=_F.TYPE_MESSAGE, label=_F.LABEL_REPEATED, type_name=type_name)
    added = source.file.pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(added.message_types_by_name[name])


@lru_cache(maxsize=4096)
def _head(size: int) -> bytes:
    head = bytearray(_TAG)
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    return bytes([*head, size])


def _split(framed: bytes) -> list[bytes]:
    messages: list[bytes] = []
    at = 0
    while at < len(framed):
        at += len(_TAG)
        size = shift = 0
        while (byte := framed[at]) > 127:
            size, shift, at = size | (byte & 127) << shift, shift + 7, at + 1
        begin = at + 1
        at = begin + (size | byte << shift)
        messages.append(framed[begin:at])
    return messages
