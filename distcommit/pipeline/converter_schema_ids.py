"""Converters' schema ids, from a dataset's state to work units and back. The name of a converter behind a fork
begins with its branch (`lake.avro`)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from distcommit.core.interfaces.constructs import Converter
from distcommit.core.support.decoding import from_json
from distcommit.core.work_units import COLUMN_NOTE, MAIN_BRANCH, CheckOutcome, SchemaIds, WorkUnit, merge_schema_ids
from distcommit.pipeline.task_flow import Stage
from distcommit.stores.schemas.schema_store import SchemaStore

_PROPERTY = "converter_schemas"


def with_schemas(unit: WorkUnit, schemas: SchemaIds) -> WorkUnit:
    if not schemas:
        return unit
    return replace(unit, properties={**unit.properties, _PROPERTY: msgspec.json.encode(schemas).decode()})


def begin_stage(stage: Stage, unit: WorkUnit, schema_store: SchemaStore | None, branch: str = "") -> None:
    """Pass a work unit to a stage. A converter also gets its schema store and ids."""
    stage.construct.begin_work_unit(unit)
    if not isinstance(stage.construct, Converter):
        return
    if schema_store is not None:
        stage.construct.use_schema_store(schema_store.of(unit.dataset_urn, name_in_flow(stage, branch)))
    ids = from_json(unit.properties.get(_PROPERTY, "{}"), SchemaIds)
    stage.construct.load_schema_ids(ids.get(name_in_flow(stage, branch), ()))


def converter_schemas(stages: Iterable[tuple[Stage, str]]) -> SchemaIds:
    """Return the schema ids of an ended attempt by converter. `stages`: stages with their branches."""
    ids_by_name = {
        name_in_flow(stage, branch): tuple(map(int, stage.construct.schema_ids()))
        for stage, branch in stages
        if isinstance(stage.construct, Converter)
    }
    return merge_schema_ids({name: ids for name, ids in ids_by_name.items() if ids})


def converter_notes(*chains: Iterable[Stage]) -> tuple[CheckOutcome, ...]:
    constructs = [stage.construct for stages in chains for stage in stages]
    notes = [text for construct in constructs if isinstance(construct, Converter) for text in construct.column_notes()]
    return tuple(CheckOutcome(COLUMN_NOTE, True, False, text) for text in notes)


def name_in_flow(stage: Stage, branch: str) -> str:
    """Return a stage's name; behind a fork, with the branch in front."""
    return f"{branch}.{stage.name}" if branch not in ("", MAIN_BRANCH) else stage.name
