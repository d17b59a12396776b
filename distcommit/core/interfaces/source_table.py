"""Extracts: descriptions of the table that a dataset is read from, as far as the source knows it."""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from distcommit.core.errors import SourceError
from distcommit.core.support.decoding import from_json
from distcommit.core.work_units import WorkUnit

EXTRACT = "extract"
"""Property of a work unit that holds its `Extract` as JSON."""


class TableType(StrEnum):
    """How the records of a run relate to those of earlier runs."""

    SNAPSHOT_ONLY = "snapshot_only"
    """Each run reads the whole table."""
    APPEND_ONLY = "append_only"
    """Each run reads added rows."""
    SNAPSHOT_APPEND = "snapshot_append"
    """Each run reads added or changed rows; the newest row with a key counts."""


class Extract(msgspec.Struct, frozen=True):
    """The table that a dataset is an extract of.

    Attributes:
        namespace: the container of the table: a schema, a database, `kafka`, `files`, `rest`.
        table: the table's name in the namespace.
        type: how the records of a run relate to those of earlier runs.
        keys: columns that together are unique; empty if the source knows none.
        delta_fields: columns whose values identify new or newer rows.
    """

    namespace: str
    table: str
    type: TableType
    keys: tuple[str, ...] = ()
    delta_fields: tuple[str, ...] = ()


def with_extract(unit: WorkUnit, extract: Extract) -> WorkUnit:
    """Return the work unit with this extract as a property, which overrides the source's extract of the dataset."""
    return replace(unit, properties={**unit.properties, EXTRACT: msgspec.json.encode(extract).decode()})


def extract_of(unit: WorkUnit, of_source: Extract | None) -> Extract | None:
    """Return the extract of a work unit: its own property if it has one, otherwise `of_source`.

    Raises:
        SourceError: if the property is not an `Extract`.
    """
    stored = unit.properties.get(EXTRACT)
    if stored is None:
        return of_source
    try:
        return from_json(stored, Extract)
    except msgspec.DecodeError as error:
        raise SourceError(
            "a property of a work unit is invalid",
            id="SOURCE_PLAN_INVALID",
            dataset=unit.dataset_urn,
            work_unit=unit.work_unit_id,
            property=EXTRACT,
            expected="an Extract, as `with_extract` writes it",
            found=str(error),
            todo="correct the source's plan",
        ) from error
