"""Change events of Debezium."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from distcommit.core.support.decoding import from_json

METADATA: Mapping[str, pa.DataType] = {
    "op": pa.string(),
    "position": pa.int64(),
    "ts_ms": pa.int64(),
    "snapshot": pa.string(),
    "transaction": pa.string(),
}
"""Types of the metadata columns by name, without the `_` in front."""
ENVELOPE = ("op", "before", "after")
_UNAVAILABLE = (
    b"__debezium_unavailable_value",
    b"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ",
    b"5f5f646562657a69756d5f756e617661696c61626c655f76616c7565",
    b"b68a35a7-17ad-35b3-af2a-ae46edb4545a",
)
"""Debezium's placeholder for an unavailable value, as text, Base64, hexadecimal and UUID."""
_LACKS_VALUE = (
    "lacks a large value that the update did not change (__debezium_unavailable_value). In PostgreSQL, set REPLICA"
    " IDENTITY FULL for the table"
)
_CHANGES_KEY = (
    "changes a key column ({}) in an update, so that the row with the old key would remain. Let the connector use the"
    " columns as the message key (message.key.columns), or name its message key in `keys`"
)
_ABSENT = (b"", b"null")
_BINLOG_NUMBER = re.compile(r"\.(\d{1,10})$")
_REASONS = {
    None: "is not a change event of Debezium: it has no `op`",
    "t": "has the operation t (truncate), which can't be applied. Delete the rows of the table yourself, or let the"
    " connector skip such events (skipped.operations: t)",
    "m": "has the operation m (a message of the database's log), which is not a change of a row",
}


class _Envelope(msgspec.Struct):
    """A change event.

    Attributes:
        op: the operation.
        before: the row before the change.
        after: the row after the change.
        source: the position of the change in the source.
        transaction: the transaction of the change.
        payload: the event, if it is wrapped with its schema; else empty.
    """

    op: str | None = None
    before: msgspec.Raw = msgspec.Raw(b"")
    after: msgspec.Raw = msgspec.Raw(b"")
    source: dict[str, Any] | None = None
    transaction: dict[str, Any] | None = None
    payload: msgspec.Raw = msgspec.Raw(b"")


@dataclass(slots=True)
class Events:
    """The change events of a batch. Tombstones, whose value is null, are left out.

    Attributes:
        rows: the input row of each event.
        images: the row image of each event as JSON: before a delete, otherwise after the change. Empty if the events
            were decoded before.
        sources: the operation, the source and the transaction of each event.
        rejected: rejection reasons by input row.
    """

    rows: list[int] = field(default_factory=list)
    images: list[bytes] = field(default_factory=list)
    sources: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = field(default_factory=list)
    rejected: dict[int, str] = field(default_factory=dict)

    def add(self, row: int, op: str, source: Mapping[str, Any] | None, transaction: Mapping[str, Any] | None) -> None:
        self.rows.append(row)
        self.sources.append((op, source or {}, transaction or {}))

    def metadata(self, names: Sequence[str], selected: Sequence[int] | None) -> list[pa.Array]:
        """Return the named metadata columns, of all events or of those at the `selected` indices."""
        sources = self.sources if selected is None else [self.sources[index] for index in selected]
        columns = [[_VALUES[name](op, source, transaction) for op, source, transaction in sources] for name in names]
        return [pa.array(values, METADATA[name]) for name, values in zip(names, columns, strict=True)]


def read_events(values: pa.Array, keys: Sequence[str]) -> Events:
    """Read events from JSON, with or without schema. Updates that change a column of `keys` are rejected."""
    events = Events()
    for row, value in enumerate(values.to_pylist()):
        if value is None or value.strip() in (b"null", "null"):
            continue
        try:
            event = from_json(value, _Envelope)
            if bytes(event.payload) == b"null":
                continue
            if event.payload:
                event = from_json(event.payload, _Envelope)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            events.rejected[row] = f"is not a change event of Debezium: {error}"
            continue
        before, after = bytes(event.before), bytes(event.after)
        reason = _problem(event.op, before not in _ABSENT, after not in _ABSENT)
        if reason is None and event.op != "d" and any(mark in after for mark in _UNAVAILABLE):
            reason = _LACKS_VALUE
        if reason is None and event.op == "u" and keys and before not in _ABSENT and _changes_key(before, after, keys):
            reason = _CHANGES_KEY.format(", ".join(keys))
        if reason is not None:
            events.rejected[row] = reason
        elif event.op is not None:
            events.images.append(before if event.op == "d" else after)
            events.add(row, event.op, event.source, event.transaction)
    return events


