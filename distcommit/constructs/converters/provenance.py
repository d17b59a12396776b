"""Columns that say where records come from."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal

import pyarrow as pa
from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator

from distcommit.constructs.columns import Columns, field_of, unique_names
from distcommit.constructs.settings import ConverterSettings
from distcommit.core.interfaces.constructs import Converted

_TIME = pa.timestamp("us", "UTC")


class ProvenanceColumns(ConverterSettings, frozen=True, extra="forbid"):
    """Adds columns behind the others.

    Attributes:
        copies: `{NEW: OLD}`: columns again, under other names, such as the offset that a later converter drops.
        constants: `{NEW: VALUE}`: the same in each record: text, a whole number of 64 bits, a number, true or false.
        ingest_time: a column for the time at which the record's batch came here, in UTC. It is another one in each
            attempt at a work unit, and only that of the attempt that is committed is ever seen.
    """

    type: Literal["provenance"]
    copies: dict[str, str] = Field(default_factory=dict)
    constants: dict[str, StrictBool | StrictInt | StrictFloat | StrictStr] = Field(default_factory=dict)
    ingest_time: str = ""

    @model_validator(mode="after")
    def _adds_something(self) -> ProvenanceColumns:
        if not (self.copies or self.constants or self.ingest_time):
            raise ValueError("name a column in copies, constants or ingest_time")
        for name, value in self.constants.items():
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise ValueError(f"{name!r} is no number of 64 bits")
        return self

    def convert_columns(self, columns: Columns) -> Columns:
        added = [field_of(columns, old, "provenance").with_name(new) for new, old in self.copies.items()]
        added += [pa.field(f, pa.scalar(value).type, nullable=False) for f, value in self.constants.items()]
        added += [pa.field(self.ingest_time, _TIME, nullable=False)] if self.ingest_time else []
        return unique_names(columns.with_known([*columns.known, *added]), "provenance")

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        schema = self.made_of(batch.schema)
        columns = [*batch.columns, *(batch.column(old) for old in self.copies.values())]
        columns += [pa.repeat(value, batch.num_rows) for value in self.constants.values()]
        if self.ingest_time:
            columns.append(pa.repeat(pa.scalar(datetime.now(UTC), _TIME), batch.num_rows))
        yield Converted(pa.RecordBatch.from_arrays(columns, schema=schema))


SETTINGS = ProvenanceColumns
