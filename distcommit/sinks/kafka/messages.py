"""Conversion of records to messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.committer import CommitterContext
from distcommit.core.interfaces.sink import Origin, Origins, Prepared, StagingArea
from distcommit.schemas.column_names import check_fields
from distcommit.schemas.storable_types import is_text
from distcommit.sinks.base.file_names import messages_name
from distcommit.sinks.base.offset_coverage import CoveringWriter
from distcommit.sinks.databases.staged_rows import staged_batches

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_MESSAGE: pa.Schema = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
        ("timestamp", pa.int64()),
        ("partition", pa.int32()),
    ]
)
_FLUSH_BYTES = 32 * 1024 * 1024
"""Approximate size in bytes of a staged file, which the committer reads as a whole."""


@dataclass(frozen=True, slots=True)
class Mapping:
    """The columns for each part of a message.

    Attributes:
        format: encoding of the value: `bytes` takes it from one column; `json` makes an object of all columns that no
            other part names.
        key: column with the key; empty for messages without keys.
        value: column with the value, for format `bytes`; not used for `json`.
        headers: column with the headers; empty for messages without headers.
        timestamp: column with the timestamp; empty for the time of sending.
        partition: column with the partition; empty to let the client choose by the key.
    """

    format: Literal["bytes", "json"]
    key: str
    value: str
    headers: str
    timestamp: str
    partition: str

    @property
    def named_columns(self) -> Sequence[str]:
        value = self.value if self.format == "bytes" else ""
        return tuple(filter(None, (self.key, value, self.headers, self.timestamp, self.partition)))

    @property
    def _object_columns(self) -> frozenset[str]:
        return frozenset((self.key, self.headers, self.timestamp, self.partition))

    def check(self, schema: pa.Schema) -> None:
        text = {"key": self.key, **({"value": self.value} if self.format == "bytes" else {})}
        predicate = [(setting, column, "bytes or text", is_text) for setting, column in text.items()]
        predicate += [("headers", self.headers, str(_HEADERS), _HEADERS.equals)]
        predicate += [("timestamp", self.timestamp, "a timestamp", pa.types.is_timestamp)]
        predicate += [("partition", self.partition, "an integer", pa.types.is_integer)]
        for setting, column, expected, fits in predicate:
            result = schema.field(column).type if column in schema.names else None
            if column and (result is None or not fits(result)):
                raise ConfigurationError(
                    "records can't be converted to messages",
                    id="SINK_COLUMN_INVALID",
                    setting=f"sink.{setting}",
                    column=column,
                    expected=expected,
                    found="no such column" if result is None else str(result),
                    todo="name another column, convert this one with the converter `cast`, or set sink.format to json",
                )

        if self.format == "json":
            check_fields(
                pa.schema([field for field in schema if field.name not in self._object_columns]), "a JSON message"
            )

    def messages(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.check(batch.schema)
        columns = [
            self._column(batch, self.key, 0),
            self._column(batch, self.value, 1) if self.format == "bytes" else self._json(batch),
            self._column(batch, self.headers, 2),
            self._times(batch),
            self._column(batch, self.partition, 4),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=_MESSAGE)

    def _column(self, batch: pa.RecordBatch, name: str, at: int) -> pa.Array:
        kind = _MESSAGE.field(at).type
        return pc.cast(batch.column(name), kind) if name else pa.nulls(batch.num_rows, kind)

    def _times(self, batch: pa.RecordBatch) -> pa.Array:
        if not self.timestamp:
            return pa.nulls(batch.num_rows, pa.int64())
        zone = batch.schema.field(self.timestamp).type.tz
        times = pc.cast(batch.column(self.timestamp), pa.timestamp("ms", tz=zone), safe=False)
        return pc.cast(times, pa.int64())

    def _json(self, batch: pa.RecordBatch) -> pa.Array:
        rows = batch.select([name for name in batch.schema.names if name not in self._object_columns]).to_pylist()
        return pa.array([msgspec.json.encode(row) for row in rows], pa.binary())


class KafkaWriter(CoveringWriter):
    """Writer that stages messages in Arrow files of about 32 MiB. The commit info has path and xxh3-64 of each
    (`files`), `ledger` (the topic's id), and `covered`."""

    def __init__(self, mapping: Mapping, area: StagingArea, origin: Origin, ledger_id: str) -> None:
        super().__init__(origin)
        self._mapping, self._area, self._ledger_id = mapping, area, ledger_id
        self._files: list[list[Any]] = []
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0

    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        if not self._held or batch.schema != self._held[-1].schema:
            self._mapping.check(batch.schema)
        self._covering.add(batch, origins)
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        if self._held_bytes >= _FLUSH_BYTES:
            self._flush()

    @property
    def prepares_in_background(self) -> bool:
        return self._area.fs.parallel_calls > 1

    def prepare_commit(self) -> Prepared:
        self._flush()
        if not self._files:
            return Prepared(holes=self._covering.holes_left)
        info = {"files": self._files, "ledger": self._ledger_id, "covered": self._covering.covered()}
        return Prepared([info])

    def abort(self) -> None:
        self._held.clear()

    def _flush(self) -> None:
        if not self._held:
            return
        messages = self._in_order()
        self._held, self._held_bytes = [], 0
        rows_at_once = max(1, messages.num_rows * _FLUSH_BYTES // max(1, messages.nbytes))
        for start in range(0, messages.num_rows, rows_at_once):
            self._stage(messages.slice(start, rows_at_once))

    def _in_order(self) -> pa.RecordBatch:
        groups: list[tuple[list[pa.RecordBatch], list[int]]] = []
        for number, batch in enumerate(self._held):
            group = next((group for group in groups if group[0][0].schema.equals(batch.schema)), None)
            if group is None:
                groups.append(([batch], [number]))
            else:
                group[0].append(batch)
                group[1].append(number)
        created = pa.concat_batches([self._mapping.messages(pa.concat_batches(batches)) for batches, _ in groups])
        if len(groups) == 1:
            return created
        numbers = [(number, self._held[number].num_rows) for _, of in groups for number in of]
        of_rows = np.repeat(*np.array(numbers, np.int64).T)
        return created.take(pa.array(np.argsort(of_rows, kind="stable")))

    def _stage(self, messages: pa.RecordBatch) -> None:
        name = messages_name(len(self._files))
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_stream(buffer, _MESSAGE) as stream:
            stream.write_batch(messages)
        file, written = self._area.fs.create(f"{self._area.folder}/{name}"), False
        try:
            file.write(buffer.getvalue())
            written = True
        finally:
            file.close_file(sync=written)
        self._files.append([f"{self._area.prefix}/{name}", file.checksum])


def staged_messages(context: CommitterContext, path: str, checksum: int) -> Iterator[dict[str, Any]]:
    """Yield messages for `Producer.produce`; raises the errors of `staged_runs`."""
    for batch in staged_batches(context, path, checksum):
        for row in batch.to_pylist():
            headers = [(header["key"], header["value"]) for header in row.pop("headers") or ()]
            message = {name: value for name, value in row.items() if value is not None}
            yield {**message, "headers": headers} if headers else message
