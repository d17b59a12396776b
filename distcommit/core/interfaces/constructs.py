"""Base classes of what stands between an extractor and the writers: converters, checkers, fork operators.

Arrow record batches are what flows. A construct is given a batch and says, row by row, what comes of it; it never sees
where a record came from and can't lose that: the task flow follows each record by its row. So a construct may drop the
columns that say it, and whatever becomes of an input record is still known.

Constructs are picklable and are sent to the executors. They are asked from one thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Converted:
    """What has become of a batch, or of a part of it: records of one schema, and those that could not be converted.

    A row of the batch that is neither in `rows` nor in `rejected`, of all that a converter returns for the batch, is
    filtered: nothing becomes of it, on purpose.

    Attributes:
        records: what was made.
        rows: for each of them the row of the given batch that it was made of: integers, without nulls, in any order,
            the same one several times if it became several. None: record i is of row i, and every row has one.
        rejected: why rows could not be converted, by row. What else was made of such a row counts for nothing: an input
            record is turned away as a whole.
    """

    records: pa.RecordBatch
    rows: pa.Array | None = None
    rejected: Mapping[int, str] = field(default_factory=dict)


class KeptSchemas(Protocol):
    """Schemas that a converter has inferred from a dataset's records, as it writes them: plain data. All who read the
    dataset in a run go by the same ones."""

    def schema(self, schema_id: int) -> Mapping[str, Any]:
        """One that was put, by its id."""
        ...

    def put_next(self, after: int, schema: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        """Puts one behind the newest that the converter knows (0: it knows none), unless another task was first.

        Returns:
            the id and the schema that stand there now, of whomever.
        """
        ...


class Converter(ABC):
    """Makes records of one schema out of records of another: none, one or several of each."""

    makes_several: ClassVar[bool] = False
    """Whether several records may come of one."""
    groups_schemas: ClassVar[bool] = False
    """Whether what becomes of a record depends on that record alone. Then records of one schema may come together. Else
    a batch in which schemas alternate comes in runs, in source order, each run as a batch of its own."""

    @property
    def refuses_fields_by(self) -> str:
        """The setting by which a record with a field that is not known fails its work unit, unless it is made `evolve`;
        empty if none does."""
        return ""

    def convert_schema(self, schema: pa.Schema) -> pa.Schema | None:
        """The schema of what comes of records of that schema; asked before any record is read.

        Returns:
            None if only the records can tell, as where they name a schema of their own; then the converters behind are
            asked when it is known. That is the default.

        Raises:
            ConfigurationError: if such records can't be converted: a column is missing, or has another type.
        """
        return None

    @abstractmethod
    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        """What comes of a batch, in one piece for each schema.

        Raises:
            RecordError: if the work unit is to fail for what is in the batch, whatever the job does with rejections.
            TransientError: if trying again may help.
            ConfigurationError: as `convert_schema`.
        """

    def begin_work_unit(self, dataset_urn: str) -> None:  # noqa: B027 - optional hook
        """Told, before the records of a work unit come, which dataset they are of: what was learned of others' records
        says nothing of these."""

    def keep_schemas(self, kept: KeptSchemas) -> None:  # noqa: B027 - optional hook
        """Told, after `begin_work_unit`, where it may keep schemas that it infers, to name them by their ids."""

    def know_schemas(self, ids: Sequence[int]) -> None:  # noqa: B027 - optional hook
        """Told, after `begin_work_unit`, the ids of the schemas that the dataset's published records are of, as this
        converter has said of them in earlier runs (`schemas_known`); none at first, and if they are not known."""

    def schemas_known(self) -> Sequence[int]:
        """Asked at the end of a work unit: the ids of the schemas that the dataset's records may be of from now on,
        each once, those that it was told first. They are stored with what was made. None by default."""
        return ()

    def close(self) -> None:  # noqa: B027 - optional hook
        """Lets go of connections at the end of a task; it may be used again. Safe to call twice."""


class RowChecker(ABC):
    """Says of each record whether it is as it should be."""

    groups_schemas: ClassVar[bool] = False
    """As that of a converter."""

    def check_schema(self, schema: pa.Schema) -> None:  # noqa: B027 - optional hook
        """Asked before any record is read, where the schema is known by then.

        Raises:
            ConfigurationError: if such records can't be checked: a column is missing, or has another type.
        """

    @abstractmethod
    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """For each row whether it passes; null is no."""

    @abstractmethod
    def describe(self) -> str:
        """What it asks for, in a few words, such as `price is not null`: the reason of a record that does not pass."""


@dataclass(frozen=True, slots=True)
class BranchCounts:
    """What one attempt at a work unit has made of its records in a branch, at its end.

    Attributes:
        read: records from the source that have come to the branch: not those that the fork sent elsewhere.
        written: records given to the branch's writer.
        rejected: of those read, turned away by a construct of the branch, or before the fork.
        filtered: of those read, those that nothing became of, on purpose.
    """

    read: int
    written: int
    rejected: int
    filtered: int


class TaskCheck(ABC):
    """A task-level check of one attempt at a work unit."""

    def see(self, batch: pa.RecordBatch) -> None:  # noqa: B027 - optional hook
        """Given all records that the branch's writer is given, batch by batch."""

    @abstractmethod
    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        """Whether it passes, and what was expected and found, in a few words."""


class TaskChecker(ABC):
    """Decides, at the end of an attempt at a work unit, whether what it has made of a branch may be committed."""

    groups_schemas: ClassVar[bool] = False
    """Whether the outcome does not depend on the order of records. Then records of one schema may come together. Else a
    batch in which schemas alternate comes in runs, in source order."""

    def check_schema(self, schema: pa.Schema) -> None:  # noqa: B027 - optional hook
        """Asked before any record is read, where the schema of what is written is known by then.

        Raises:
            ConfigurationError: if such records can't be looked at: a column is missing, or has another type.
        """

    @abstractmethod
    def begin(self) -> TaskCheck:
        """The check of one attempt."""


class ForkOperator(ABC):
    """Sends records to branches: to one of them, to several, or to none."""

    groups_schemas: ClassVar[bool] = False
    """As that of a converter."""

    def accepts(self, branch: str, schema: pa.Schema) -> bool:
        """Whether the branch takes records of that schema at all; else it is passed over for them. The default: yes."""
        return True

    def check_branches(self, branches: Sequence[str]) -> None:  # noqa: B027 - optional hook
        """Asked before anything runs, with the names of all branches.

        Raises:
            ValueError: if it can't send records to these.
        """

    @abstractmethod
    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        """For each of the branches which rows go there (null is no); None: all of them. A row that goes to no branch is
        rejected, with the fork as the construct that did it. A branch that the job does not have fails the work
        unit.

        Args:
            batch: the records.
            branches: those that accept its schema, in the order of the job file.
        """
