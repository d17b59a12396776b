"""The sections of a job file that define its task flow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, PlainValidator, model_validator

from distcommit.app.job_file.built_in import validated
from distcommit.constructs.settings import RowCheckerSettings, TaskCheckerSettings
from distcommit.core.interfaces.constructs import Converter, ForkOperator
from distcommit.core.interfaces.sink import SinkSettings
from distcommit.core.interfaces.source import SourceSettings
from distcommit.core.work import ERRORS, MAIN_BRANCH
from distcommit.pipeline.task_flow import Branch, Check, Stage, TaskFlow

ConverterSection = Annotated[Converter, PlainValidator(partial(validated, "converter"))]
RowCheckerSection = Annotated[RowCheckerSettings, PlainValidator(partial(validated, "row_checker"))]
TaskCheckerSection = Annotated[TaskCheckerSettings, PlainValidator(partial(validated, "task_checker"))]
SourceSection = Annotated[SourceSettings, PlainValidator(partial(validated, "source"))]
SinkSection = Annotated[SinkSettings, PlainValidator(partial(validated, "sink", default="files"))]
_UNREAD = "source"
_AT_SINK = "sink"
"""The construct that rejects what the sink cannot take."""
OnRejected = Literal["fail", "divert"]


def _files() -> Any:
    return validated("sink", {}, "files")


class ChainSettings(BaseModel, frozen=True, extra="forbid", arbitrary_types_allowed=True):
    """Converters, row checkers, sink and task checkers: of a branch, or of a job without branches."""

    converters: tuple[ConverterSection, ...] = ()
    row_checkers: tuple[RowCheckerSection, ...] = ()
    sink: SinkSection = Field(default_factory=_files)
    task_checkers: tuple[TaskCheckerSection, ...] = ()

    def stages(self, on_rejected: OnRejected) -> tuple[Stage, ...]:
        """Return the flow's stages: converters, then row checkers."""
        names = _named([str(getattr(each, "type", "")) for each in (*self.converters, *self.row_checkers)])
        converters = [Stage(next(names), converter, on_failure=on_rejected) for converter in self.converters]
        checkers = [
            Stage(next(names), checker, checker.level == "mandatory", checker.on_failure)
            for checker in self.row_checkers
        ]
        return (*converters, *checkers)

    def checks(self) -> tuple[Check, ...]:
        """Return the flow's task checkers."""
        names = _named([each.type for each in self.task_checkers])
        return tuple(Check(next(names), each, each.level == "mandatory") for each in self.task_checkers)


class BranchSettings(ChainSettings, frozen=True, extra="forbid", arbitrary_types_allowed=True):
    """A branch behind a fork: its own converters, row checkers, task checkers and sink.

    Attributes:
        optional: whether the others commit if it fails; its records then go to its error branch.
    """

    optional: bool = False


class ForkSettings(BaseModel, frozen=True, extra="forbid", arbitrary_types_allowed=True):
    """The fork operator, and the branches."""

    operator: ForkOperator
    branches: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")], BranchSettings] = Field(
        min_length=1
    )

    @model_validator(mode="after")
    def _branches_can_be_told_apart(self) -> ForkSettings:
        for reserved in (MAIN_BRANCH, ERRORS):
            if reserved in self.branches:
                raise ValueError(f"{reserved!r} must not be the name of a branch: give it another name")
        names = Counter(branch.sink.name for branch in self.branches.values() if branch.sink.committers)
        for name, found in names.items():
            if found > 1:
                raise ValueError(
                    f"{found} branches have a sink of the name {name!r}, which commits are stored with: give all but"
                    " one of them a `stored_as`"
                )
        places = Counter(filter(None, (branch.sink.writes_to for branch in self.branches.values())))
        for place, found in places.items():
            if found > 1:
                raise ValueError(
                    f"{found} branches write their records to {place}: their rows could not be distinguished"
                )
        lasting = [name for name, branch in self.branches.items() if not branch.sink.abilities.can_roll_back]
        if len(lasting) > 1:
            raise ValueError(
                f"the sinks of {' and '.join(lasting)} can't take a commit back, which is allowed in one "
                "branch at most: a commit of one would be final if the other refuses"
            )
        if all(branch.optional for branch in self.branches.values()):
            raise ValueError("at least one branch must not be optional: otherwise no failure would fail a work unit")
        self.operator.check_branches(list(self.branches))
        return self


