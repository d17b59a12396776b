"""The sections of a job file that define its task flow."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator, model_validator

from distcommit.app.job_file.built_in_types import validated
from distcommit.constructs.construct_settings import RowCheckerSettings, StageSettings, TaskCheckerSettings
from distcommit.core.interfaces.constructs import Converter, ForkOperator
from distcommit.core.interfaces.sink import SinkSettings
from distcommit.core.interfaces.source import SourceSettings
from distcommit.core.support.settings_model import SettingError, SettingsModel, rule
from distcommit.core.work_units import ERRORS, MAIN_BRANCH
from distcommit.pipeline.task_flow import DROP, REJECT, Branch, Check, Stage, TaskFlow

ConverterSection = Annotated[Converter, PlainValidator(partial(validated, "converter"))]
RowCheckerSection = Annotated[RowCheckerSettings, PlainValidator(partial(validated, "row_checker"))]
TaskCheckerSection = Annotated[TaskCheckerSettings, PlainValidator(partial(validated, "task_checker"))]
SourceSection = Annotated[SourceSettings, PlainValidator(partial(validated, "source"))]
SinkSection = Annotated[SinkSettings, PlainValidator(partial(validated, "sink", default="files"))]
UNREADABLE_ROWS = "source"
"""Name of the stage that rejects rows which the source cannot parse."""
_AT_SINK = "sink"
"""Name of the stage that rejects records which the sink cannot write."""
_BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
OnRejected = Literal["fail", "divert"]


def _files() -> Any:
    return validated("sink", {}, "files")


def _branch_name(name: str) -> str:
    if not _BRANCH.fullmatch(name):
        raise SettingError(
            "must be named with at most 64 letters, digits, _ and -, the first one a letter or digit", actual=repr(name)
        )
    if name in (MAIN_BRANCH, ERRORS, REJECT, DROP):
        raise SettingError("must not have this name, which is reserved", actual=repr(name), remedy="rename the branch")
    return name


class ChainSettings(SettingsModel, arbitrary_types_allowed=True):
    """The constructs of a branch, or of a job without branches.

    Attributes:
        converters: converters in the order of execution.
        row_checkers: row checkers, which check the converted records, in order.
        sink: where records are published; files without this setting.
        task_checkers: task checkers, which check the result of an attempt.
    """

    converters: tuple[ConverterSection, ...] = ()
    row_checkers: tuple[RowCheckerSection, ...] = ()
    sink: SinkSection = Field(default_factory=_files)
    task_checkers: tuple[TaskCheckerSection, ...] = ()

    def stages(self, on_rejected: OnRejected) -> tuple[Stage, ...]:
        """Return the flow's stages: converters, then row checkers."""
        names = _named([str(getattr(construct, "type", "")) for construct in (*self.converters, *self.row_checkers)])
        converters = [
            Stage(next(names), converter, on_failure=on_rejected, datasets=_datasets(converter))
            for converter in self.converters
        ]
        checkers = [
            Stage(next(names), checker, checker.level == "mandatory", checker.on_failure, checker.only_datasets)
            for checker in self.row_checkers
        ]
        return (*converters, *checkers)

    def checks(self) -> tuple[Check, ...]:
        names = _named([task_checker_settings.type for task_checker_settings in self.task_checkers])
        return tuple(
            Check(next(names), checker, checker.level == "mandatory", checker.only_datasets)
            for checker in self.task_checkers
        )


class BranchSettings(ChainSettings):
    """A branch behind a fork: its own converters, row checkers, task checkers and sink.

    Attributes:
        optional: whether the others commit if it fails; its records then go to its error branch.
    """

    optional: bool = False


class ForkSettings(SettingsModel, arbitrary_types_allowed=True):
    """A fork and its branches.

    Attributes:
        operator: the fork operator, which selects the branches of a record.
        unmatched: records that the operator sends to no branch are rejected (`reject`), filtered and counted as such
            (`drop`), or go to the branch of this name. The operator cannot send other records to this branch.
        branches: the branches by name.
    """

    operator: Annotated[ForkOperator, PlainValidator(partial(validated, "fork"))]
    unmatched: str = REJECT
    branches: dict[Annotated[str, AfterValidator(_branch_name)], BranchSettings] = Field(min_length=1)

    @rule
    def _sinks_are_distinct(self) -> Iterator[SettingError]:
        names: dict[str, str] = {}
        targets: dict[str, str] = {}
        for name, branch in self.branches.items():
            first = names.setdefault(branch.sink.name, name) if branch.sink.committers else name
            if first != name:
                yield SettingError(
                    f"must have another name than that of branch {first}, because commits are stored with it",
                    *("branches", name, "sink"),
                    actual=repr(branch.sink.name),
                    remedy="set stored_as",
                )
            target = branch.sink.writes_to
            first = targets.setdefault(target, name) if target else name
            if first != name:
                yield SettingError(
                    f"must not write to {target}, to which branch {first} writes, because their rows could not be"
                    " distinguished",
                    *("branches", name, "sink"),
                )

    @rule
    def _one_commit_at_most_is_final(self) -> Iterator[SettingError]:
        final = [name for name, branch in self.branches.items() if not branch.sink.abilities.can_roll_back]
        for name in final[1:]:
            yield SettingError(
                f"must be able to roll back a commit, as branch {final[0]} cannot: a commit of one would be final if"
                " the other one fails",
                *("branches", name, "sink"),
            )

    @rule
    def _one_branch_is_required(self) -> Iterator[SettingError]:
        if all(branch.optional for branch in self.branches.values()):
            yield SettingError(
                "must have a branch that is not optional: otherwise no failure would fail a work unit", "branches"
            )

    @rule
    def _unmatched_is_known(self) -> Iterator[SettingError]:
        if self.unmatched not in (REJECT, DROP, *self.branches):
            names = ", ".join(self.branches)
            yield SettingError(
                f"must be {REJECT}, {DROP} or one of the branches {names}", "unmatched", actual=repr(self.unmatched)
            )

    @rule
    def _operator_names_branches(self) -> Iterator[SettingError]:
        try:
            self.operator.check_branches([name for name in self.branches if name != self.unmatched])
        except ValueError as error:
            yield SettingError(f"must name its branches: {error}")


