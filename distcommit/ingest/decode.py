"""Decoding record values into columns; what can't be decoded is set apart, record by record."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

FieldType = Literal["string", "int64", "float64", "bool", "timestamp"]

_TYPES: dict[FieldType, tuple[Any, pa.DataType]] = {
    "string": (str | None, pa.string()),
    "int64": (Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None, pa.int64()),
    "float64": (float | None, pa.float64()),
    "bool": (bool | None, pa.bool_()),
    "timestamp": (datetime | None, pa.timestamp("us", "UTC")),
}


@dataclass(frozen=True, slots=True)
class Decoded:
    """A batch split in two: decoded records, and rejected ones as they came (None if there are none)."""

    records: pa.RecordBatch
    rejected: pa.RecordBatch | None = None
    first_error: str = ""


class Decoder(BaseModel):
    """How the `value` column of a batch is read.

    With `json`, each declared field becomes a column: absent and null fields and null values give null, fields that are
    not declared are ignored, and a value that is not a JSON object with fields of these types is rejected. Timestamps
    are ISO 8601 text, in UTC where they name no zone. `keep_value` keeps the undecoded bytes beside the fields.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    format: Literal["raw", "json"] = "raw"
    fields: dict[str, FieldType] = Field(default_factory=dict)
    keep_value: bool = True

    @cached_property
    def _json(self) -> msgspec.json.Decoder[Any]:
        columns = [(f"f{index}", _TYPES[kind][0], None) for index, kind in enumerate(self.fields.values())]
        names = {f"f{index}": name for index, name in enumerate(self.fields)}
        return msgspec.json.Decoder(msgspec.defstruct("Value", columns, rename=names, gc=False))

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()
        return {**state, "__dict__": {k: v for k, v in state["__dict__"].items() if k != "_json"}}

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Adds the declared fields as columns."""
        if self.format == "raw":
            return Decoded(batch)
        decode = self._json.decode
        empty = decode(b"{}")
        values: list[Any] = []
        bad: list[int] = []
        first_error = ""
        for index, value in enumerate(batch.column("value").to_pylist()):
            try:
                values.append(empty if value is None else decode(value))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                if not bad:
                    first_error = f"{error}: {value[:100]!r}"
                bad.append(index)
        rejected = None
        if bad:
            rejected = batch.take(pa.array(bad))
            kept = sorted(set(range(batch.num_rows)) - set(bad))
            batch = batch.take(pa.array(kept, pa.int64()))
        for index, (name, kind) in enumerate(self.fields.items()):
            column = [getattr(value, f"f{index}") for value in values]
            batch = batch.append_column(name, pa.array(column, _TYPES[kind][1]))
        if not self.keep_value:
            batch = batch.drop_columns(["value"])
        return Decoded(batch, rejected, first_error)
