"""What a source knows of the table that a dataset is an extract of."""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from distcommit.core.errors import SourceError
from distcommit.core.work import WorkUnit
from distcommit.decoding import from_json

EXTRACT = "extract"
"""Property of a work unit: its `Extract`, as JSON."""


class TableType(StrEnum):
    """How what is read in one run stands to what was read before: all of the table anew; rows that were added; or rows
    that were added or changed, of which the newest with the same keys counts."""

    SNAPSHOT_ONLY = "snapshot_only"
    APPEND_ONLY = "append_only"
    SNAPSHOT_APPEND = "snapshot_append"


class Extract(msgspec.Struct, frozen=True):
    """The table that a dataset is an extract of.

    Attributes:
        namespace: what the table is in: a schema, a database, `kafka`, `files`, `rest`.
        table: its name there.
        type: how runs stand to each other.
        keys: columns that together are different in each row; empty if the source knows none.
        delta_fields: columns that say what is new or newer.
    """

    namespace: str
    table: str
    type: TableType
    keys: tuple[str, ...] = ()
    delta_fields: tuple[str, ...] = ()


def with_extract(unit: WorkUnit, extract: Extract) -> WorkUnit:
    """The work unit with this as a property, which wins over what its source says of the dataset."""
    return replace(unit, properties={**unit.properties, EXTRACT: msgspec.json.encode(extract).decode()})


def extract_of(unit: WorkUnit, of_source: Extract | None) -> Extract | None:
    """What a work unit is an extract of: its own property, else what its source says of the dataset.

    Raises:
        SourceError: if the property is no `Extract`.
    """
    found = unit.properties.get(EXTRACT)
    if found is None:
        return of_source
    try:
        return from_json(found, Extract)
    except msgspec.DecodeError as error:
        raise SourceError(
            "a property of a work unit can't be read",
            dataset=unit.dataset_urn,
            work_unit=unit.work_unit_id,
            property=EXTRACT,
            expected="an Extract, as `with_extract` writes it",
            found=str(error),
            todo="correct the source's plan",
        ) from error
