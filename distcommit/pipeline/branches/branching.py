"""What becomes of an attempt's records in all branches: chains, fork, writers, error branches, and what is counted."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from distcommit.core.errors import QualityError
from distcommit.core.interfaces.extract import extract_of
from distcommit.core.interfaces.sink import AttemptIdentity, Filtered, Origin, Origins, SinkWriter, StagingArea
from distcommit.core.provenance import Provenance
from distcommit.core.support.nesting import check_levels
from distcommit.core.watermark import Watermark
from distcommit.core.work import (
    FILTERED,
    MAIN_BRANCH,
    BranchResult,
    ConstructCounts,
    SchemaIds,
    SkippedRange,
    WorkUnit,
    errors_of,
)
from distcommit.pipeline.branches.branch_pipeline import Lane
from distcommit.pipeline.branches.chain import Chain, Rejection, Tally, without
from distcommit.pipeline.branches.error_columns import error_records, error_schema
from distcommit.pipeline.branches.fork_routing import forked, rows_in
from distcommit.pipeline.branches.piece import Piece, Rows
from distcommit.pipeline.known_schemas import begin, known_to
from distcommit.pipeline.limits.progress_counters import WRITE, activity_in
from distcommit.pipeline.limits.time_limit import at_most
from distcommit.pipeline.maintenance.reprocess import FedAgain
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.sinks.files.offsets import OffsetSets, parsed
from distcommit.sinks.files.sink import AttemptFiles
from distcommit.stores.schemas.schema_history import SchemaStore

logger = logging.getLogger(__name__)

Rejections = Mapping[int, Rejection]
_Found = tuple[Sequence[Piece], Rejections]
"""What a branch has made of a batch, and which rows it turned away."""


class Branches:
    """All branches of one attempt at a work unit: first `open`. After an error only `abort` and `failed` are left, or,
    if `cut_back` says so, `prepare`.

    At a maintenance unit they are those that had turned its records away: if that is one, all errors are its own.

    Args:
        flow: the job's.
        unit: what is read.
        area: the attempt's folder.
        identity: whose records they are.
    """

    def __init__(self, flow: TaskFlow, unit: WorkUnit, area: StagingArea, identity: AttemptIdentity) -> None:
        self._flow, self._unit, self._area, self._identity = flow, unit, area, identity
        again = FedAgain.of(unit)
        names = again.branches if again is not None else tuple(branch.name for branch in flow.branches)
        epochs = again.epochs if again is not None else ()
        self._only, self._is_fed_again = again.branch if again is not None else "", again is not None
        publish = "append" if self._is_fed_again else flow.publish
        told = (flow.source.provenance, unit.low.incarnation, names, flow.makes_several, epochs, publish)
        self._origin = Origin(*told, extract_of(unit, flow.source.extract_of(unit.dataset_urn)))
        self._schema: pa.Schema | None = None
        self._shared = Chain(flow.stages, flow.construct_seconds)
        self._errors: dict[str, AttemptFiles] = {}
        self._diverted: dict[str, int] = {}
        branches = flow.branches if not self._only else (flow.branch(self._only),)
        self._lanes = [Lane(branch, flow.construct_seconds) for branch in branches]
        self._is_plain = flow.fork is None and not (flow.stages or flow.branches[0].stages)
        self._is_whole = True
        self._tallied: list[list[Tally]] = []
        self._holes: Sequence[SkippedRange] = ()

    def open(self, kept: SchemaStore | None = None) -> None:
        """Begins the work unit: opens the writers, and tells converters, which keep schemas there, and checkers."""
        for stage in self._flow.stages:
            with at_most(self._flow.construct_seconds, stage.name):
                begin(stage, self._unit, kept)
        for lane in self._lanes:
            lane.open(self._unit, partial(self._open, lane), kept)

    def note_holes(self, holes: Sequence[SkippedRange]) -> None:
        """Told to one writer: what a source does not have is in no branch."""
        if holes:
            self._lanes[0].note_holes(holes)

    def take(self, batch: pa.RecordBatch, holes: Sequence[SkippedRange] = ()) -> None:
        """Sends a batch of the extractor through the constructs to the writers, with the holes before its end. No
        writer is given any of it until it is through all constructs.

        Raises:
            RecordError: if a record is to fail its work unit.
            ConfigurationError: if a construct can't work on what came, does not keep what it says, or does not end.
        """
        self._schema = batch.schema
        if self._is_plain:
            lane = self._lanes[0]
            self._is_whole = False
            self.note_holes(holes)
            lane.read += batch.num_rows
            lane.kept += batch.num_rows
            lane.write([Piece(batch)] if batch.num_rows else [], lambda rows: None)
            self._is_whole = True
            return
        self._tallied = [[replace(tally) for tally in chain.tallies] for chain in self._chains]
        pieces, rejected = self._shared.run([Piece(batch)])
        with at_most(self._flow.construct_seconds if self._flow.fork else 0, "fork"):
            by_branch = forked(self._flow, pieces, batch.num_rows, rejected, self._only)
        made = [lane.run(without(by_branch[lane.branch.name], rejected)) for lane in self._lanes]
        self._is_whole = False
        self.note_holes(holes)
        self._divert(
            batch,
            [
                (self._only, rejected),
                *((lane.branch.name, own) for lane, (_, own) in zip(self._lanes, made, strict=True)),
            ],
        )
        for lane, found in zip(self._lanes, made, strict=True):
            self._take(lane, batch, by_branch[lane.branch.name], rejected, found)
        self._is_whole, self._tallied = True, []

    def cut_back(self) -> bool:
        """After an error: forgets a batch that it came of, if no writer was given any of it.

        Returns:
            whether the writers hold whole batches, the same ones in all branches, so that these may be prepared. Not
            if an optional branch has failed: then the attempt is made once more, without it.
        """
        for chain, tallies in zip(self._chains, self._tallied, strict=False):
            chain.tallies = tallies
        return self._is_whole and not any(lane.error and lane.branch.optional for lane in self._lanes)

    def _take(
        self, lane: Lane, batch: pa.RecordBatch, pieces: Sequence[Piece], rejected: Rejections, found: _Found
    ) -> None:
        """Gives what has become of the pieces that came to a branch to its writers."""
        came = rows_in(pieces, batch.num_rows) if self._flow.fork is not None else np.ones(batch.num_rows, bool)
        came[list(rejected)] = True
        made, own = found
        kept = rows_in(made, batch.num_rows)
        lane.read += int(np.count_nonzero(came))
        lane.rejected += len(rejected) + len(own)
        lane.kept += int(np.count_nonzero(kept))
        provenance = self._origin.provenance
        lane.write(made, partial(_origins, provenance, batch))
        kept[[*rejected, *own]] = True
        gone = None if kept.all() else _origins(provenance, batch, np.flatnonzero(~kept))
        if gone is not None and provenance is not None:
            lane.filtered.add_origins(gone, provenance)

    def _divert(self, batch: pa.RecordBatch, rejected: Sequence[tuple[str, Rejections]]) -> None:
        """Write input records as they came to error branches, in source order; `rejected` by the branch's name."""
        for name, found in _by_error_branch(rejected).items():
            writer, errors = self._open_errors(name), _turned_away(batch, found)
            check_levels(errors.schema)
            writer.write(errors)
            self._diverted[name] += len(found)

    def _open(self, lane: Lane) -> SinkWriter:
        """A branch's writer; of one that is diverted that of its error branch."""
        if lane.is_diverted:
            return self._open_errors(errors_of(lane.branch.name))
        return lane.branch.sink.open_writer(*self._place(lane.branch.name), self._origin)

    def _open_errors(self, branch: str) -> AttemptFiles:
        """The writer of an error branch."""
        if branch not in self._errors:
            self._errors[branch] = self._flow.errors.open_writer(*self._place(branch), self._origin)
            self._diverted[branch] = 0
        return self._errors[branch]

    def _place(self, branch: str) -> tuple[AttemptIdentity, StagingArea]:
        """Who writes a branch and where: in a folder of its own if it is not the only one."""
        area, name = self._area, branch.replace("/", ".")
        if branch != MAIN_BRANCH:
            area = replace(area, folder=f"{area.folder}/{name}", prefix=f"{area.prefix}/{name}")
            area.fs.make_folder(area.folder)
        return replace(self._identity, branch=branch, store_id=self._flow.store_id), area

    # -- the end

    def ask(self, reached: Watermark, said: Filtered | None = None) -> None:
        """Checks the branches, and tells the writers what was filtered. Then `prepare` is left.

        Args:
            reached: the attempt's actual high watermark.
            said: what files that are retired say of filtered records, to be said on.

        Raises:
            QualityError: if a mandatory checker is not satisfied.
        """
        self._is_whole = False
        # Of records that are fed again they only tell: these are what is left of many work units.
        found = [lane.ask(decides=not self._is_fed_again) for lane in self._lanes]
        if failed := [each for each in found if each]:
            raise QualityError(
                "what was read is not as a task checker wants it",
                dataset=self._unit.dataset_urn,
                work_unit=self._unit.work_unit_id,
                found="; ".join(failed),
                todo="mend the data or the check; nothing of this work unit is published until it passes",
            )
        self._holes = self._note_filtered(reached, said or Filtered({}, {}))

    @property
    def prepares_apart(self) -> bool:
        """Whether `prepare` may be called in another thread, and is worth that."""
        writers = (*(lane.writer for lane in self._lanes), *self._errors.values())
        return all(writer is not None and writer.prepares_apart for writer in writers)

    def prepare(self) -> tuple[BranchResult, ...]:
        """Has the writers of all branches prepare."""
        results, holes = list[BranchResult](), self._holes
        for lane in self._lanes:
            results.append(lane.prepare(holes))
            holes = ()
        sink, diverted = self._flow.errors.name, self._diverted
        return (*results, *(_errors_of(name, sink, diverted[name], made) for name, made in self._errors.items()))

    @property
    def _chains(self) -> list[Chain]:
        return [self._shared, *(lane.chain for lane in self._lanes)]

    @property
    def written(self) -> int:
        """Records given to writers so far."""
        return sum(lane.written for lane in self._lanes)

    def failed(self) -> tuple[BranchResult, ...]:
        """What is told of an attempt that failed: how much it had written, and what is wrong with it."""
        return tuple(lane.failed() for lane in self._lanes)

    def constructs(self) -> tuple[ConstructCounts, ...]:
        """What each construct did; nothing where there are none."""
        chains = [("", self._shared), *((lane.branch.name, lane.chain) for lane in self._lanes)]
        return tuple(
            tally.counts(_shown(branch), stage.name)
            for branch, chain in chains
            for stage, tally in zip(chain.stages, chain.tallies, strict=True)
        )

    def seconds(self) -> Mapping[str, float]:
        """What constructs and writers have spent so far."""
        writing = {activity_in(_shown(lane.branch.name), WRITE): lane.writing_s for lane in self._lanes}
        return {activity_in(each.branch, each.construct): each.seconds for each in self.constructs()} | writing

    def schemas(self) -> SchemaIds:
        """The schemas that converters know of the dataset now."""
        chains = [("", self._flow.stages), *((lane.branch.name, lane.stages) for lane in self._lanes)]
        with at_most(self._flow.construct_seconds, "schemas_known"):
            return known_to((stage, branch) for branch, stages in chains for stage in stages)

    def abort(self) -> None:
        """Has all writers let go of what they hold, the one that was opened last first."""
        for writer in reversed((*(lane.writer for lane in self._lanes), *self._errors.values())):
            try:
                if writer is not None:
                    writer.abort()
            except Exception:  # the attempt has failed anyway, for a better reason
                logger.warning("a writer could not be aborted", exc_info=True)

    def _note_filtered(self, reached: Watermark, said: Filtered) -> Sequence[SkippedRange]:
        """Has one of the writers keep which input records came to nothing; or, where nothing at all was written, what
        is to be kept of it elsewhere."""
        sets = {branch: parsed(text) for branch, text in said.positions.items()}
        for lane in self._lanes:
            if lane.filtered.count():
                sets.setdefault(lane.branch.name, OffsetSets()).update(lane.filtered)
        has_offsets = self._origin.provenance is not None
        counts = _filtered_by(self.constructs(), said.counts)
        if not (sets if has_offsets else counts):
            return ()
        filtered = Filtered({branch: found.to_text() for branch, found in sets.items()}, counts)
        writers: tuple[Lane | SinkWriter, ...] = (*self._lanes, *self._errors.values())
        if any(writer.note_filtered(filtered) for writer in writers):
            return ()
        if self._origin.replaces:  # there is no range that could say it
            self._keep_without_records(filtered)
            return ()
        if self.written or not has_offsets:
            return ()
        return _nothing_of(self._unit.low, reached)

    def _keep_without_records(self, filtered: Filtered) -> None:
        """An error file that has no records, and says what was filtered."""
        if self._schema is None:
            return
        name = errors_of(self._only)
        self._open_errors(name).keep_without_records(filtered, error_schema(self._schema))


