"""Base classes of constructs, which stand between an extractor and the writers: converters, checkers, fork operators.

Records flow as Arrow batches. A construct receives a batch and returns its results by row. The task flow tracks the
origin of each record by its row. Therefore a construct may drop the columns with the origin.

Constructs are picklable, are sent to the executors, and are called from one thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from distcommit.core.task_properties import RecordsProperties

if TYPE_CHECKING:
    import pyarrow as pa

    from distcommit.core.work_units import WorkUnit


@dataclass(frozen=True, slots=True)
class Converted:
    """The result of converting a batch or a part of it: records of one schema, and the rejected rows.

    A row that is in neither `rows` nor `rejected` of any result for its batch is filtered.

    Attributes:
        records: the new records.
        rows: for each new record, the number of the input row that it was made of: integers without nulls, in any
            order, repeated if a row became several records. None if record i was made of row i, for all rows.
        rejected: the reasons of rows that could not be converted, by row. An input record is rejected as a whole: its
            other output is discarded.
    """

    records: pa.RecordBatch
    rows: pa.Array | None = None
    rejected: Mapping[int, str] = field(default_factory=dict)


class InferredSchemaStore(Protocol):
    """Schemas that a converter has inferred from a dataset's records, as plain data. All tasks of a run share them."""

    def schema(self, schema_id: int) -> Mapping[str, Any]:
        """Return a stored schema by its id."""
        ...

    def put_next(self, after: int, schema: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        """Store a schema behind the newest one that the converter knows, unless another task has stored one there.

        Args:
            after: the id of the newest schema that the converter knows; 0 for none.
            schema: the new schema.

        Returns:
            the id and the schema that are stored behind `after` now.
        """
        ...


class Converter(RecordsProperties, ABC):
    """A construct that converts each record to none, one or several records."""

    makes_several: ClassVar[bool] = False
    """Whether one record may become several."""
    groups_schemas: ClassVar[bool] = False
    """Whether each record is converted independently, so that records of one schema may be batched together. If not, a
    batch with alternating schemas is split in source order.
    """

    @property
    def unknown_field_setting(self) -> str:
        """Return the setting by which records with unknown fields fail their work unit; empty for none. Its value
        `evolve` accepts such records."""
        return ""

    def convert_schema(self, schema: pa.Schema, unit: WorkUnit | None) -> pa.Schema | None:
        """Return the schema of the results for an input schema.

        Args:
            schema: the input schema.
            unit: the work unit; None if the job is checked before it has a plan. The result for None must hold for all
                work units.

        Returns:
            None, the default, if only the records determine the schema, for example because they name it. Later
            converters are then called once the schema is known. Without a work unit also None if the schema depends on
            the work unit.

        Raises:
            ConfigurationError: if records of this schema cannot be converted: a column is missing or has another type.
        """
        return None

    @abstractmethod
    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        """Convert a batch, yielding one result for each schema.

        Args:
            output_schema: the result of `convert_schema` for the schema of the batch.
            batch: the input records.
            unit: the work unit that the records belong to.

        Raises:
            RecordError: if the batch must fail the work unit, however the job treats rejections.
            TransientError: if another attempt may succeed.
            ConfigurationError: if records of this schema cannot be converted.
        """

    def begin_work_unit(self, unit: WorkUnit) -> None:
        """Receive the next work unit before its records. Discard state that belongs to the previous one: what was
        learned from its dataset, and the values of `task_properties`.
        """

    def use_schema_store(self, store: InferredSchemaStore) -> None:
        """Receive the store of inferred schemas, after `begin_work_unit`."""

    def load_schema_ids(self, ids: Sequence[int]) -> None:
        """Receive, after `begin_work_unit`, the schema ids of the dataset's published records.

        Earlier runs returned these ids by `schema_ids`; none in the first run, or if they are not known.
        """

    def schema_ids(self) -> Sequence[int]:
        """Return, at the end of a work unit, the schema ids that the dataset's records may have from now on.

        Each id occurs once, the ids given to `load_schema_ids` first. They are stored with the prepared output. The
        default returns none.
        """
        return ()

    def column_notes(self) -> Sequence[str]:
        """Return, at the end of a work unit, notes for the run's report, such as a doubtful type. The default returns
        none.
        """
        return ()

    def close(self) -> None:
        """Close connections at the end of a task. The converter may be used again. Safe to call twice."""


class RowChecker(RecordsProperties, ABC):
    """A construct that decides for each record whether it passes."""

    groups_schemas: ClassVar[bool] = False

    def begin_work_unit(self, unit: WorkUnit) -> None:
        """Receive the next work unit before its records. Discard the previous one's values of `task_properties`."""

    def check_schema(self, schema: pa.Schema) -> None:
        """Check the schema before any record is read, if it is known by then.

        Raises:
            ConfigurationError: if records of this schema cannot be checked: a column is missing or has another type.
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
        read: records of the source that entered the branch or were rejected before the fork; without a fork, all.
        written: records that the branch's writer received.
        rejected: records of `read` that a construct before the fork or in the branch rejected.
        filtered: records of `read` that were filtered.
    """

    read: int
    written: int
    rejected: int
    filtered: int


class TaskCheck(RecordsProperties, ABC):
    """A task checker's check of one attempt at a work unit."""

    def inspect(self, batch: pa.RecordBatch) -> None:
        """Receive each batch that the branch's writer receives."""

    @abstractmethod
    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        """Return whether the attempt passes, and the expected and actual state in a few words."""


class TaskChecker(ABC):
    """A construct that decides at the end of an attempt whether its output in a branch may be committed."""

    groups_schemas: ClassVar[bool] = False
    """Whether the outcome is independent of the order of records, so that records of one schema may be batched
    together. If not, a batch with alternating schemas is split in source order.
    """

    def check_schema(self, schema: pa.Schema) -> None:  # noqa: B027 - optional hook
        """Check the schema of the written records before any record is read, if it is known by then.

        Raises:
            ConfigurationError: if records of this schema cannot be checked: a column is missing or has another type.
        """

    @abstractmethod
    def begin(self) -> TaskCheck:
        """Return the check of one attempt."""


class ForkOperator(ABC):
    """A construct that sends each record to one branch, to several, or to none."""

    groups_schemas: ClassVar[bool] = False

    def accepts(self, branch: str, schema: pa.Schema) -> bool:
        """Return whether the branch accepts records of that schema. Records of other schemas skip the branch. The
        default accepts all.
        """
        return True

    def check_branches(self, branches: Sequence[str]) -> None:  # noqa: B027 - optional hook
        """Check the names of all branches before the run starts.

        Raises:
            ValueError: if the fork cannot send records to these branches.
        """

    @abstractmethod
    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        """Return for each branch a mask of the rows that it receives (null means no), or None for all rows.

        `fork.unmatched` of the job file defines how a row without a branch is handled. A branch that the job does not
        have fails the work unit.

        Args:
            batch: the records.
            branches: the branches that accept the schema, in the order of the job file.
        """