def events_of(batch: pa.RecordBatch, keys: Sequence[str]) -> tuple[Events, pa.Array]:
    """Return events that a converter has decoded, and their row images. Updates that change `keys` are rejected."""
    events = Events()
    before, after = batch.column("before"), batch.column("after")
    ops, had, has = batch.column("op").to_pylist(), before.is_valid().to_pylist(), after.is_valid().to_pylist()
    sources, transactions = (
        batch.column(name).to_pylist() if name in batch.schema.names else [None] * batch.num_rows
        for name in ("source", "transaction")
    )
    lacking, moving = set(_rows_with_placeholder(after)), set(_rows_with_other_key(before, after, keys))
    for row, op in enumerate(ops):
        if op is None and not had[row] and not has[row]:
            continue
        reason = _problem(op, had[row], has[row])
        if reason is None and op != "d" and row in lacking:
            reason = _LACKS_VALUE
        if reason is None and op == "u" and row in moving:
            reason = _CHANGES_KEY.format(", ".join(keys))
        if reason is not None:
            events.rejected[row] = reason
        else:
            events.add(row, op, sources[row], transactions[row])
    rows = pa.array(events.rows, pa.int64())
    is_delete = pa.array([op == "d" for op, _, _ in events.sources], pa.bool_())
    return events, pc.if_else(is_delete, before.take(rows), after.take(rows))


def _rows_with_placeholder(images: pa.StructArray) -> Iterator[int]:
    for column in images.flatten():
        is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
        values = pc.list_flatten(column) if is_list else column
        if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
            marks = pa.array(_UNAVAILABLE, pa.binary()).cast(values.type)
            places = pc.indices_nonzero(pc.is_in(values, marks))
            yield from (pc.list_parent_indices(column).take(places) if is_list else places).to_pylist()


def _rows_with_other_key(before: pa.StructArray, after: pa.StructArray, keys: Sequence[str]) -> Iterator[int]:
    for item, old, new in zip(before.type, before.flatten(), after.flatten(), strict=True):
        if item.name in keys and not pa.types.is_nested(item.type):
            yield from pc.indices_nonzero(pc.not_equal(old, new).fill_null(False)).to_pylist()


def _changes_key(before: bytes, after: bytes, keys: Sequence[str]) -> bool:
    try:
        old, new = (from_json(image, dict[str, msgspec.Raw]) for image in (before, after))
    except msgspec.DecodeError:
        return False  # the image after the change is rejected when its fields are read
    pairs = ((bytes(old.get(key, b"")), bytes(new.get(key, b""))) for key in keys)
    return any(one != other for one, other in pairs if one not in _ABSENT and other not in _ABSENT)


def _problem(op: str | None, has_before: bool, has_after: bool) -> str | None:
    if op not in ("c", "r", "u", "d"):
        return _REASONS.get(op, f"has the unknown operation {op!r:.20}")
    if op == "d" and not has_before:
        return (
            "is a delete without an image of the row before it, which has the key. In PostgreSQL, give the table a"
            " primary key or set its REPLICA IDENTITY"
        )
    return "has no image of the row after the change" if op != "d" and not has_after else None


def _position(source: Mapping[str, Any]) -> int | None:
    """Return the position in the source's log: the LSN of PostgreSQL, the number of the binary log of MySQL and MariaDB
    times 2^32 plus the position in it, otherwise the time of the change. None if it is missing."""
    if "lsn" in source:
        return _int64(source["lsn"])
    if "file" in source:
        number, position = _BINLOG_NUMBER.search(str(source["file"])), _int64(source.get("pos"))
        return None if number is None or position is None else _int64((int(number[1]) << 32) + position)
    return _int64(source.get("ts_ms"))


def _int64(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63 else None


def _snapshot(source: Mapping[str, Any]) -> str | None:
    value = source.get("snapshot")
    return str(value).lower() if isinstance(value, str | bool) else None


def _transaction_id(transaction: Mapping[str, Any]) -> str | None:
    value = transaction.get("id")
    return value if isinstance(value, str) else None


_VALUES: Mapping[str, Any] = {
    "op": lambda op, source, transaction: op,
    "position": lambda op, source, transaction: _position(source),
    "ts_ms": lambda op, source, transaction: _int64(source.get("ts_ms")),
    "snapshot": lambda op, source, transaction: _snapshot(source),
    "transaction": lambda op, source, transaction: _transaction_id(transaction),
}
