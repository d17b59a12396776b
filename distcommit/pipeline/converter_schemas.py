"""Pass each converter's schema ids from the dataset's state to its work units, and back into the commit sequence.

A converter is identified by its name in the flow, with the branch in front if it is behind a fork: `lake.avro`. The
columns of a branch's published files are kept like the schemas of a converter with the name `published_columns`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from distcommit.core.interfaces.constructs import Converter
from distcommit.core.support.decoding import from_json
from distcommit.core.work_units import MAIN_BRANCH, SchemaIds, WorkUnit, merge_schema_ids
from distcommit.pipeline.task_flow import Branch, Stage
from distcommit.schemas.evolution_policy import EvolutionPolicy
from distcommit.schemas.published_columns import PublishedColumns
from distcommit.stores.schemas.schema_history import SchemaStore

_PROPERTY = "converter_schemas"
_PUBLISHED = "published_columns"


def with_schemas(unit: WorkUnit, schemas: SchemaIds) -> WorkUnit:
    """Return the work unit with these schemas as a property."""
    if not schemas:
        return unit
    return replace(unit, properties={**unit.properties, _PROPERTY: msgspec.json.encode(schemas).decode()})


def begin_converter(stage: Stage, unit: WorkUnit, schema_store: SchemaStore | None, branch: str = "") -> None:
    """Pass a work unit to a converter, with its schema store and its schema ids."""
    if not isinstance(stage.construct, Converter):
        return
    stage.construct.begin_work_unit(unit)
    if schema_store is not None:
        stage.construct.use_schema_store(schema_store.of(unit.dataset_urn, _name(stage.name, branch)))
    stage.construct.load_schema_ids(_schema_ids(unit, _name(stage.name, branch)))


def begin_columns(
    branch: Branch, shared: Sequence[Stage], unit: WorkUnit, schema_store: SchemaStore | None
) -> PublishedColumns | None:
    """Return the columns of the files that a branch has published. None if their types may change.

    Args:
        branch: the branch.
        shared: stages before the fork.
        unit: the work unit.
        schema_store: where the columns are stored; None if the work unit has its own.
    """
    stages = [*shared, *branch.stages]
    if not branch.sink.keeps_column_types or any(_accepts_all_types(stage) for stage in stages):
        return None
    columns, name = PublishedColumns(", ".join(stage.name for stage in stages)), _name(_PUBLISHED, branch.name)
    columns.history.store = None if schema_store is None else schema_store.of(unit.dataset_urn, name)
    columns.history.load_ids(_schema_ids(unit, name))
    return columns


def converter_schemas(stages: Iterable[Stage], branch: str = "", columns: PublishedColumns | None = None) -> SchemaIds:
    """Return the schema ids of stages and columns at the end of a work unit. `branch` is empty before the fork."""
    ids_by_name = {
        _name(stage.name, branch): tuple(map(int, stage.construct.schema_ids()))
        for stage in stages
        if isinstance(stage.construct, Converter)
    }
    if columns is not None:
        ids_by_name[_name(_PUBLISHED, branch)] = tuple(columns.history.ids)
    return merge_schema_ids({name: ids for name, ids in ids_by_name.items() if ids})


def _schema_ids(unit: WorkUnit, name: str) -> tuple[int, ...]:
    return from_json(unit.properties.get(_PROPERTY, "{}"), SchemaIds).get(name, ())


def _accepts_all_types(stage: Stage) -> bool:
    """Return whether the stage accepts incompatible records of some datasets."""
    if not isinstance(stage.construct, EvolutionPolicy):
        return False
    policies = [stage.construct, *getattr(stage.construct, "datasets", ())]
    return any(policy.on_incompatible == "accept" for policy in policies)


def _name(name: str, branch: str) -> str:
    return f"{branch}.{name}" if branch not in ("", MAIN_BRANCH) else name
