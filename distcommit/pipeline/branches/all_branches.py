"""All branches of one attempt."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from distcommit.core.errors import QualityError
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.sink import AttemptIdentity, Filtered, Origin, Origins, SinkWriter, StagingArea
from distcommit.core.interfaces.source_table import extract_of
from distcommit.core.records.maintenance_units import ReprocessedFiles, maintenance_kind
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import (
    FILTERED,
    INPUT_PROBLEM,
    MAIN_BRANCH,
    BranchResult,
    CheckOutcome,
    ConstructCounts,
    SchemaIds,
    SkippedRange,
    WorkUnit,
    error_branch_of,
)
from distcommit.pipeline.branches.branch_pipeline import BranchPipeline
from distcommit.pipeline.branches.construct_chain import Chain, Tally, without_rows
from distcommit.pipeline.branches.error_branches import ErrorBranches, Rejections
from distcommit.pipeline.branches.error_columns import error_schema
from distcommit.pipeline.branches.fork_routing import Router, row_mask
from distcommit.pipeline.branches.traced_batch import Rows, TracedBatch
from distcommit.pipeline.converter_schema_ids import begin_stage, converter_notes, converter_schemas
from distcommit.pipeline.limits.time_limit import construct_time_limit
from distcommit.pipeline.progress_counters import WRITE, activity_in
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.sinks.files.offset_sets import OffsetSets, parsed
from distcommit.sinks.files.sink import AttemptFiles
from distcommit.stores.schemas.schema_store import SchemaStore

logger = logging.getLogger(__name__)

_Output = tuple[Sequence[TracedBatch], Rejections]
"""A batch's output, and rejected rows."""


