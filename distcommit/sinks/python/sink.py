"""A custom sink: a class that driver and executors can import."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from distcommit.core.errors import ConfigurationError, plain_text
from distcommit.core.interfaces.committer import OpensCommitter
from distcommit.core.interfaces.constructs import RowChecker
from distcommit.core.interfaces.custom_class import custom_code, make_named
from distcommit.core.interfaces.sink import (
    BY_DATASET,
    Abilities,
    AttemptIdentity,
    Origin,
    Publish,
    SealRequest,
    Sink,
    SinkSettings,
    SinkWriter,
    StagingArea,
)
from distcommit.core.interfaces.steps import CommitStep, StepContext
from distcommit.core.interfaces.targets import Target
from distcommit.core.ports import FileAccess
from distcommit.core.records.fixed_settings import Pin, SourceFact
from distcommit.core.work import MAIN_BRANCH
from distcommit.fs.secret_files import with_secret_files_in


class PythonSink(BaseModel, SinkSettings):
    """Names a subclass of `Sink`.

    Attributes:
        type: `python`.
        class_name: the class as `package.module:Class`, which the driver and each executor must be able to import.
        options: keyword arguments of the class.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    type: Literal["python"]
    class_name: str = Field(alias="class")
    options: dict[str, Any] = Field(default_factory=dict)

    @cached_property
    def made(self) -> Sink:
        """The sink itself.

        Raises:
            ConfigurationError: if the class can't be imported or instantiated, is not a `Sink`, has no name, or has
                only one of `commit_group` and `grouped_by`.
        """
        made = make_named(Sink, "sink", self.class_name, with_secret_files_in(self.options))  # type: ignore[type-abstract]
        name = getattr(made, "name", None)
        if not isinstance(name, str) or not name:
            raise ConfigurationError(
                "the sink's class has no name",
                class_name=self.class_name,
                expected='a class attribute `name = "..."`, which is stored with every commit',
                found=repr(name),
            )
        _check_grouping(made, self.class_name)
        return made

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()
        return {**state, "__dict__": {k: v for k, v in state["__dict__"].items() if k != "made"}}

    @property
    def abilities(self) -> Abilities:
        with custom_code("sink", self.class_name):
            return self.made.abilities

    @property
    def file_access(self) -> FileAccess | None:
        with custom_code("sink", self.class_name):
            return self.made.file_access

    @property
    def publisher(self) -> Publish:
        with custom_code("sink", self.class_name):
            return self.made.publisher

    @property
    def turns_away(self) -> RowChecker | None:
        with custom_code("sink", self.class_name):
            return self.made.turns_away

    @property
    def replaces_at_target(self) -> bool:
        with custom_code("sink", self.class_name):
            return self.made.replaces_at_target

    @property
    def shown_records(self) -> int:
        with custom_code("sink", self.class_name):
            return self.made.shown_records

    def folder_end_ms(self, path: str) -> int | None:
        with custom_code("sink", self.class_name):
            return self.made.folder_end_ms(path)

    @property
    def name(self) -> str:
        return self.made.name

    def pins(self) -> Mapping[str, Pin]:
        with custom_code("sink", self.class_name):
            return {"name": Pin(self.name), **self.made.pins()}

    def published_in(self, dataset_urn: str, output: str, branch: str = MAIN_BRANCH) -> str:
        with custom_code("sink", self.class_name):
            return self.made.published_in(dataset_urn, output, branch)

    def targets(self, dataset_urn: str) -> Iterable[Target]:
        with custom_code("sink", self.class_name):
            return self.made.targets(dataset_urn)

    def is_in_system(self, fact: SourceFact) -> bool:
        with custom_code("sink", self.class_name):
            return self.made.is_in_system(fact)

    @property
    def writes_to(self) -> str:
        with custom_code("sink", self.class_name):
            return self.made.writes_to

    @property
    def grouped_by(self) -> str:
        with custom_code("sink", self.class_name):
            return self.made.grouped_by

    def commit_group(self, dataset_urn: str) -> str:
        with custom_code("sink", self.class_name):
            return self.made.commit_group(dataset_urn)

    def asked_columns(self) -> Sequence[str] | None:
        with custom_code("sink", self.class_name):
            return self.made.asked_columns()

    def check_schema(self, schema: pa.Schema) -> None:
        with custom_code("sink", self.class_name):
            self.made.check_schema(schema)

    def announce(self, datasets: Sequence[str], schema: pa.Schema, run_id: str) -> None:
        with custom_code("sink", self.class_name):
            self.made.announce(datasets, schema, run_id)

    def look_up(self, datasets: Sequence[str], run_id: str) -> None:
        with custom_code("sink", self.class_name):
            self.made.look_up(datasets, run_id)

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        return self.made.open_writer(attempt, area, origin)

    def commit_steps(self, request: SealRequest, context: StepContext) -> Sequence[CommitStep]:
        with custom_code("sink", self.class_name):
            return self.made.commit_steps(request, context)

    @property
    def committers(self) -> Mapping[str, OpensCommitter]:
        with custom_code("sink", self.class_name):
            return self.made.committers


def _check_grouping(made: Sink, class_name: str) -> None:
    rule, names_groups = made.grouped_by, type(made).commit_group is not Sink.commit_group
    if isinstance(rule, str) and rule and names_groups == (rule != BY_DATASET):
        return
    raise ConfigurationError(
        "the sink's class must have both or none of commit_group and grouped_by",
        class_name=class_name,
        expected="`commit_group`, and `grouped_by` with the rule in words, which the store records; or neither",
        found=f"grouped_by {plain_text(repr(rule), 60)}, {'a' if names_groups else 'no'} commit_group of its own",
    )
