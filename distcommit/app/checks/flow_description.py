"""The description of a job's task flow, from its settings alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import yaml
from pydantic import BaseModel

from distcommit.app.job_file.job_config import JobConfig
from distcommit.core.interfaces.constructs import Converter
from distcommit.pipeline.task_flow import DROP, REJECT, Branch, FlowColumns, Stage, TaskFlow
from distcommit.schemas.known_columns import UNKNOWN, Columns

_SHOWN_ELSEWHERE = {"type", "level", "on_failure"}
_PASSWORD = re.compile(r"(?<=://)([^/@\s:]*):[^/@\s]*@")
_OUTCOMES = {
    "divert": "to the error branch",
    "drop": "dropped, and counted",
    "fail": "the work unit fails",
}


_UNCHECKED = {
    (True, False): "not passed: the attempt fails",
    (True, True): "not passed: the branch fails",
    (False, False): "not passed: only reported",
    (False, True): "not passed: only reported",
}

_VISIBLE_IN_PART = "not atomic: readers may see a part of a dataset while it is committed, and after a kill until it is"


class FlowColumn(msgspec.Struct, frozen=True):
    """A column of records.

    Attributes:
        name: name of the column.
        type: the type, with `not null` if values are required; `?` if only records determine it.
    """

    name: str
    type: str


class FlowPart(msgspec.Struct, frozen=True):
    """A construct of the flow.

    Attributes:
        kind: source, converter, row checker, fork, sink, task checker or error branch.
        name: the construct's type; with a number if its chain has several of the type.
        settings: settings that differ from the defaults, on one line. Secrets are masked.
        on_rejected: how rejected records or attempts are handled; empty if the construct rejects none. For a sink that
            is not atomic: which part of a commit readers may see.
        columns: known columns of the output of a source, a converter or a row checker; None if only records determine
            them.
        has_other_columns: whether records may have other columns, too.
    """

    kind: str
    name: str
    settings: str = ""
    on_rejected: str = ""
    columns: list[FlowColumn] | None = None
    has_other_columns: bool = False


class FlowBranch(msgspec.Struct, frozen=True):
    """The constructs of a branch. Without a fork there is one branch.

    Attributes:
        name: name of the branch; `main` without a fork.
        parts: converters and row checkers in order, then the sink and the task checkers.
        optional: whether the other branches are committed if this one fails.
    """

    name: str
    parts: list[FlowPart]
    optional: bool = False


class FlowDescription(msgspec.Struct, frozen=True):
    """A job's task flow.

    Attributes:
        job: name of the job.
        parts: the source, and the constructs before branches in order.
        fork: the fork; None if there is one branch only.
        branches: branches in the order of the job file.
        errors: error branch; None if no record can be diverted to it.
    """

    job: str
    parts: list[FlowPart]
    fork: FlowPart | None
    branches: list[FlowBranch]
    errors: FlowPart | None


def describe_flow(config: JobConfig) -> FlowDescription:
    """Return the flow of a job.

    Raises:
        ConfigurationError: if two constructs are incompatible, or a custom class or function can't be used.
    """
    config.source.check_code()
    flow = config.task_flow()
    flow.check()
    begin = FlowColumns.of(flow.source)
    source = FlowPart("source", _type_of(flow.source), _settings(flow.source), "", *known_columns(begin.columns))
    parts = [source, *_stages(flow.stages, begin)]
    reached = begin.after(flow.stages)
    fork = None
    if flow.fork is not None:
        fork = FlowPart("fork", _type_of(flow.fork), _settings(flow.fork), f"unmatched: {_unmatched(flow)}")
    return FlowDescription(
        config.job, parts, fork, [_branch(branch, reached) for branch in flow.branches], _errors(flow)
    )


def _unmatched(flow: TaskFlow) -> str:
    if flow.unmatched == REJECT:
        return _OUTCOMES[flow.on_rejected]
    return _OUTCOMES["drop"] if flow.unmatched == DROP else f"to branch {flow.unmatched}"


def _errors(flow: TaskFlow) -> FlowPart | None:
    stages = [stage for chain in (flow.stages, *(branch.stages for branch in flow.branches)) for stage in chain]
    diverts = any(stage.is_mandatory and stage.on_failure == "divert" for stage in stages)
    optional = any(branch.optional for branch in flow.branches)
    if not (diverts or optional) and (flow.fork is None or flow.unmatched != REJECT or flow.on_rejected != "divert"):
        return None
    settings = f"format: {flow.errors.format}; records as they were read, with construct and reason"
    return FlowPart("error branch", flow.errors.name, settings)


def _branch(branch: Branch, reached: FlowColumns) -> FlowBranch:
    checks = [
        FlowPart(
            "task checker",
            check.name,
            _settings(check.checker),
            _UNCHECKED[check.is_mandatory, branch.optional],
        )
        for check in branch.checks
    ]
    able = branch.sink.abilities
    observed = "" if able.atomic or able.files else _VISIBLE_IN_PART
    sink = FlowPart("sink", branch.sink.name, _settings(branch.sink), observed)
    return FlowBranch(branch.name, [*_stages(branch.stages, reached), sink, *checks], branch.optional)


def _stages(stages: Sequence[Stage], reached: FlowColumns) -> Iterator[FlowPart]:
    for stage in stages:
        construct, outcome = stage.construct, _OUTCOMES[stage.on_failure]
        reached = reached.after([stage])
        columns, others = known_columns(reached.columns)
        if isinstance(construct, Converter):
            several = "makes several records of one; " if construct.makes_several else ""
            requirement = f"{several}not converted: {outcome}"
            yield FlowPart("converter", stage.name, _settings(construct), requirement, columns, others)
        else:
            requirement = f"expects {construct.describe()}; else {outcome if stage.is_mandatory else 'only counted'}"
            yield FlowPart("row checker", stage.name, _settings(construct), requirement, columns, others)


def _type_of(construct: object) -> str:
    return str(getattr(construct, "type", type(construct).__name__))


def _settings(construct: object) -> str:
    if not isinstance(construct, BaseModel):
        return ""
    dumped = construct.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=_SHOWN_ELSEWHERE)
    shown = _masked(dumped)
    text = yaml.safe_dump(shown, default_flow_style=True, width=float("inf"), sort_keys=False, allow_unicode=True)
    return _PASSWORD.sub(r"\1:***@", text.strip().removeprefix("{").removesuffix("}"))


def _masked(value: Any) -> Any:
    """Return a value with the options of clients hidden, which may contain secrets."""
    if isinstance(value, list):
        return [_masked(below) for below in value]
    if not isinstance(value, Mapping):
        return value
    handed_on = ("client", "options")
    return {
        name: dict.fromkeys(below, "***") if name in handed_on and isinstance(below, Mapping) else _masked(below)
        for name, below in value.items()
    }


def known_columns(columns: Columns) -> tuple[list[FlowColumn] | None, bool]:
    """Return the known columns, None if there are none, and whether there may be others."""
    types = ["?" if kind == UNKNOWN else str(kind) for kind in columns.fields.types]
    nullable = ["" if field.nullable else " not null" for field in columns.fields]
    named = zip(columns.fields.names, types, nullable, strict=True)
    flow_columns = [FlowColumn(name, kind + suffix) for name, kind, suffix in named]
    return flow_columns or None, columns.may_have_others
