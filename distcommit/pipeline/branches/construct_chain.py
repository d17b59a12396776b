"""A chain of constructs on a batch, with the input row of each record."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distcommit.core.errors import RECORD_REJECTED, ConfigurationError, RecordError, plain_text, reason_text
from distcommit.core.interfaces.constructs import Converted, Converter, RowChecker
from distcommit.core.work_units import ConstructCounts, WorkUnit
from distcommit.pipeline.branches.restore_source_order import ascending, by_first_row, in_source_order, merged_by_schema
from distcommit.pipeline.branches.traced_batch import Rows, TracedBatch
from distcommit.pipeline.limits.time_limit import construct_time_limit
from distcommit.pipeline.task_flow import Stage


@dataclass(frozen=True, slots=True)
class Rejection:
    """The rejection of an input record.

    Attributes:
        construct: name of the converter, checker or fork.
        reason: why it rejected the record.
    """

    construct: str
    reason: str


@dataclass(slots=True)
class Tally:
    """Counts of a construct.

    Attributes:
        records_in: records received.
        records_out: records returned.
        rejected: rejected input records.
        filtered: dropped records.
        noted: records that failed an informational check.
        seconds: seconds spent.
        declared: last input schema, and the converter's output schema for it.
    """

    records_in: int = 0
    records_out: int = 0
    rejected: int = 0
    filtered: int = 0
    noted: int = 0
    seconds: float = 0.0
    declared: tuple[pa.Schema, pa.Schema | None] | None = None

    def declared_schema(self, converter: Converter, schema: pa.Schema, unit: WorkUnit) -> pa.Schema | None:
        """Return the output schema. The converter computes it once for each input schema."""
        last = self.declared
        if last is None or (last[0] is not schema and not last[0].equals(schema, check_metadata=True)):
            last = self.declared = schema, converter.convert_schema(schema, unit)
        return last[1]

    def counts(self, branch: str, construct: str) -> ConstructCounts:
        return ConstructCounts(
            branch, construct, self.records_in, self.records_out, self.rejected, self.filtered, self.noted, self.seconds
        )


@dataclass(slots=True)
class Chain:
    """A chain of converters and checkers in one attempt.

    Attributes:
        stages: the converters and checkers, in order.
        unit: the work unit.
        seconds: seconds that each may work on a batch; 0 for no limit.
        tallies: counts of each stage.
        at: the stage that is running, or that ran last.
    """

    stages: Sequence[Stage]
    unit: WorkUnit
    seconds: float = 0
    tallies: list[Tally] = field(default_factory=list)
    at: str = ""

    def __post_init__(self) -> None:
        self.tallies = [Tally() for _ in self.stages]

    @property
    def names(self) -> Sequence[str]:
        return [stage.name for stage in self.stages]

    def known_schema(self, schema: pa.Schema | None) -> pa.Schema | None:
        """Return the output's schema without metadata, or None if only records determine it.

        Raises ConfigurationError if a converter does not accept the columns before it.
        """
        for stage, tally in zip(self.stages, self.tallies, strict=True):
            if schema is not None and isinstance(stage.construct, Converter):
                self.at = stage.name
                with construct_time_limit(self.seconds, stage.name):
                    schema = tally.declared_schema(stage.construct, schema, self.unit)
        return None if schema is None else schema.remove_metadata()

    def run(self, batches: Sequence[TracedBatch]) -> tuple[list[TracedBatch], dict[int, Rejection]]:
        """Return output pieces with ascending rows, and rejected rows.

        A rejected row has no output. A stage that does not accept records grouped by schema receives runs in source
        order.

        Raises:
            RecordError: if a rejected record must fail its work unit.
            ConfigurationError: if a stage can't process its input, breaks its contract, or exceeds its time limit.
        """
        rejected: dict[int, Rejection] = {}
        current = list(batches)
        for stage, tally in zip(self.stages, self.tallies, strict=True):
            began_s, self.at = time.perf_counter(), stage.name
            with construct_time_limit(self.seconds, stage.name):
                supplied = current if stage.construct.groups_schemas else in_source_order(current)
                outputs = [
                    output
                    for traced in supplied
                    for output in _through_stage(stage, tally, traced, self.unit, rejected)
                ]
                current = by_first_row(map(ascending, outputs))
                if len(supplied) > 1:
                    current = by_first_row(merged_by_schema(current))
            tally.seconds += time.perf_counter() - began_s
        return without_rows(current, rejected), rejected


def without_rows(batches: Iterable[TracedBatch], rejected: Iterable[int]) -> list[TracedBatch]:
    """Remove records of rejected rows, and empty pieces."""
    excluded = np.fromiter(rejected, np.int64)
    if len(excluded):
        batches = [traced.only(~np.isin(traced.origin_rows(), excluded)) for traced in batches]
    return [traced for traced in batches if traced.records.num_rows]


def _through_stage(
    stage: Stage, tally: Tally, traced: TracedBatch, unit: WorkUnit, rejected: dict[int, Rejection]
) -> list[TracedBatch]:
    tally.records_in += traced.records.num_rows
    construct = stage.construct
    if isinstance(construct, Converter):
        outputs = _converted(stage, tally, construct, traced, unit, rejected)
    else:
        outputs = _checked(stage, tally, construct, traced, rejected)
    tally.records_out += sum(output.records.num_rows for output in outputs)
    return outputs


def _converted(
    stage: Stage,
    tally: Tally,
    converter: Converter,
    traced: TracedBatch,
    unit: WorkUnit,
    rejected: dict[int, Rejection],
) -> list[TracedBatch]:
    rows, outputs = traced.rows, list[TracedBatch]()
    accounted = np.zeros(traced.records.num_rows, bool)
    declared = tally.declared_schema(converter, traced.records.schema, unit)
    for converted in converter.convert(declared, traced.records, unit):
        records = converted.records
        if declared is not None and records.num_rows and not records.schema.equals(declared):
            raise _broken(
                stage, f"records of the declared schema, {_schema_text(declared)}", _schema_text(records.schema)
            )
        own = _rows_of(stage, converter, converted, len(accounted))
        accounted[slice(None) if own is None else own] = True
        if records.num_rows:  # the schema of an empty result may be incomplete
            outputs.append(TracedBatch(records, rows if own is None else own if rows is None else rows[own]))
        for row, reason in converted.rejected.items():
            if not 0 <= row < len(accounted):
                raise _broken(stage, "rejected rows within the batch", f"row {row} of {len(accounted)}")
            accounted[row] = True
            _reject(stage, tally, rejected, row if rows is None else int(rows[row]), reason)
    tally.filtered += int(len(accounted) - np.count_nonzero(accounted))
    return outputs


def _rows_of(stage: Stage, converter: Converter, converted: Converted, rows: int) -> Rows | None:
    """Return the checked input row of each record; None if rows are unchanged."""
    records = converted.records.num_rows
    if converted.rows is None:
        if records != rows:
            raise _broken(stage, f"{rows} records, because it returns no rows", f"{records} records")
        return None
    if len(converted.rows) != records or converted.rows.null_count:
        raise _broken(stage, f"a row for each of {records} records", f"{len(converted.rows)} rows, or nulls")
    own: Rows = converted.rows.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    if len(own) and not (own.min() >= 0 and own.max() < rows):
        raise _broken(stage, f"rows of a batch of {rows}", f"rows from {own.min()} to {own.max()}")
    is_ascending = bool((own[1:] > own[:-1]).all())
    if not (converter.makes_several or is_ascending) and len(np.unique(own)) != len(own):
        raise _broken(
            stage, "at most one record of each row, because makes_several is False", "several records of one row"
        )
    return own


def _checked(
    stage: Stage, tally: Tally, checker: RowChecker, traced: TracedBatch, rejected: dict[int, Rejection]
) -> list[TracedBatch]:
    passed = checker.check(traced.records)
    if len(passed) != traced.records.num_rows or not pa.types.is_boolean(passed.type):
        raise _broken(stage, f"a boolean for each of {traced.records.num_rows} records", f"{len(passed)} {passed.type}")
    keep = (pc.fill_null(passed, False) if passed.null_count else passed).to_numpy(zero_copy_only=False)
    if keep.all():
        return [traced]
    bad = np.flatnonzero(~keep)
    if not stage.is_mandatory:
        tally.noted += len(bad)
        return [traced]
    if stage.on_failure == "drop":
        tally.filtered += len(bad)
        return [traced.only(keep)]
    for row in traced.origin_rows()[bad].tolist():
        _reject(stage, tally, rejected, row, f"expected {checker.describe()}")
    return [traced]


def _reject(stage: Stage, tally: Tally, rejected: dict[int, Rejection], row: int, reason: str) -> None:
    if stage.on_failure == "fail":
        raise rejection_error(stage.name, reason)
    if row not in rejected:
        tally.rejected += 1
        rejected[row] = Rejection(stage.name, reason_text(reason, 1000))


def rejection_error(construct: str, reason: str) -> RecordError:
    return RecordError(
        RECORD_REJECTED,
        id="RECORD_REJECTED",
        construct=construct,
        found=plain_text(reason, 500),
        todo="correct the producer or the construct, or divert such records (on_rejected, on_failure)",
    )


def _schema_text(schema: pa.Schema) -> str:
    return plain_text(", ".join(f"{field.name}: {field.type}" for field in schema), 500)


def _broken(stage: Stage, expected: str, actual: str) -> ConfigurationError:
    return ConfigurationError(
        "a construct breaks its contract",
        id="CONSTRUCT_CONTRACT_BROKEN",
        construct=stage.name,
        expected=expected,
        found=actual,
        todo="correct the construct, and test it with a contract of distcommit.testing.contracts",
    )