def _fork(_: str, value: Any) -> ForkSettings:
    """Return the section `fork`: the operator's settings and `branches`.

    Raises:
        ValueError: if the section or its type is invalid.
    """
    if isinstance(value, ForkSettings):
        return value
    if not isinstance(value, Mapping):
        raise SettingError("must be a section with type, branches and the settings of its type")
    own = ("branches", "unmatched")
    operator = {key: each for key, each in value.items() if key not in own}
    return ForkSettings.model_validate({"operator": operator, **{key: value[key] for key in own if key in value}})


ForkSection = Annotated[ForkSettings, PlainValidator(partial(_fork, "fork"))]


class FlowSettings(ChainSettings):
    """A job's flow. With a fork each branch has its own sink and task checkers; the job's constructs come first.

    Attributes:
        source: where records are read.
        on_rejected: what becomes of a record that a converter or the fork rejects: its work unit fails (`fail`), or the
            record goes to the error branch (`divert`).
        fork: the fork and its branches; None without a fork.
    """

    source: SourceSection
    on_rejected: OnRejected = "fail"
    fork: ForkSection | None = None

    @model_validator(mode="before")
    @classmethod
    def _preview_all_branches(cls, tree: Any) -> Any:
        match tree:
            case {"sink": sink, "fork": {"branches": Mapping() as named} as fork} if _shows(sink):
                branches = {name: {**(branch or {}), "sink": sink} for name, branch in named.items()}
                remainder = {key: value for key, value in tree.items() if key != "sink"}
                return {**remainder, "fork": {**fork, "branches": branches}}
        return tree

    @model_validator(mode="before")
    @classmethod
    def _upsert_by_keys_of_the_extract(cls, tree: Any) -> Any:
        """Give `source.extract.keys` to each sink of mode `upsert` or `mirror` that has no `keys`, and the keys
        of a mirror to its converters `debezium`."""
        match tree:
            case {"source": {"extract": {"keys": [*keys]}}}:
                tree = _with_keys(tree, keys)
        match tree:
            case {"source": {"extract": {"keys": [*keys]}}, "fork": {"branches": Mapping() as named} as fork}:
                branches = {name: _with_keys(branch, keys) for name, branch in named.items()}
                tree = {**tree, "fork": {**fork, "branches": branches}}
        match tree:
            case {"sink": {"mode": "mirror", "keys": [*keys]}, "converters": [*converters]}:
                return {**tree, "converters": [_of_mirror(converter, keys) for converter in converters]}
        return tree

    @rule
    def _branches_have_sinks(self) -> Iterator[SettingError]:
        for name in sorted(self.model_fields_set & {"sink", "task_checkers"}) if self.fork is not None else ():
            yield SettingError("must not be set beside a fork", name, remedy=f"set {name} of each of fork.branches")

    def task_flow(self) -> TaskFlow:
        source = self.source.with_on_rejected(self.on_rejected)
        stages, fork, rejection_check = self.stages(self.on_rejected), self.fork, source.rejection_check
        if rejection_check is not None:
            on_failure: OnRejected = "divert" if source.diverts_unreadable else self.on_rejected
            stages = (Stage(UNREADABLE_ROWS, rejection_check, on_failure=on_failure), *stages)
        if fork is None:
            return TaskFlow(source, (Branch(self.sink, checks=self.checks()),), (*stages, *self._at_sink(self.sink)))
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
        return TaskFlow(source, branches, stages, fork.operator, self.on_rejected, fork.unmatched)

    def _at_sink(self, sink: SinkSettings) -> tuple[Stage, ...]:
        check = sink.rejection_check
        return () if check is None else (Stage(_AT_SINK, check, on_failure=self.on_rejected),)

    def sink_sections(self) -> Mapping[str, SinkSettings]:
        """Return all sinks by their sections in the job file."""
        if self.fork is None:
            return {"sink": self.sink}
        return {f"fork.branches.{name}.sink": branch.sink for name, branch in self.fork.branches.items()}


def _datasets(converter: Converter) -> Sequence[str]:
    return converter.only_datasets if isinstance(converter, StageSettings) else ()


def _with_keys(chain: Any, keys: Sequence[Any]) -> Any:
    match chain:
        case {"sink": {"mode": "upsert" | "mirror"} as sink} if not sink.get("keys"):
            return {**chain, "sink": {**sink, "keys": keys}}
    return chain


def _of_mirror(converter: Any, keys: Sequence[Any]) -> Any:
    match converter:
        case {"type": "debezium"} if "keys" not in converter:
            return {**converter, "keys": keys}
    return converter


def _shows(sink: Any) -> bool:
    try:
        return bool(validated("sink", sink, "files").preview_records)
    except ValueError:  # reported at its place in the file
        return False


def _named(types: Sequence[str]) -> Any:
    """Return a unique name for each construct of a chain: its type, with a number from the second of that type on."""
    counts: Counter[str] = Counter()
    for name in types:
        counts[name] += 1
        yield name if counts[name] == 1 else f"{name}#{counts[name]}"