def _fork(value: Any) -> ForkSettings:
    """Return the section `fork`: the operator's settings, and beside them `branches`. Raises ValueError, or
    pydantic's."""
    if isinstance(value, ForkSettings):
        return value
    if not isinstance(value, Mapping):
        raise ValueError("a section, with `type`, settings and `branches`")  # noqa: TRY004 - pydantic wants these
    operator = validated("fork", {key: each for key, each in value.items() if key != "branches"})
    return ForkSettings.model_validate({"operator": operator, "branches": value.get("branches")})


ForkSection = Annotated[ForkSettings, PlainValidator(_fork)]


class FlowSettings(ChainSettings, frozen=True, extra="forbid", arbitrary_types_allowed=True):
    """A job's flow. With a fork each branch has its own sink and task checkers; the job's constructs come first."""

    source: SourceSection
    on_rejected: OnRejected = "fail"
    fork: ForkSection | None = None

    @model_validator(mode="before")
    @classmethod
    def _decoding_is_a_converter(cls, tree: Any) -> Any:
        for old, new in (("value", "converters: [{type: json, fields: ...}]"), ("on_undecodable", "on_rejected")):
            if isinstance(tree, Mapping) and old in tree:
                raise ValueError(f"`{old}` is now said by `{new}`")
        return tree

    @model_validator(mode="before")
    @classmethod
    def _all_branches_are_tried_out(cls, tree: Any) -> Any:
        """Apply one section `sink` of a preview to all branches."""
        match tree:
            case {"sink": sink, "fork": {"branches": Mapping() as named} as fork} if _shows(sink):
                branches = {name: {**(branch or {}), "sink": sink} for name, branch in named.items()}
                rest = {key: value for key, value in tree.items() if key != "sink"}
                return {**rest, "fork": {**fork, "branches": branches}}
        return tree

    @model_validator(mode="after")
    def _branches_have_sinks(self) -> FlowSettings:
        beside = self.model_fields_set & {"sink", "task_checkers"}
        if self.fork is not None and beside:
            raise ValueError(f"with a fork, {' and '.join(sorted(beside))} go into each of fork.branches")
        return self

    def task_flow(self) -> TaskFlow:
        """Return the flow."""
        stages, fork, unread = self.stages(self.on_rejected), self.fork, self.source.rejection_check
        if unread is not None:
            stages = (Stage(_UNREAD, unread, on_failure=self.on_rejected), *stages)
        if fork is None:
            return TaskFlow(
                self.source, (Branch(self.sink, checks=self.checks()),), (*stages, *self._at_sink(self.sink))
            )
        branches = tuple(
            Branch(
                branch.sink,
                name,
                (*branch.stages(self.on_rejected), *self._at_sink(branch.sink)),
                branch.checks(),
                branch.optional,
            )
            for name, branch in fork.branches.items()
        )
        return TaskFlow(self.source, branches, stages, fork.operator, self.on_rejected)

    def _at_sink(self, sink: SinkSettings) -> tuple[Stage, ...]:
        """Return the check of records that a sink can't take, as the last stage before it."""
        check = sink.rejection_check
        return () if check is None else (Stage(_AT_SINK, check, on_failure=self.on_rejected),)

    def sink_sections(self) -> Mapping[str, SinkSettings]:
        """Return all sinks by their sections in the job file."""
        if self.fork is None:
            return {"sink": self.sink}
        return {f"fork.branches.{name}.sink": branch.sink for name, branch in self.fork.branches.items()}


def _shows(sink: Any) -> bool:
    try:
        return bool(validated("sink", sink, "files").preview_records)
    except ValueError:  # reported at its place in the file
        return False


def _named(types: Sequence[str]) -> Any:
    """Name each construct of a chain: its type, with a number from the second of that type on."""
    seen: Counter[str] = Counter()
    for each in types:
        seen[each] += 1
        yield each if seen[each] == 1 else f"{each}#{seen[each]}"