def _filtered_by(constructs: Sequence[ConstructCounts], before: Mapping[str, int]) -> dict[str, int]:
    """How many records each construct has filtered, beside what was said before."""
    counts = dict(before)
    for each in constructs:
        if each.filtered:
            name = activity_in(each.branch, each.construct)
            counts[name] = counts.get(name, 0) + each.filtered
    return counts


def _nothing_of(low: Watermark, reached: Watermark) -> list[SkippedRange]:
    """Holes where a work unit has read, as nothing came of it."""
    return [
        SkippedRange(partition, low.positions[partition], high, FILTERED, True, low.incarnation)
        for partition, high in reached.positions.items()
        if isinstance(high, int) and high != low.positions[partition]  # of other positions no record has one
    ]


def _shown(branch: str) -> str:
    """A branch's name where constructs are told; that of the only one is none."""
    return "" if branch == MAIN_BRANCH else branch


def _errors_of(branch: str, sink: str, diverted: int, writer: AttemptFiles) -> BranchResult:
    """What the writer of an error branch has prepared."""
    prepared = writer.prepare_commit()
    return BranchResult(
        branch=branch,
        sink=sink,
        files=tuple(prepared.files),
        records_diverted=diverted,
        holes=tuple(prepared.holes),
        content_sum=prepared.content_sum,
    )


