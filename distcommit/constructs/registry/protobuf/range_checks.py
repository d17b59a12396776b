"""Range checks of well-known types on columns.

The library ptars computes timestamps from numbers of any size. So messages of these types are read a second time, as
ordinary messages without other fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import ptars
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from numpy.typing import NDArray

from distcommit.constructs.registry.protobuf.message_parser import (
    KNOWN_FIELDS,
    CheckedType,
    is_date,
    is_duration,
    is_google_type,
    is_map,
    is_time,
    is_timestamp,
)
from distcommit.core.error_handling.foreign_errors import ForeignError, foreign_errors

_PACKAGE = "ranges"
_RULES: Mapping[str, Callable[..., Any]] = {
    "google.protobuf.Timestamp": is_timestamp,
    "google.protobuf.Duration": is_duration,
    "google.type.Date": is_date,
    "google.type.TimeOfDay": is_time,
}
_BY_NAME = {full_name.rpartition(".")[2]: rule for full_name, rule in _RULES.items()}
_NONE = np.empty(0, np.int64)
_F = FieldDescriptor


class Ranges:
    """Range checks of times and durations in messages of one type.

    Args:
        types: checked message types, and the types that contain them.
    """

    def __init__(self, source: Descriptor, types: Mapping[str, CheckedType]) -> None:
        self._types, self._fields = types, 0
        self._file = descriptor_pb2.FileDescriptorProto(name="ranges.proto", package=_PACKAGE, syntax="proto3")
        root = self._message(source, frozenset([source.full_name])) if source.full_name in types else ""
        self._handler: Any = None
        if root:
            pool = descriptor_pool.DescriptorPool()
            pool.Add(self._file)
            handlers = ptars.HandlerPool([pool.FindFileByName(self._file.name)])
            self._handler = handlers.get_for_message(pool.FindMessageTypeByName(f"{_PACKAGE}.{root}"))

    def beyond(self, canonical: list[bytes]) -> NDArray[np.int64] | None:
        """Return numbers of messages with a value out of range; None if ptars can't read the messages."""
        if self._handler is None:
            return _NONE
        try:
            with foreign_errors():
                read = self._handler.array_to_record_batch(pa.array(canonical, pa.binary()))
        except (ValueError, ForeignError):
            return None
        rows = np.arange(len(canonical))
        columns = zip(read.schema.names, read.columns, strict=True)
        return np.concatenate([_NONE, *(item for column in columns for item in _beyond(*column, rows))])

    def _message(self, source: Descriptor, within: frozenset[str]) -> str:
        """Add a type with only the fields that contain checked values; return its name, or an empty text."""
        fields: list[tuple[FieldDescriptor, str]] = []
        for field, below in self._types[source.full_name].fields:
            if below.full_name in _RULES and is_google_type(below):
                fields.append((field, self._known(below)))
            elif below.full_name not in within:
                fields.append((field, self._message(below, within | {below.full_name})))
        if not any(kind for _, kind in fields):
            return ""
        target = self._file.message_type.add(name=f"M{len(self._file.message_type)}")
        for field, kind in fields:
            if kind and is_map(field):
                entry = self._file.message_type.add(name=f"M{len(self._file.message_type)}")
                self._add(entry, 2, kind, is_repeated=False)
                self._add(target, field.number, entry.name, is_repeated=True)
            elif kind:
                self._add(target, field.number, kind, is_repeated=field.is_repeated)
        return str(target.name)

    def _known(self, source: Descriptor) -> str:
        if all(field.name != source.name for field in self._file.message_type):
            target = self._file.message_type.add(name=source.name)
            for number, (name, kind) in enumerate(KNOWN_FIELDS[source.full_name], 1):
                target.field.add(name=name, number=number, type=kind, label=_F.LABEL_OPTIONAL)
        return str(source.name)

    def _add(self, holder: Any, number: int, kind: str, *, is_repeated: bool) -> None:
        self._fields += 1
        label = _F.LABEL_REPEATED if is_repeated else _F.LABEL_OPTIONAL
        name, type_name = f"{kind}_{self._fields}", f".{_PACKAGE}.{kind}"
        holder.field.add(name=name, number=number, type=_F.TYPE_MESSAGE, label=label, type_name=type_name)


def _beyond(name: str, values: pa.Array, rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    if pa.types.is_list(values.type):
        parents = pc.list_parent_indices(values).to_numpy()
        yield from _beyond(name, values.flatten(), rows[parents])
        return
    rule = _BY_NAME.get(name.partition("_")[0])
    if rule is None:
        for field, below in zip(values.type, values.flatten(), strict=True):
            yield from _beyond(field.name, below, rows)
        return
    if values.null_count:
        values, rows = values.drop_null(), rows[values.is_valid().to_numpy(zero_copy_only=False)]
    is_within = rule(*[numbers.to_numpy() for numbers in values.flatten()])
    if not is_within.all():
        yield rows[~is_within]
