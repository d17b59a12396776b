"""What the sections of all constructs have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import ClassVar, Literal, Protocol, TypeVar

import pyarrow as pa
from pydantic import BaseModel

from distcommit.constructs.schemas.columns import Columns, fields_of
from distcommit.core.interfaces.constructs import Converter, ForkOperator, RowChecker, TaskChecker

Level = Literal["mandatory", "optional"]
OnFailure = Literal["divert", "drop", "fail"]


class ConstructSettings(BaseModel, frozen=True, extra="forbid"):
    """The section of a construct."""

    type: str


class ConverterSettings(ConstructSettings, Converter, frozen=True, extra="forbid"):
    """The section of a converter that says what it makes of columns, also where not all of them are known."""

    groups_schemas: ClassVar[bool] = True

    @abstractmethod
    def convert_columns(self, columns: Columns) -> Columns:
        """What is known of the columns that it makes.

        Raises:
            ConfigurationError: if records with such columns can't be converted for sure: a column is missing, or has
                another type.
        """

    def convert_schema(self, schema: pa.Schema) -> pa.Schema | None:
        return self.convert_columns(Columns.of(schema)).whole()

    def made_of(self, schema: pa.Schema) -> pa.Schema:
        """The same, of a converter that makes known columns of known ones."""
        return self.convert_columns(Columns.of(schema)).known


class CheckerSettings(ConstructSettings, frozen=True, extra="forbid"):
    """The section of a row or task checker."""

    groups_schemas: ClassVar[bool] = True
    level: Level = "mandatory"

    def asked_columns(self) -> Sequence[str]:
        """The names of the columns that it looks at, if they are the same for all records."""
        return ()

    def check_schema(self, schema: pa.Schema) -> None:
        """Raises ConfigurationError if records of that schema can't be checked."""

    def check_columns(self, columns: Columns) -> None:
        """As `check_schema`, where not all columns are known."""
        schema = columns.whole() or fields_of(columns, self.asked_columns(), self.type)
        if schema:
            self.check_schema(schema)


class RowCheckerSettings(CheckerSettings, RowChecker, frozen=True, extra="forbid"):
    """The section of a row checker.

    A record that does not pass a mandatory one goes to the error branch (`divert`), is dropped and counted (`drop`), or
    fails its work unit (`fail`); an optional one only counts.
    """

    on_failure: OnFailure = "divert"


class TaskCheckerSettings(CheckerSettings, TaskChecker, frozen=True, extra="forbid"):
    """The section of a task checker. A mandatory one that does not pass fails the attempt; an optional one is told."""


class ForkOperatorSettings(ConstructSettings, ForkOperator, frozen=True, extra="forbid"):
    """The section of a fork operator, without its branches."""

    groups_schemas: ClassVar[bool] = True

    @abstractmethod
    def named_branches(self) -> frozenset[str] | None:
        """The branches that the section names; None: it takes any."""

    def may_accept(self, branch: str, columns: Columns) -> bool:
        """Whether the branch takes any records with such columns.

        Raises:
            ConfigurationError: if it can't be told of such records, whatever their other columns.
        """
        schema = columns.whole()
        return schema is None or self.accepts(branch, schema)

    def check_branches(self, branches: Sequence[str]) -> None:
        named, there = self.named_branches(), frozenset(branches)
        if named is None or named == there:
            return
        wrong = [f"{branch} is no branch" for branch in sorted(named - there)]
        wrong += [f"{branch} is sent nothing" for branch in sorted(there - named)]
        raise ValueError(f"{self.type} names each branch, and no other: {', '.join(wrong)}")


class Matching(Protocol):
    """Settings of the datasets whose names match a pattern."""

    @property
    def match(self) -> str:
        """The pattern, with `*` and `?`."""


Own = TypeVar("Own", bound=Matching)


def own_of(name: str, datasets: Iterable[Own]) -> Own | None:
    """Return the first settings whose pattern matches the dataset; None if none does."""
    return next((settings for settings in datasets if fnmatchcase(name, settings.match)), None)
