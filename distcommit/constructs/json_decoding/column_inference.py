"""Inference of a dataset's columns. Inferred types never change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa

from distcommit.constructs.json_decoding.json_reader import JsonReader, JsonRecords
from distcommit.core.errors import NEW_FIELDS, RecordError
from distcommit.schemas.column_types import arrow_type, field_name
from distcommit.schemas.inferred_fields import (
    Fields,
    field_paths,
    infer_names,
    merged_fields,
    typed_fields,
    wire_schema,
)
from distcommit.schemas.schema_history import Evolution, SchemaHistory
from distcommit.schemas.schema_size_limits import MAX_INFERRED_FIELDS

_SHOWN_FIELDS = 3


def columns_of_fields(fields: Fields) -> pa.Schema:
    """Return the columns of a job file's fields; raises ValueError for an unknown type."""
    return pa.schema([(field_name(name), arrow_type(written)) for name, written in fields.items()])


json_reader = lru_cache(64)(JsonReader)


@dataclass(slots=True)
class InferredFields:
    """The inferred fields of one dataset. Not picklable.

    The fields are inferred from the first batch that contains an object, and with `evolve` also from later batches.
    Each set of fields contains all earlier sets.

    Attributes:
        evolution: the policy for unknown fields.
        history: the sets of fields.
        names: the fields, and names whose values were always null or empty. Records are not searched for these names
            again.
        notes: notes on doubtful types.
    """

    evolution: Evolution
    history: SchemaHistory[Fields] = field(default_factory=lambda: SchemaHistory(lambda fields: fields, dict))
    names: Fields = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def pinned(self) -> pa.Schema | None:
        """Columns that `pin` has fixed, or None."""
        fields = self.history.read_newest() if self.evolution == "pin" else None
        return None if fields is None else columns_of_fields(fields)

    def read(self, values: pa.Array) -> tuple[pa.Schema, JsonRecords]:
        """Infer fields from the values, unless they are pinned, and read one object from each value. Return the columns
        and the records.

        Raises:
            RecordError: if there are too many fields, or with `fail` an unknown field.
        """
        if self.history.newest is None:
            self.names = self.history.read_newest() or {}
        fields = self.history.newest
        if fields is not None and self.evolution != "pin":
            columns = columns_of_fields(fields)
            read = json_reader(columns, exact_floats=True).read_if_no_new_field(values, wire_schema(self.names))
            if read is not None:
                return columns, read
        if fields is None or self.evolution != "pin":
            names = infer_names(values)
            new = typed_fields(names)
            self.history.extend(self.evolution, lambda newest: self._merged(newest, new))
            self.names = merged_fields(merged_fields(self.history.newest or {}, names), self.names)
        columns = columns_of_fields(self.history.newest or {})
        return columns, json_reader(columns, exact_floats=True).read(values)

    def columns_with(self, infer: Callable[[Fields], Fields]) -> pa.Schema:
        """Add the new fields that the policy allows, and return the columns; raises the errors of `read`. `infer`
        returns fields that its argument lacks."""
        known = self.history.newest or self.history.read_newest()
        if known is None or self.evolution != "pin":
            new = infer(known or {})
            self.history.extend(self.evolution, lambda newest: self._merged(newest, new))
        return columns_of_fields(self.history.newest or {})

    def _merged(self, newest: Fields | None, new: Fields) -> Fields | None:
        """Return the fields including new ones; None if no field is new. Raises the errors of `read`."""
        requested = merged_fields(newest or {}, new)
        if requested == (newest or {}):
            return None
        paths = field_paths(requested)
        if len(paths) > MAX_INFERRED_FIELDS:
            raise RecordError(
                "records have too many fields to infer columns",
                id="RECORD_FIELDS_TOO_MANY",
                expected=f"at most {MAX_INFERRED_FIELDS}",
                found=f"{len(paths)}, such as {paths[-1]!r:.100}",
                todo="declare the converter's fields, with a map ({'*': TYPE}) for keys of any name;"
                " or, once some fields are inferred, set evolution to pin",
            )
        if newest is not None and self.evolution == "fail":
            earlier = {*field_paths(newest)}
            added = [path for path in paths if path not in earlier]
            raise RecordError(
                NEW_FIELDS,
                id="RECORD_FIELDS_NEW",
                expected=f"at most the fields of schema {', '.join(map(str, self.history.ids[-1:])) or 'before'}",
                found=", ".join(f"{path!r:.100}" for path in added[:_SHOWN_FIELDS])
                + (f", and {len(added) - _SHOWN_FIELDS} more" if len(added) > _SHOWN_FIELDS else ""),
                todo="check what the producer changed; `evolve` adds new fields, `pin` ignores them",
            )
        return requested
