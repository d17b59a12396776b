"""The converter `debezium`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
from pydantic import field_validator

from distcommit.constructs.converters.debezium_events import ENVELOPE, METADATA, events_of, read_events
from distcommit.constructs.converters.inferring_converter import JsonFieldsConverter
from distcommit.constructs.json_decoding.column_inference import columns_of_fields
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.constructs import Converted
from distcommit.core.support.setting_checks import check_distinct
from distcommit.core.work_units import WorkUnit
from distcommit.schemas.known_columns import UNKNOWN, Columns, check_unique_names, find_column
from distcommit.schemas.storable_types import is_text

Metadata = Literal["op", "position", "ts_ms", "snapshot", "transaction"]


class DebeziumConverter(JsonFieldsConverter):
    """Converter of change events of Debezium to rows: the row after the change, or before a delete.

    The events are JSON in a column of text or bytes, with or without their schemas. If the records have the columns
    `op`, `before` and `after` instead, a converter before it has decoded them. The records lose all other columns.
    Tombstones, whose value is null, are filtered. A record is rejected if it is not a change event, if its operation is
    a truncate or a message, if the image of its row is missing or does not fit `fields`, or if it lacks a large value
    that an update did not change.

    Attributes:
        fields: `{NAME: TYPE}` of the rows, as for the converter `json`. Left out: the fields are inferred.
        evolution: the policy for a field that was not inferred before: it becomes a column (`evolve`), is ignored
            (`pin`), or fails the work unit (`fail`).
        datasets: the evolution of some datasets. It takes precedence over `evolution`.
        column: the column of JSON.
        metadata: the columns that are added, with `_` in front: the operation `op`; `position` in the source's log; its
            time of the change `ts_ms`; whether a `snapshot` has read the row; the id of the source's `transaction`, if
            the connector provides it.
        keys: columns of the row that an update must not change, or it is rejected. Left out: the `keys` of a sink of
            mode `mirror`, unless it is in a fork.
    """

    type: Literal["debezium"]
    metadata: tuple[Metadata, ...] = ("op", "position")
    keys: tuple[str, ...] = ()

    _check_metadata = field_validator("metadata", "keys")(check_distinct)

    def convert_columns(self, columns: Columns) -> Columns:
        if "after" in columns.fields.names:
            return self._columns_of_decoded(columns)
        if columns.may_have_others and self.column not in columns.fields.names:
            return Columns().with_fields(self._added)
        find_column(columns, self.column, self.type, is_text, "binary or string")
        return Columns().with_fields(self._added) if self.fields is None else self._rows(columns_of_fields(self.fields))

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        if "after" in batch.schema.names:
            self._columns_of_decoded(Columns.of(batch.schema))
            events, images = events_of(batch, self.keys)
            schema, selected, rejected = self._rows(pa.schema(images.type.fields)).fields, None, events.rejected
            columns = images.flatten()
        else:
            find_column(batch.schema, self.column, self.type, is_text, "binary or string")
            events = read_events(batch.column(self.column), self.keys)
            fields, read = self._read(pa.array(events.images, pa.binary()))
            schema, columns = self._rows(fields).fields, read.columns
            selected = None if read.rows is None else read.rows.to_pylist()
            rejected = events.rejected | {events.rows[index]: reason for index, reason in read.rejected.items()}
        rows = events.rows if selected is None else [events.rows[index] for index in selected]
        records = pa.RecordBatch.from_arrays([*columns, *events.metadata(self.metadata, selected)], schema=schema)
        yield Converted(records, pa.array(rows, pa.int64()), rejected)

    @property
    def _added(self) -> list[pa.Field]:
        return [pa.field(f"_{name}", METADATA[name]) for name in self.metadata]

    def _rows(self, fields: pa.Schema) -> Columns:
        return check_unique_names(Columns.of(pa.schema([*fields, *self._added])), self.type)

    def _columns_of_decoded(self, columns: Columns) -> Columns:
        find_column(columns, "op", self.type, pa.types.is_string, "string")
        before, after = (find_column(columns, name, self.type, pa.types.is_struct, "a struct") for name in ENVELOPE[1:])
        if UNKNOWN in (before.type, after.type):
            return Columns().with_fields(self._added)
        if before.type != after.type:
            raise ConfigurationError(
                "the images before and after a change must have the same columns",
                id="CONSTRUCT_SETTINGS_INVALID",
                construct=self.type,
                expected=str(after.type),
                found=str(before.type),
                todo="remove the converter that decodes the events, if they are JSON: this converter decodes them",
            )
        return self._rows(pa.schema(after.type.fields))
