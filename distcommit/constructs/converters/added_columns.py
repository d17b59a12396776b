"""Converters that add columns."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr

from distcommit.constructs.construct_settings import ConverterSettings
from distcommit.core.interfaces.constructs import Converted
from distcommit.core.support.settings_model import SettingError, rule
from distcommit.core.work_units import WorkUnit
from distcommit.schemas.known_columns import Columns, check_unique_names, find_column

_TIME = pa.timestamp("us", "UTC")


class ProvenanceColumns(ConverterSettings):
    """Converter that adds copies of columns, constants and the ingest time.

    Attributes:
        copies: `{NEW: OLD}`: copies of columns, such as of an offset that a later converter drops.
        constants: `{NEW: VALUE}`: text, a 64-bit whole number, a number, true or false, the same in each record.
        ingest_time: name of a column for the time at which the attempt read the record's batch, in UTC. Different
            attempts at a work unit have different times; the output shows the time of the committed attempt.
    """

    type: Literal["provenance"]
    copies: dict[str, str] = Field(default_factory=dict)
    constants: dict[str, StrictBool | StrictInt | StrictFloat | StrictStr] = Field(default_factory=dict)
    ingest_time: str = ""

    @rule
    def _adds_columns(self) -> Iterator[SettingError]:
        if not (self.copies or self.constants or self.ingest_time):
            yield SettingError("must name a column in copies, constants or ingest_time")
        for name, value in self.constants.items():
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                yield SettingError("must be a number of at most 64 bits", "constants", name)

    def convert_columns(self, columns: Columns) -> Columns:
        added = [find_column(columns, old, "provenance").with_name(new) for new, old in self.copies.items()]
        added += [pa.field(f, pa.scalar(value).type, nullable=False) for f, value in self.constants.items()]
        added += [pa.field(self.ingest_time, _TIME, nullable=False)] if self.ingest_time else []
        return check_unique_names(columns.with_fields([*columns.fields, *added]), "provenance")

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        columns = [*batch.columns, *(batch.column(old) for old in self.copies.values())]
        columns += [pa.repeat(value, batch.num_rows) for value in self.constants.values()]
        if self.ingest_time:
            columns.append(pa.repeat(pa.scalar(datetime.now(UTC), _TIME), batch.num_rows))
        yield Converted(pa.RecordBatch.from_arrays(columns, schema=output_schema))


class Tombstones(ConverterSettings):
    """Converter that adds a delete marker: a column that is true if `column` is null, else false.

    Place it before a converter that drops `column`. Converters keep records whose value is null, so a tombstone
    reaches the sink with its key and its marker, unless a condition filters it.

    Attributes:
        column: the column that is null in a tombstone.
        marker: name of the added column.
    """

    type: Literal["tombstones"]
    column: str = "value"
    marker: str = "is_deleted"

    def convert_columns(self, columns: Columns) -> Columns:
        find_column(columns, self.column, "tombstones")
        marker = pa.field(self.marker, pa.bool_(), nullable=False)
        return check_unique_names(columns.with_fields([*columns.fields, marker]), "tombstones")

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        marked = pc.is_null(batch.column(self.column))
        yield Converted(pa.RecordBatch.from_arrays([*batch.columns, marked], schema=output_schema))
