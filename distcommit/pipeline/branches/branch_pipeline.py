"""One branch in one attempt."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa

from distcommit.core.error_handling.foreign_errors import foreign_errors
from distcommit.core.errors import ConfigurationError, error_text, reason_text
from distcommit.core.interfaces.committer import check_plain
from distcommit.core.interfaces.constructs import BranchCounts, TaskCheck
from distcommit.core.interfaces.sink import Filtered, Origins, Prepared, Sink, SinkWriter
from distcommit.core.task_properties import PropertyValue
from distcommit.core.work_units import BranchResult, CheckOutcome, SkippedRange, WorkUnit
from distcommit.pipeline.branches.construct_chain import Chain, Rejection
from distcommit.pipeline.branches.restore_source_order import in_source_order, merged_by_schema, runs_of
from distcommit.pipeline.branches.traced_batch import Rows, TracedBatch
from distcommit.pipeline.converter_schema_ids import begin_stage
from distcommit.pipeline.limits.time_limit import construct_time_limit
from distcommit.pipeline.task_flow import Branch, Stage
from distcommit.schemas.schema_size_limits import check_levels
from distcommit.sinks.files.offset_sets import OffsetSets
from distcommit.stores.schemas.schema_store import SchemaStore


@dataclass(slots=True)
class BranchPipeline:
    """One branch in one attempt at a work unit.

    An error that it raises fails the branch. If the branch failed in an earlier attempt at this work unit
    (`branch.error`), the branch is *diverted*: it rejects all records, and its writer writes to the error branch.

    Attributes:
        branch: the branch of the task flow.
        unit: the work unit.
        construct_seconds: seconds that each converter or checker may work on a batch; 0 for no limit.
        chain: the converters and row checkers in progress.
        checks: the task checkers in progress.
        writer: the sink's writer, once it is open.
        read: input records that the branch received.
        written: records passed to the writer.
        rejected: rejected input records.
        with_output: input records that resulted in at least one written record.
        filtered: offsets of the input records that resulted in no written record.
        outcomes: results of the task checkers.
        writing_s: seconds spent in the writer.
        writer_properties: the properties that the writer recorded, once it is prepared.
        error: why the branch failed.
        error_construct: the converter, checker or writer that failed.
    """

    branch: Branch
    unit: WorkUnit
    construct_seconds: float = 0
    chain: Chain = field(init=False)
    checks: list[TaskCheck] = field(default_factory=list)
    writer: SinkWriter | None = None
    read: int = 0
    written: int = 0
    rejected: int = 0
    with_output: int = 0
    filtered: OffsetSets = field(default_factory=OffsetSets)
    outcomes: tuple[CheckOutcome, ...] = ()
    writing_s: float = 0.0
    writer_properties: Mapping[str, PropertyValue] = field(default_factory=dict)
    error: str = ""
    error_construct: str = ""

    def __post_init__(self) -> None:
        self.chain = Chain(self.branch.stages, self.unit, self.construct_seconds)

    @property
    def rejects_all(self) -> bool:
        return bool(self.branch.error)

    @property
    def counts(self) -> BranchCounts:
        """The counts of input records so far."""
        return BranchCounts(self.read, self.written, self.rejected, self.read - self.rejected - self.with_output)

    @contextmanager
    def at(self, construct: str = "") -> Iterator[None]:
        """Record an error of the block as the branch's error, in `construct` or the chain's running stage.

        If the branch is diverted, the error fails the attempt.
        """
        try:
            with foreign_errors():
                yield
        except Exception as error:
            if not self.rejects_all:
                self.error, self.error_construct = error_text(error, 1000), construct or self.chain.at
            raise

    @contextmanager
    def _writing(self) -> Iterator[None]:
        began_s = time.perf_counter()
        with self.at(self.branch.sink.name):
            yield
        self.writing_s += time.perf_counter() - began_s

    @property
    def stages(self) -> Sequence[Stage]:
        return () if self.rejects_all else self.branch.stages

    def open(
        self,
        open_writer: Callable[[pa.Schema | None], SinkWriter],
        schema: pa.Schema | None,
        schema_store: SchemaStore | None = None,
    ) -> None:
        """Start the work unit in all converters and checkers, and open the writer with the schema of its records.

        Args:
            open_writer: opens the writer; its argument is the schema, or None if only the records determine it.
            schema: the schema of the branch's input, or None.
            schema_store: where converters keep schemas.
        """
        for stage in self.stages:
            with self.at(stage.name), construct_time_limit(self.construct_seconds, stage.name):
                begin_stage(stage, self.unit, schema_store, self.branch.name)
        with self.at(self.branch.sink.name):
            self.writer = open_writer(self._known_schema(schema))
        if self.rejects_all:
            return
        for check in self.branch.checks:
            with self.at(check.name):
                self.checks.append(check.checker.begin())

    def _known_schema(self, schema: pa.Schema | None) -> pa.Schema | None:
        """Return the records' schema, or None if only they determine it.

        Columns that a converter does not accept fail only at a record, because a fork may send no records.
        """
        try:
            with foreign_errors():
                return None if self.rejects_all else self.chain.known_schema(schema)
        except Exception:  # noqa: BLE001 - a custom converter's, too
            return None

    def run(self, batches: Sequence[TracedBatch]) -> tuple[list[TracedBatch], dict[int, Rejection]]:
        """Return output and rejected rows; raises the errors of `Chain.run`."""
        if self.rejects_all:
            reason = Rejection(self.branch.error_construct, self.branch.error)
            return [], {row: reason for traced in batches for row in traced.origin_rows().tolist()}
        with self.at():
            return self.chain.run(batches)

    def write(self, traceds: Sequence[TracedBatch], origins_of: Callable[[Rows | None], Origins | None]) -> None:
        """Pass records to the task checkers and the writer in source order.

        Args:
            traceds: output of the chain for one batch.
            origins_of: returns the source positions of records, given the rows that they came from.
        """
        if not traceds or self.writer is None:
            return
        grouped = merged_by_schema(traceds, with_metadata=False)
        for check, task_check in zip(self.branch.checks, self.checks, strict=True):
            for traced in grouped if check.checker.groups_schemas else in_source_order(grouped):
                with self.at(check.name):
                    task_check.inspect(traced.records)
        with self._writing():
            for traced in grouped:
                check_levels(traced.records.schema)
            origins = [origins_of(traced.rows) for traced in grouped]
            complete = [(number, 0, traced.records.num_rows) for number, traced in enumerate(grouped)]
            for number, begin, length in complete if self.writer.groups_schemas else runs_of(grouped):
                of = origins[number]
                run = (
                    None if of is None else Origins(of.partitions.slice(begin, length), of.offsets.slice(begin, length))
                )
                self.writer.write(grouped[number].records.slice(begin, length), run)
                self.written += length

    def run_task_checks(self, *, decides: bool) -> str:
        """Run the task checkers; return failed mandatory checks, or an empty text.

        Args:
            decides: whether a failed check can fail the branch.
        """
        if self.rejects_all:
            return ""
        for check, task_check in zip(self.branch.checks, self.checks, strict=True):
            with self.at(check.name):
                passed, detail = task_check.outcome(self.counts)
                result = CheckOutcome(
                    check.name, bool(passed), check.is_mandatory and decides, reason_text(detail, 500)
                )
            self.outcomes = (*self.outcomes, result)
        failed = [result for result in self.outcomes if result.mandatory and not result.passed]
        if not failed:
            return ""
        self.error_construct = failed[0].checker
        self.error = "; ".join(f"{result.checker}: {result.detail}" for result in failed)
        return "; ".join(f"{self.branch.name}: {result.checker}: {result.detail}" for result in failed)

    def note_holes(self, holes: Sequence[SkippedRange]) -> None:
        if self.writer is not None:
            with self.at(self.branch.sink.name):
                self.writer.note_holes(holes)

    def note_filtered(self, filtered: Filtered) -> bool:
        """Pass filtered offsets to the writer; return whether it stores them."""
        if self.writer is None:
            return False
        with self.at(self.branch.sink.name):
            return self.writer.note_filtered(filtered)

    def prepare(self, holes: Sequence[SkippedRange]) -> BranchResult:
        """Prepare the writer's commit; a diverted branch prepares nothing."""
        if self.rejects_all or self.writer is None:
            return self._result(Prepared(holes=holes), self.branch.error, self.branch.error_construct)
        with self._writing():
            prepared = self.writer.prepare_commit()
            check_infos(self.branch.sink, prepared.infos)
            self.writer_properties = self.writer.task_properties()
        return self._result(replace(prepared, holes=(*prepared.holes, *holes)))

    def failed(self) -> BranchResult:
        """Return the result of a failed branch: counts, check outcomes and the error."""
        return self._result(Prepared(), self.error, self.error_construct)

    def _result(self, prepared: Prepared, error: str = "", error_construct: str = "") -> BranchResult:
        return BranchResult(
            branch=self.branch.name,
            sink=self.branch.sink.name,
            files=tuple(prepared.files),
            infos=tuple(prepared.infos),
            records_written=self.written,
            holes=tuple(prepared.holes),
            content_sum=prepared.content_sum,
            checks=self.outcomes,
            error=error,
            error_construct=error_construct,
        )


def check_infos(sink: Sink, infos: Sequence[object]) -> None:
    """Raise ConfigurationError if a commit info cannot be stored."""
    try:
        check_plain(list(infos))
    except TypeError as error:
        raise ConfigurationError(
            "a sink's commit infos can't be stored",
            id="CONSTRUCT_CONTRACT_BROKEN",
            sink=sink.name,
            expected="plain data: numbers, text, bytes, booleans, None, and lists and dicts of them",
            found=str(error),
            todo="correct prepare_commit of the sink's writer",
        ) from error
