"""Settings of constructs for single work units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from distcommit.core.interfaces.work_unit_settings import invalid_settings, settings_of
from distcommit.core.support.settings_model import SettingsModel
from distcommit.core.work_units import WorkUnit
from distcommit.custom_class import CustomClass
from distcommit.pipeline.converter_schema_ids import name_in_flow
from distcommit.pipeline.task_flow import TaskFlow

_OF_THE_JOB = frozenset({"type", "class", "level", "on_failure", "only_datasets", "registry", "key"})
"""Settings of the job alone: how constructs are treated, and credentials."""
Construct = TypeVar("Construct")


def flow_of_unit(flow: TaskFlow, unit: WorkUnit) -> TaskFlow:
    """Return a flow whose constructs have a work unit's settings.

    Sinks keep the job's settings, because they locate the proof of a commit.

    Raises:
        SourceError: if a construct does not exist or cannot have these settings.
    """
    settings = settings_of(unit)
    if not settings:
        return flow
    names = set[str]()

    def merged(name: str, construct: Construct) -> Construct:
        names.add(name)
        return _merged(unit, name, construct, settings[name]) if name in settings else construct

    stages = [replace(stage, construct=merged(name_in_flow(stage, ""), stage.construct)) for stage in flow.stages]
    branches = [
        replace(
            branch,
            stages=[
                replace(stage, construct=merged(name_in_flow(stage, branch.name), stage.construct))
                for stage in branch.stages
            ],
            checks=[
                replace(check, checker=merged(f"{branch.name}.task_checkers.{check.name}", check.checker))
                for check in branch.checks
            ],
        )
        for branch in flow.branches
    ]
    fork = None if flow.fork is None else merged("fork", flow.fork)
    if unknown := settings.keys() - names:
        expected = f"one of {', '.join(sorted(names))}" if names else "no settings, because there is no construct"
        raise invalid_settings(unit, min(unknown), expected, "an unknown construct")
    return replace(flow, stages=stages, branches=branches, fork=fork)


def _refers(value: Any) -> bool:
    """Return whether data has a reference, such as `${file:PATH}`, which a custom class would resolve."""
    if isinstance(value, Mapping):
        return any(_refers(key) or _refers(each) for key, each in value.items())
    if isinstance(value, list):
        return any(map(_refers, value))
    return isinstance(value, str) and "${" in value


def _merged(unit: WorkUnit, name: str, construct: Construct, settings: Mapping[str, Any]) -> Construct:
    if _refers(settings):  # a source may have the text from a stranger, such as the name of a table
        raise invalid_settings(unit, name, "plain values", "a reference with ${")
    if not isinstance(construct, SettingsModel):
        raise invalid_settings(unit, name, "a construct of the job file", type(construct).__name__)
    if isinstance(construct, CustomClass):
        settings = {"options": {**construct.options, **settings}}
    elif fixed := _OF_THE_JOB & settings.keys():
        raise invalid_settings(unit, name, "settings of the construct itself", f"{min(fixed)}, a setting of the job")
    fields = type(construct).model_fields
    own = {fields[field].alias or field: getattr(construct, field) for field in construct.model_fields_set}
    try:
        return type(construct).model_validate({**own, **settings})
    except ValueError as error:
        raise invalid_settings(unit, name, "settings that the construct accepts", error) from error