class Branches:
    """All branches of one attempt at a work unit. Call `open` first.

    After an error, call `abort` and `failed`; or `prepare`, if `discard_failed_counts` has returned True.

    A reprocess unit reads rejected records again. It has only the branch that rejected them, and all errors belong to
    it. If all branches rejected the records, the unit has all branches.

    Args:
        identity: run, work unit and attempt.

    Attributes:
        pipelines: the branches.
    """

    def __init__(self, flow: TaskFlow, unit: WorkUnit, area: StagingArea, identity: AttemptIdentity) -> None:
        self._flow, self._unit, self._area, self._identity = flow, unit, area, identity
        reprocessed = ReprocessedFiles.of(unit)
        names = tuple(branch.name for branch in flow.branches) if reprocessed is None else reprocessed.branches
        epochs = () if reprocessed is None else reprocessed.epochs
        self._only_branch, self._is_reprocess = "" if reprocessed is None else reprocessed.branch, bool(reprocessed)
        publish = "append" if self._is_reprocess else flow.publish
        fields = (flow.source.provenance, unit.low.incarnation, names, flow.makes_several, epochs, publish)
        self._origin = Origin(*fields, extract_of(unit, (flow.describer or flow.source).extract_of(unit.dataset_urn)))
        self._schema: pa.Schema | None = None
        self._shared, self._router = Chain(flow.stages, unit, flow.construct_seconds), Router(flow)
        self._errors = ErrorBranches(self._open_errors)
        branches = flow.branches if not self._only_branch else (flow.branch(self._only_branch),)
        self.pipelines = [BranchPipeline(branch, unit, flow.construct_seconds) for branch in branches]
        self._is_plain = flow.fork is None and not (flow.stages or flow.branches[0].stages)
        self._is_whole, self._tallied = True, list[list[Tally]]()
        self._holes: Sequence[SkippedRange] = ()
        self._unreadable_count = 0

    def open(self, schema_store: SchemaStore | None = None) -> None:
        """Start the work unit in all constructs, and open the writers."""
        for stage in self._flow.stages:
            with construct_time_limit(self._flow.construct_seconds, stage.name):
                begin_stage(stage, self._unit, schema_store)
        schema = None if maintenance_kind(self._unit) else self._shared.known_schema(self._flow.source.batch_schema)
        for pipeline in self.pipelines:
            pipeline.open(partial(self._open, pipeline), schema, schema_store)

    def note_holes(self, holes: Sequence[SkippedRange]) -> None:
        """Pass holes to the first branch's writer, which records them for all."""
        if holes:
            self.pipelines[0].note_holes(holes)

    def route(self, batch: pa.RecordBatch, holes: Sequence[SkippedRange] = ()) -> None:
        """Pass a batch through converters, checkers and the fork to the writers, with the holes before its end.

        Writers receive the batch only after all of it has passed all converters and checkers.

        Raises:
            RecordError: if a rejected record must fail the work unit.
            ConfigurationError: if a converter, checker or fork fails, breaks its contract, or exceeds its time limit.
        """
        self._schema = batch.schema
        if self._is_plain:
            pipeline = self.pipelines[0]
            self._is_whole = False
            self.note_holes(holes)
            pipeline.read += batch.num_rows
            pipeline.with_output += batch.num_rows
            pipeline.write([TracedBatch(batch)] if batch.num_rows else [], lambda rows: None)
            self._is_whole = True
            return
        self._tallied = [[replace(tally) for tally in chain.tallies] for chain in self._chains]
        batches, rejected = self._shared.run([TracedBatch(batch)])
        with construct_time_limit(self._flow.construct_seconds if self._flow.fork else 0, "fork"):
            by_branch = self._router.route(batches, batch.num_rows, rejected, self._only_branch)
        outputs = [pipeline.run(without_rows(by_branch[pipeline.branch.name], rejected)) for pipeline in self.pipelines]
        self._is_whole = False
        self.note_holes(holes)
        own = [(pipeline.branch.name, own) for pipeline, (_, own) in zip(self.pipelines, outputs, strict=True)]
        self._errors.divert(batch, [(self._only_branch, rejected), *own])
        for pipeline, output in zip(self.pipelines, outputs, strict=True):
            self._route(pipeline, batch, by_branch[pipeline.branch.name], rejected, output)
        self._is_whole, self._tallied = True, []

    def discard_failed_counts(self) -> bool:
        """After an error, remove the counts of a batch that no writer has received.

        Return whether all writers have the same whole batches, which may be prepared. If an optional branch failed,
        return False: the work unit is read again without it.
        """
        for chain, tallies in zip(self._chains, self._tallied, strict=False):
            chain.tallies = tallies
        return self._is_whole and not any(pipeline.error and pipeline.branch.optional for pipeline in self.pipelines)

    def _route(
        self,
        pipeline: BranchPipeline,
        batch: pa.RecordBatch,
        batches: Sequence[TracedBatch],
        rejected: Rejections,
        output: _Output,
    ) -> None:
        routed = row_mask(batches, batch.num_rows) if self._flow.fork is not None else np.ones(batch.num_rows, bool)
        routed[list(rejected)] = True
        batches_out, own = output
        accounted = row_mask(batches_out, batch.num_rows)
        pipeline.read += int(np.count_nonzero(routed))
        pipeline.rejected += len(rejected) + len(own)
        pipeline.with_output += int(np.count_nonzero(accounted))
        provenance = self._origin.provenance
        pipeline.write(batches_out, partial(_origins, provenance, batch))
        accounted[[*rejected, *own]] = True
        filtered = None if accounted.all() else _origins(provenance, batch, np.flatnonzero(~accounted))
        if filtered is not None and provenance is not None:
            pipeline.filtered.add_origins(filtered, provenance)

    def _open(self, pipeline: BranchPipeline, schema: pa.Schema | None) -> SinkWriter:
        if pipeline.rejects_all:
            return self._errors.writer(error_branch_of(pipeline.branch.name))
        origin = replace(self._origin, schema=schema)
        return pipeline.branch.sink.open_writer(*self._identity_and_area(pipeline.branch.name), origin)

    def _open_errors(self, branch: str) -> AttemptFiles:
        return self._flow.errors.open_writer(*self._identity_and_area(branch), self._origin)

    def _identity_and_area(self, branch: str) -> tuple[AttemptIdentity, StagingArea]:
        area, name = self._area, branch.replace("/", ".")
        if branch != MAIN_BRANCH:
            area = replace(area, folder=f"{area.folder}/{name}", prefix=f"{area.prefix}/{name}")
            area.fs.make_folder(area.folder)
        metrics = self._identity.metrics.part(branch, self._flow.sink_of(branch).name)
        return replace(self._identity, branch=branch, store_id=self._flow.store_id, metrics=metrics), area

    def note_problems(self, count: int, texts: Sequence[str]) -> None:
        """Report converters' notes and unreadable inputs as checks without effect."""
        self._unreadable_count, first = count, self.pipelines[0]
        first.outcomes += converter_notes(self._flow.stages, *(pipeline.stages for pipeline in self.pipelines))
        first.outcomes += tuple(CheckOutcome(INPUT_PROBLEM, False, False, text) for text in texts)

    def run_task_checks(self, reached: Watermark, recorded: Filtered | None = None) -> None:
        """Run the task checkers, and pass offsets of filtered records to writers. Only `prepare` may follow.

        Args:
            reached: actual high watermark.
            recorded: filtered records of superseded files, to record again.

        Raises:
            QualityError: if a mandatory task checker fails.
        """
        self._is_whole = False
        # Reprocessed records are the rejects of many work units: task checkers cannot judge them.
        failures = [pipeline.run_task_checks(decides=not self._is_reprocess) for pipeline in self.pipelines]
        if failed := [failure for failure in failures if failure]:
            raise QualityError(
                "the work unit fails a mandatory task checker",
                dataset=self._unit.dataset_urn,
                work_unit=self._unit.work_unit_id,
                found="; ".join(failed),
                todo="correct the data or the checker; nothing of this work unit is published until it passes",
            )
        self._holes = self._note_filtered(reached, recorded or Filtered({}, {}))

    @property
    def prepares_in_background(self) -> bool:
        """Whether `prepare` may run in another thread, and saves time."""
        writers = (*(pipeline.writer for pipeline in self.pipelines), *self._errors.writers)
        return all(writer is not None and writer.prepares_in_background for writer in writers)

    def prepare(self) -> tuple[BranchResult, ...]:
        results, holes = list[BranchResult](), self._holes
        for pipeline in self.pipelines:
            results.append(pipeline.prepare(holes))
            holes = ()
        return (*results, *self._errors.prepare(self._flow.errors.name))

    @property
    def _chains(self) -> list[Chain | Router]:
        return [self._shared, self._router, *(pipeline.chain for pipeline in self.pipelines)]

    def failed(self) -> tuple[BranchResult, ...]:
        return tuple(pipeline.failed() for pipeline in self.pipelines)

    def constructs(self) -> tuple[ConstructCounts, ...]:
        branches = ["", "", *(_shown(pipeline.branch.name) for pipeline in self.pipelines)]
        counts = tuple(
            tally.counts(branch, name)
            for branch, chain in zip(branches, self._chains, strict=True)
            for name, tally in zip(chain.names, chain.tallies, strict=True)
        )
        unreadable = self._unreadable_count
        return (ConstructCounts("", INPUT_PROBLEM, noted=unreadable), *counts) if unreadable else counts

    def seconds(self) -> Mapping[str, float]:
        writing = {activity_in(_shown(pipeline.branch.name), WRITE): pipeline.writing_s for pipeline in self.pipelines}
        return {activity_in(count.branch, count.construct): count.seconds for count in self.constructs()} | writing

    def schemas(self) -> SchemaIds:
        """Return schema ids by converter, oldest first, including those of this attempt."""
        chains = [("", self._flow.stages), *((pipeline.branch.name, pipeline.stages) for pipeline in self.pipelines)]
        with construct_time_limit(self._flow.construct_seconds, "schema_ids"):
            return converter_schemas((stage, branch) for branch, stages in chains for stage in stages)

    def abort(self) -> None:
        """Abort all writers, in reverse order of opening."""
        for writer in reversed((*(pipeline.writer for pipeline in self.pipelines), *self._errors.writers)):
            try:
                if writer is not None:
                    writer.abort()
            except Exception:  # the attempt already has an error to report
                logger.warning("a writer could not be aborted", exc_info=True)

    def _note_filtered(self, reached: Watermark, recorded: Filtered) -> Sequence[SkippedRange]:
        """Record filtered records in one writer's file, or return them as holes."""
        sets = {branch: parsed(text) for branch, text in recorded.positions.items()}
        for pipeline in self.pipelines:
            if pipeline.filtered.count():
                sets.setdefault(pipeline.branch.name, OffsetSets()).update(pipeline.filtered)
        has_offsets = self._origin.provenance is not None
        counts = _filtered_by(self.constructs(), recorded.counts)
        if not (sets if has_offsets else counts):
            return ()
        filtered = Filtered({branch: offsets.to_text() for branch, offsets in sets.items()}, counts)
        writers: tuple[BranchPipeline | SinkWriter, ...] = (*self.pipelines, *self._errors.writers)
        if any(writer.note_filtered(filtered) for writer in writers):
            return ()
        if self._origin.replaces:  # no range of a reprocess unit can hold it
            if self._schema is not None:
                writer = self._errors.writer(error_branch_of(self._only_branch))
                writer.keep_without_records(filtered, error_schema(self._schema))
            return ()
        if not has_offsets or any(pipeline.written for pipeline in self.pipelines):
            return ()
        return _holes_of_range(self._unit.low, reached)


def _filtered_by(constructs: Sequence[ConstructCounts], before: Mapping[str, int]) -> dict[str, int]:
    counts = dict(before)
    for construct in constructs:
        if construct.filtered:
            name = activity_in(construct.branch, construct.construct)
            counts[name] = counts.get(name, 0) + construct.filtered
    return counts


def _holes_of_range(low: Watermark, reached: Watermark) -> list[SkippedRange]:
    return [
        SkippedRange(partition, low.positions[partition], high, FILTERED, True, low.incarnation)
        for partition, high in reached.positions.items()
        if isinstance(high, int) and high != low.positions[partition]  # only offsets are positions of single records
    ]


def _shown(branch: str) -> str:
    return "" if branch == MAIN_BRANCH else branch


def _origins(provenance: Provenance | None, batch: pa.RecordBatch, rows: Rows | None) -> Origins | None:
    if provenance is None:
        return None
    columns = [batch.column(name) for name in (provenance.partition_column, provenance.offset_column)]
    if rows is not None:
        columns = [column.take(pa.array(rows)) for column in columns]
    return Origins(*columns)