def _by_error_branch(rejected: Sequence[tuple[str, Rejections]]) -> dict[str, dict[int, tuple[str, Rejection]]]:
    """Return the rejected rows of each error branch that has any, with the branch that turned them away."""
    by_name: dict[str, dict[int, tuple[str, Rejection]]] = {}
    for branch, rejections in rejected:
        if rejections:
            of_name = by_name.setdefault(errors_of(_shown(branch)), {})
            of_name.update((row, (branch, why)) for row, why in rejections.items())
    return by_name


def _turned_away(batch: pa.RecordBatch, rejected: Mapping[int, tuple[str, Rejection]]) -> pa.RecordBatch:
    """Input records as they came, with the branch that turned them away, and why."""
    rows = sorted(rejected)
    branches, why = zip(*(rejected[row] for row in rows), strict=True)
    reasons = ([each.construct for each in why], [each.reason for each in why])
    return error_records(batch.take(pa.array(rows, pa.int64())), branches, *reasons)


def _origins(provenance: Provenance | None, batch: pa.RecordBatch, rows: Rows | None) -> Origins | None:
    """Where records came from that are of those rows."""
    if provenance is None:
        return None
    columns = [batch.column(name) for name in (provenance.partition_column, provenance.offset_column)]
    if rows is not None:
        columns = [column.take(pa.array(rows)) for column in columns]
    return Origins(*columns)
