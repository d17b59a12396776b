"""Base classes of the sections of constructs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeVar

import pyarrow as pa
from pydantic import Field

from distcommit.core.interfaces.constructs import Converter, ForkOperator, RowChecker, TaskChecker
from distcommit.core.support.settings_model import SettingsModel
from distcommit.core.work_units import WorkUnit
from distcommit.schemas.known_columns import Columns, named_schema

Level = Literal["mandatory", "optional"]
OnFailure = Literal["divert", "drop", "fail"]


class ConstructSettings(SettingsModel):
    """The section of a construct.

    Attributes:
        type: the type of the construct.
    """

    type: str


class StageSettings(ConstructSettings):
    """The section of a converter or checker, which may apply to some datasets only.

    Attributes:
        only_datasets: patterns of the datasets that it applies to, with `*` and `?`. Records of other datasets pass
            unchanged. Empty for all datasets.
    """

    only_datasets: tuple[Annotated[str, Field(min_length=1)], ...] = ()


class ConverterSettings(StageSettings, Converter):
    """The section of a converter that computes its columns even if not all input columns are known."""

    groups_schemas: ClassVar[bool] = True
    process_local: ClassVar[frozenset[str]] = frozenset()
    """Names of cached properties that are not pickled."""

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()
        cached = {name: value for name, value in state["__dict__"].items() if name not in self.process_local}
        return {**state, "__dict__": cached}

    @abstractmethod
    def convert_columns(self, columns: Columns) -> Columns:
        """Return the known columns after the converter.

        Raises:
            ConfigurationError: if an input column is missing or unsuitable.
        """

    def convert_schema(self, schema: pa.Schema, unit: WorkUnit | None) -> pa.Schema | None:
        return self.convert_columns(Columns.of(schema)).full_schema()


class CheckerSettings(StageSettings):
    """The section of a row or task checker.

    Attributes:
        level: the effect of a failed check. If it is `optional`, the failure is only counted or logged.
    """

    groups_schemas: ClassVar[bool] = True
    level: Level = "mandatory"

    def required_columns(self) -> Sequence[str]:
        """Return the columns that the check needs in every record."""
        return ()

    def check_schema(self, schema: pa.Schema) -> None:
        """Raise ConfigurationError if records of the schema can't be checked."""

    def check_columns(self, columns: Columns) -> None:
        schema = columns.full_schema() or named_schema(columns, self.required_columns(), self.type)
        if schema:
            self.check_schema(schema)


class RowCheckerSettings(CheckerSettings, RowChecker):
    """The section of a row checker. An optional checker only counts the records that fail.

    Attributes:
        on_failure: the fate of a record that fails a mandatory check: it goes to the error branch (`divert`), is
            dropped and counted (`drop`), or fails its work unit (`fail`).
    """

    on_failure: OnFailure = "divert"


class TaskCheckerSettings(CheckerSettings, TaskChecker):
    """The section of a task checker. A failed check fails the attempt if it is mandatory; else it is logged."""


class ForkOperatorSettings(ConstructSettings, ForkOperator):
    """The section of a fork operator, without its branches."""

    groups_schemas: ClassVar[bool] = True

    @abstractmethod
    def named_branches(self) -> frozenset[str] | None:
        """Return the branches that the section names; None if any branches are accepted."""

    def may_accept(self, branch: str, columns: Columns) -> bool:
        """Return whether a branch may accept records with these columns; True if some columns are unknown.

        Raises:
            ConfigurationError: if the fork operator can't decide by these columns.
        """
        schema = columns.full_schema()
        return schema is None or self.accepts(branch, schema)

    def check_branches(self, branches: Sequence[str]) -> None:
        named, declared = self.named_branches(), frozenset(branches)
        if named is None or named == declared:
            return
        problems = [f"{branch} is not a branch" for branch in sorted(named - declared)]
        problems += [f"{branch} receives nothing" for branch in sorted(declared - named)]
        raise ValueError(f"{self.type} must name each branch, and no other: {', '.join(problems)}")


class Matching(Protocol):
    """Settings of the datasets whose names match a pattern."""

    @property
    def match(self) -> str:
        """The pattern, with `*` and `?`."""


Settings = TypeVar("Settings", bound=Matching)


def matching_settings(name: str, datasets: Iterable[Settings]) -> Settings | None:
    """Return the first settings whose pattern matches a dataset name, or None."""
    return next((settings for settings in datasets if fnmatchcase(name, settings.match)), None)
