"""Columns inferred from JSON objects, and fixed for their dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa

from distcommit.constructs.json.json_fields import (
    Fields,
    field_paths,
    infer_names,
    merged_fields,
    typed_fields,
    wire_schema,
)
from distcommit.constructs.json.json_records import JsonReader, JsonRecords
from distcommit.constructs.schemas.column_types import arrow_type, field_name
from distcommit.constructs.schemas.schema_policy import Evolution
from distcommit.core.errors import NEW_FIELDS, RecordError
from distcommit.core.interfaces.constructs import InferredSchemaStore

_MOST_FIELDS = 1000
_SHOWN_FIELDS = 3


def columns_of_fields(fields: Fields) -> pa.Schema:
    """Return the columns of fields as a job file writes them. Raises ValueError."""
    return pa.schema([(field_name(name), arrow_type(written)) for name, written in fields.items()])


json_reader = lru_cache(64)(JsonReader)


@dataclass(slots=True)
class _NoSchemaStore:
    """Replacement for a schema store: each work unit has its own schemas."""

    def schema(self, schema_id: int) -> Mapping[str, Any]:
        raise RecordError("a schema can't be read without a store", found=f"schema {schema_id}")

    def put_next(self, after: int, schema: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        return after + 1, schema


@dataclass(slots=True)
class InferredFields:
    """The inferred fields of one dataset. Not picklable.

    They are inferred from the first batch with an object, and with `evolve` also from later batches. Each set of fields
    is stored before it is used, and contains the sets before it. If two tasks infer at once, the second uses the set
    that the first stored, and may store a larger one.

    Attributes:
        evolution: the policy for unknown fields.
        kept: the schema store.
        ids: the ids of the known sets, the newest last.
        fields: the newest set; None: not read yet, or none exists.
        names: the fields, and names that were always null or empty, so that records are not searched for them again.
    """

    evolution: Evolution
    kept: InferredSchemaStore = field(default_factory=_NoSchemaStore)
    ids: list[int] = field(default_factory=list)
    fields: Fields | None = None
    names: Fields = field(default_factory=dict)

    def know(self, ids: Sequence[int]) -> None:
        """Set the ids of the sets of the dataset's published records."""
        self.ids, self.fields, self.names = sorted(ids), None, {}

    def read(self, values: pa.Array) -> tuple[pa.Schema, JsonRecords]:
        """Read one object from each value, after inferring fields from them. Return the columns and the records.

        Raises:
            RecordError: if there are too many fields, or with `fail` an unknown field.
        """
        if self.fields is None and self.ids:
            self.fields = self.names = self.kept.schema(self.ids[-1])
        if self.fields is not None and self.evolution != "pin":
            columns = columns_of_fields(self.fields)
            read = json_reader(columns, exact_floats=True).read_if_all_known(values, wire_schema(self.names))
            if read is not None:
                return columns, read
        if self.fields is None or self.evolution != "pin":
            names = infer_names(values)
            self._take_in(typed_fields(names))
            self.names = merged_fields(merged_fields(self.fields or {}, names), self.names)
        columns = columns_of_fields(self.fields or {})
        return columns, json_reader(columns, exact_floats=True).read(values)

    def _take_in(self, new: Fields) -> None:
        """Add the fields of records, and those that other tasks stored before."""
        while (wanted := merged_fields(self.fields or {}, new)) != (self.fields or {}):
            if self.fields is not None and self.evolution == "pin":
                return
            self._check(wanted)
            number, self.fields = self.kept.put_next(self.ids[-1] if self.ids else 0, wanted)
            self.ids.append(number)

    def _check(self, wanted: Fields) -> None:
        paths, known = field_paths(wanted), field_paths(self.fields or {})
        if len(paths) > _MOST_FIELDS:
            raise RecordError(
                "records have too many fields to infer columns",
                id="RECORD_FIELDS_TOO_MANY",
                expected=f"at most {_MOST_FIELDS}",
                found=f"{len(paths)}, such as {paths[-1]!r:.100}",
                todo="declare the converter's fields, with a map ({'*': TYPE}) for keys of any name;"
                " or, once some fields are inferred, set evolution to pin",
            )
        if self.fields is not None and self.evolution == "fail":
            new = [path for path in paths if path not in set(known)]
            raise RecordError(
                NEW_FIELDS,
                id="RECORD_FIELDS_NEW",
                expected=f"at most the fields of schema {self.ids[-1]}",
                found=", ".join(f"{path!r:.100}" for path in new[:_SHOWN_FIELDS])
                + (f", and {len(new) - _SHOWN_FIELDS} more" if len(new) > _SHOWN_FIELDS else ""),
                todo="check what the producer changed; `evolve` adds new fields, `pin` ignores them",
            )
