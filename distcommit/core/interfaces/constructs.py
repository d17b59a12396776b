"""Base classes of constructs, which stand between an extractor and the writers: converters, checkers, fork operators.

Records flow as Arrow batches. A construct receives a batch and returns its results by row. The task flow tracks each
record's origin by its row, so a construct never needs it and cannot lose it, even if it drops the columns that hold it.

Constructs are picklable, are sent to the executors, and are called from one thread.
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
    """The result of converting a batch or a part of it: records of one schema, and the rejected rows.

    A row that is in neither `rows` nor `rejected` of any result for its batch is filtered on purpose.

    Attributes:
        records: the new records.
        rows: for each new record, the row of the input batch that it was made of: integers without nulls, in any order,
            repeated if a row became several records. None: record i comes from row i, and every row has one.
        rejected: the reasons of rows that could not be converted, by row. An input record is rejected as a whole: other
            records made of it are discarded.
    """

    records: pa.RecordBatch
    rows: pa.Array | None = None
    rejected: Mapping[int, str] = field(default_factory=dict)


class InferredSchemaStore(Protocol):
    """Schemas that a converter has inferred from a dataset's records, as plain data. All tasks of a run use the same
    ones."""

    def schema(self, schema_id: int) -> Mapping[str, Any]:
        """Return a stored schema by its id."""
        ...

    def put_next(self, after: int, schema: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        """Store a schema behind the newest one that the converter knows (0: none), unless another task was first.

        Returns:
            the id and the schema that are stored there now, by whichever task.
        """
        ...


class Converter(ABC):
    """Converts records of one schema to none, one or several records of another."""

    makes_several: ClassVar[bool] = False
    """Whether one record may become several."""
    groups_schemas: ClassVar[bool] = False
    """Whether each record is converted independently, so that records of one schema may be batched together. If not, a
    batch with alternating schemas is split into runs in source order."""

    @property
    def unknown_field_setting(self) -> str:
        """Return the setting that makes a record with an unknown field fail its work unit, unless the setting is
        `evolve`; empty if there is none."""
        return ""

    def convert_schema(self, schema: pa.Schema) -> pa.Schema | None:
        """Return the schema of the results for an input schema. Called before any record is read.

        Returns:
            None, the default, if only the records determine the schema, for example because they name it. Subsequent
            converters are then called once it is known.

        Raises:
            ConfigurationError: if such records cannot be converted: a column is missing or has another type.
        """
        return None

    @abstractmethod
    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        """Convert a batch, yielding one result for each schema.

        Raises:
            RecordError: if the batch must fail the work unit, however the job treats rejections.
            TransientError: if trying again may help.
            ConfigurationError: like `convert_schema`.
        """

    def begin_work_unit(self, dataset_urn: str) -> None:  # noqa: B027 - optional hook
        """Receive the dataset of the next work unit before its records. State learned from other datasets does not
        apply to it."""

    def use_schema_store(self, store: InferredSchemaStore) -> None:  # noqa: B027 - optional hook
        """Receive, after `begin_work_unit`, the storage for inferred schemas, which are named by ids."""

    def load_schema_ids(self, ids: Sequence[int]) -> None:  # noqa: B027 - optional hook
        """Receive, after `begin_work_unit`, the schema ids of the dataset's published records.

        These are the ids that `schema_ids` returned in earlier runs; none at first, or if they are not known.
        """

    def schema_ids(self) -> Sequence[int]:
        """Return, at the end of a work unit, the schema ids that the dataset's records may have from now on.

        Each id occurs once, the ids given to `load_schema_ids` first. They are stored with the prepared output. The
        default returns none.
        """
        return ()

    def close(self) -> None:  # noqa: B027 - optional hook
        """Close connections at the end of a task. The converter may be used again. Safe to call twice."""


class RowChecker(ABC):
    """Checks each record."""

    groups_schemas: ClassVar[bool] = False
    """See `Converter.groups_schemas`."""

    def check_schema(self, schema: pa.Schema) -> None:  # noqa: B027 - optional hook
        """Check the schema before any record is read, if it is known by then.

        Raises:
            ConfigurationError: if such records cannot be checked: a column is missing or has another type.
        """

    @abstractmethod
    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row whether it passes; null means no."""

    @abstractmethod
    def describe(self) -> str:
        """Return the condition in a few words, such as `price is not null`. It is the reason of rejected records."""


@dataclass(frozen=True, slots=True)
class BranchCounts:
    """Record counts of an attempt at a work unit in one branch, at its end.

    Attributes:
        read: records from the source that reached the branch, without those that the fork sent elsewhere.
        written: records given to the branch's writer.
        rejected: records of `read` that a construct of the branch, or before the fork, rejected.
        filtered: records of `read` that were filtered.
    """

    read: int
    written: int
    rejected: int
    filtered: int


class TaskCheck(ABC):
    """A task checker's check of one attempt at a work unit."""

    def inspect(self, batch: pa.RecordBatch) -> None:  # noqa: B027 - optional hook
        """Receive each batch that the branch's writer is given."""

    @abstractmethod
    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        """Return whether the attempt passes, and the expected and actual state in a few words."""


class TaskChecker(ABC):
    """Decides at the end of an attempt whether its output in a branch may be committed."""

    groups_schemas: ClassVar[bool] = False
    """Whether the outcome is independent of the order of records, so that records of one schema may be batched
    together. If not, a batch with alternating schemas is split into runs in source order."""

    def check_schema(self, schema: pa.Schema) -> None:  # noqa: B027 - optional hook
        """Check the schema of the written records before any record is read, if it is known by then.

        Raises:
            ConfigurationError: if such records cannot be checked: a column is missing or has another type.
        """

    @abstractmethod
    def begin(self) -> TaskCheck:
        """Return the check of one attempt."""


class ForkOperator(ABC):
    """Sends each record to one branch, to several, or to none."""

    groups_schemas: ClassVar[bool] = False
    """See `Converter.groups_schemas`."""

    def accepts(self, branch: str, schema: pa.Schema) -> bool:
        """Return whether the branch takes records of that schema. If not, the branch is skipped for them. The default
        accepts."""
        return True

    def check_branches(self, branches: Sequence[str]) -> None:  # noqa: B027 - optional hook
        """Check the names of all branches before the run starts.

        Raises:
            ValueError: if the fork cannot send records to these branches.
        """

    @abstractmethod
    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        """Return for each branch its rows (null means no), or None for all rows.

        `fork.unmatched` of the job file says what happens to a row without a branch. A branch that the job does not
        have fails the work unit.

        Args:
            batch: the records.
            branches: the branches that accept the schema, in the order of the job file.
        """
