"""Collection of the properties that an attempt's parts record."""

from __future__ import annotations

from collections.abc import Sequence

from distcommit.core.task_properties import RecordsProperties, TaskProperties, with_properties
from distcommit.pipeline.branches.branch_pipeline import BranchPipeline
from distcommit.pipeline.converter_schema_ids import name_in_flow
from distcommit.pipeline.limits.time_limit import construct_time_limit
from distcommit.pipeline.task_flow import TaskFlow


def properties_of_parts(
    flow: TaskFlow, pipelines: Sequence[BranchPipeline], extraction: RecordsProperties | None
) -> TaskProperties:
    """Return the properties that extraction and constructs recorded.

    Raises:
        ConfigurationError: if a property cannot be stored, or a limit is exceeded.
    """
    properties: TaskProperties = {}
    if extraction is not None:
        properties = with_properties(properties, "source", extraction.task_properties())
    for stage in flow.stages:
        with construct_time_limit(flow.construct_seconds, stage.name):
            properties = with_properties(properties, name_in_flow(stage, ""), stage.construct.task_properties())
    for pipeline in pipelines:
        for stage in pipeline.stages:
            name = name_in_flow(stage, pipeline.branch.name)
            with pipeline.at(stage.name), construct_time_limit(flow.construct_seconds, stage.name):
                properties = with_properties(properties, name, stage.construct.task_properties())
        for check, task_check in zip(pipeline.branch.checks, pipeline.checks, strict=False):
            name = f"{pipeline.branch.name}.task_checkers.{check.name}"
            with pipeline.at(check.name), construct_time_limit(flow.construct_seconds, check.name):
                properties = with_properties(properties, name, task_check.task_properties())
    return properties


def with_properties_of_writers(properties: TaskProperties, pipelines: Sequence[BranchPipeline]) -> TaskProperties:
    """Add the writers' properties; raises the errors of `properties_of_parts`."""
    for pipeline in pipelines:
        properties = with_properties(properties, f"{pipeline.branch.name}.writer", pipeline.writer_properties)
    return properties
