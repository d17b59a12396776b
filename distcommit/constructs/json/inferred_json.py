"""JSON objects into columns that are inferred from them, and pinned with their dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import pyarrow as pa

from distcommit.constructs.json.json_fields import Fields, added, names_in, paths_in, typed, wire_schema
from distcommit.constructs.json.json_records import JsonReader, JsonRecords
from distcommit.constructs.schemas.column_types import arrow_type, field_name
from distcommit.core.errors import NEW_FIELDS, RecordError
from distcommit.core.interfaces.constructs import KeptSchemas

Evolution = Literal["evolve", "pin", "fail"]

_MOST_FIELDS = 1000
_FIELDS_TOLD = 3


def columns_of(fields: Fields) -> pa.Schema:
    """The columns of written fields. Raises ValueError."""
    return pa.schema([(field_name(name), arrow_type(written)) for name, written in fields.items()])


reader_of = lru_cache(64)(JsonReader)


@dataclass(slots=True)
class _KeptNowhere:
    """Where there is no store: each work unit for itself."""

    def schema(self, schema_id: int) -> Mapping[str, Any]:
        raise RecordError("there is no store to read a schema from", found=f"schema {schema_id}")

    def put_next(self, after: int, schema: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        return after + 1, schema


@dataclass(slots=True)
class InferredFields:
    """The fields of one dataset's objects: those that are pinned, or of the first batch with an object, and with
    `evolve` those of later ones. It is not sent to other processes.

    Each set of fields is put where all tasks of the run find it before anything is read by it, and has those before it
    in it. So two tasks that infer at once go by the same: the second takes what the first has put, and may put more.

    Attributes:
        evolution: what becomes of fields that are not known.
        ids: those of the sets that are known, the newest last.
        fields: the newest one; None: not looked at yet, or there is none.
        names: these, and those that were only ever null or empty, so that records are not searched for them again.
    """

    evolution: Evolution
    kept: KeptSchemas = field(default_factory=_KeptNowhere)
    ids: list[int] = field(default_factory=list)
    fields: Fields | None = None
    names: Fields = field(default_factory=dict)

    def know(self, ids: Sequence[int]) -> None:
        """Takes in those that the dataset's published records are of."""
        self.ids, self.fields, self.names = sorted(ids), None, {}

    def read(self, values: pa.Array) -> tuple[pa.Schema, JsonRecords]:
        """Reads one object from each value, by what is known once they were looked at; also the columns that it made.

        Raises:
            RecordError: if the work unit is to fail: with `fail` for a field that is not known, or for too many.
        """
        if self.fields is None and self.ids:
            self.fields = self.names = self.kept.schema(self.ids[-1])
        if self.fields is not None and self.evolution != "pin":
            columns = columns_of(self.fields)
            read = reader_of(columns, exact_floats=True).read_if_all_known(values, wire_schema(self.names))
            if read is not None:
                return columns, read
        if self.fields is None or self.evolution != "pin":
            names = names_in(values)
            self._take_in(typed(names))
            self.names = added(added(self.fields or {}, names), self.names)
        columns = columns_of(self.fields or {})
        return columns, reader_of(columns, exact_floats=True).read(values)

    def _take_in(self, found: Fields) -> None:
        """Takes in what records have, and what other tasks have found before."""
        while (wanted := added(self.fields or {}, found)) != (self.fields or {}):
            if self.fields is not None and self.evolution == "pin":
                return
            self._check(wanted)
            number, self.fields = self.kept.put_next(self.ids[-1] if self.ids else 0, wanted)
            self.ids.append(number)

    def _check(self, wanted: Fields) -> None:
        paths, known = paths_in(wanted), paths_in(self.fields or {})
        if len(paths) > _MOST_FIELDS:
            raise RecordError(
                "records have more fields than are made columns without being asked for",
                expected=f"at most {_MOST_FIELDS}",
                found=f"{len(paths)}, such as {paths[-1]!r:.100}",
                todo="declare the converter's fields, with a map ({'*': TYPE}) for those of any name; or, once some are"
                " pinned, set evolution to pin",
            )
        if self.fields is not None and self.evolution == "fail":
            new = [path for path in paths if path not in set(known)]
            raise RecordError(
                NEW_FIELDS,
                expected=f"at most the fields of schema {self.ids[-1]}",
                found=", ".join(f"{path!r:.100}" for path in new[:_FIELDS_TOLD])
                + (f", and {len(new) - _FIELDS_TOLD} more" if len(new) > _FIELDS_TOLD else ""),
                todo="look at what the producer has changed; evolve takes such fields in, and pin passes over them",
            )
