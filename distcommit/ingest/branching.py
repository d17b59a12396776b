"""What becomes of an attempt's records in all branches: chains, fork, writers, error branches, and what is counted."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from distcommit.ingest.chain import Chain, Piece, Rejection, Rows, Tally, without
from distcommit.ingest.fed_again import ERROR_COLUMNS, FedAgain
from distcommit.ingest.forked import forked, rows_in
from distcommit.ingest.task_flow import Branch, TaskFlow
from distcommit.model.committer import check_plain
from distcommit.model.constructs import BranchCounts, TaskCheck
from distcommit.model.errors import ConfigurationError, QualityError, plain_text
from distcommit.model.sink import AttemptIdentity, Filtered, Origin, Origins, Prepared, Sink, SinkWriter, StagingArea
from distcommit.model.source import Provenance
from distcommit.model.watermark import Watermark
from distcommit.model.work import (
    MAIN_BRANCH,
    BranchResult,
    CheckOutcome,
    ConstructCounts,
    SkippedRange,
    WorkUnit,
    errors_of,
)
from distcommit.sinks.files.offsets import OffsetSets, parsed

logger = logging.getLogger(__name__)

Rejections = Mapping[int, Rejection]
_Found = tuple[Sequence[Piece], Rejections]
"""What a branch has made of a batch, and which rows it turned away."""
_FILTERED = "nothing was made of it, on purpose"


@dataclass(slots=True)
class _Lane:
    """A branch in one attempt."""

    branch: Branch
    writer: SinkWriter
    chain: Chain
    checks: list[TaskCheck]
    read: int = 0
    written: int = 0
    rejected: int = 0
    kept: int = 0
    filtered: OffsetSets = field(default_factory=OffsetSets)
    outcomes: tuple[CheckOutcome, ...] = ()

    @property
    def counts(self) -> BranchCounts:
        return BranchCounts(self.read, self.written, self.rejected, self.read - self.rejected - self.kept)


class Branches:
    """All branches of one attempt at a work unit. After an error only `abort` and `failed` are left; or, if `cut_back`
    says so, `prepare`.

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
        self._origin = Origin(flow.source.provenance, unit.low.incarnation, names, flow.makes_several, epochs)
        self._schema: pa.Schema | None = None
        self._shared = Chain(flow.stages)
        self._errors: dict[str, SinkWriter] = {}
        self._diverted: dict[str, int] = {}
        self._lanes: list[_Lane] = []
        for branch in flow.branches if not self._only else (flow.branch(self._only),):
            writer = self._open(branch.name)
            self._lanes.append(_Lane(branch, writer, Chain(branch.stages), [c.checker.begin() for c in branch.checks]))
        for converter in flow.converters:
            converter.begin_work_unit(unit.dataset_urn)
        self._is_plain = flow.fork is None and not (flow.stages or flow.branches[0].stages)
        self._is_whole = True
        self._tallied: list[list[Tally]] = []

    def note_holes(self, holes: Sequence[SkippedRange]) -> None:
        """Told to one writer: what a source does not have is in no branch."""
        if holes:
            self._lanes[0].writer.note_holes(holes)

    def take(self, batch: pa.RecordBatch, holes: Sequence[SkippedRange] = ()) -> None:
        """Sends a batch of the extractor through the constructs to the writers, with the holes before its end. No
        writer is given any of it until it is through all constructs.

        Raises:
            RecordError: if a record is to fail its work unit.
            ConfigurationError: if a construct can't work on what came, or does not keep what it says.
        """
        self._schema = batch.schema
        if self._is_plain:
            lane = self._lanes[0]
            self._is_whole = False
            self.note_holes(holes)
            lane.read += batch.num_rows
            lane.kept += batch.num_rows
            self._write(lane, batch, None)
            self._is_whole = True
            return
        self._tallied = [[replace(tally) for tally in chain.tallies] for chain in self._chains]
        pieces, rejected = self._shared.run([Piece(batch)])
        by_branch = forked(self._flow, pieces, batch.num_rows, rejected, self._only)
        made = [lane.chain.run(without(by_branch[lane.branch.name], rejected)) for lane in self._lanes]
        self._is_whole = False
        self.note_holes(holes)
        self._divert(self._only, batch, rejected)
        for lane, found in zip(self._lanes, made, strict=True):
            self._take(lane, batch, by_branch[lane.branch.name], rejected, found)
        self._is_whole, self._tallied = True, []

    def cut_back(self) -> bool:
        """After an error: forgets a batch that it came of, if no writer was given any of it.

        Returns:
            whether the writers hold whole batches, the same ones in all branches, so that these may be prepared.
        """
        for chain, tallies in zip(self._chains, self._tallied, strict=False):
            chain.tallies = tallies
        return self._is_whole

    def _take(
        self, lane: _Lane, batch: pa.RecordBatch, pieces: Sequence[Piece], rejected: Rejections, found: _Found
    ) -> None:
        """Gives what has become of the pieces that came to a branch to its writers."""
        came = rows_in(pieces, batch.num_rows) if self._flow.fork is not None else np.ones(batch.num_rows, bool)
        came[list(rejected)] = True
        made, own = found
        self._divert(lane.branch.name, batch, own)
        kept = rows_in(made, batch.num_rows)
        lane.read += int(np.count_nonzero(came))
        lane.rejected += len(rejected) + len(own)
        lane.kept += int(np.count_nonzero(kept))
        provenance = self._origin.provenance
        for piece in made:
            self._write(lane, piece.records, _origins(provenance, batch, piece.rows))
        kept[[*rejected, *own]] = True
        gone = None if kept.all() else _origins(provenance, batch, np.flatnonzero(~kept))
        if gone is not None and provenance is not None:
            lane.filtered.add_origins(gone, provenance)

    def _divert(self, branch: str, batch: pa.RecordBatch, rejected: Rejections) -> None:
        """Writes input records as they came to an error branch."""
        if not rejected:
            return
        name = errors_of("" if branch == MAIN_BRANCH else branch)
        if name not in self._errors:
            self._errors[name] = self._open(name)
        self._errors[name].write(_turned_away(branch, batch, rejected))
        self._diverted[name] = self._diverted.get(name, 0) + len(rejected)

    def _write(self, lane: _Lane, batch: pa.RecordBatch, origins: Origins | None) -> None:
        if not batch.num_rows:
            return
        for check in lane.checks:
            check.see(batch)
        lane.writer.write(batch, origins)
        lane.written += batch.num_rows

    def _open(self, branch: str) -> SinkWriter:
        """A writer for a branch."""
        return self._flow.sink_of(branch).open_writer(*self._place(branch), self._origin)

    def _place(self, branch: str) -> tuple[AttemptIdentity, StagingArea]:
        """Who writes a branch and where: in a folder of its own if it is not the only one."""
        area, name = self._area, branch.replace("/", ".")
        if branch != MAIN_BRANCH:
            area = replace(area, folder=f"{area.folder}/{name}", prefix=f"{area.prefix}/{name}")
            area.fs.make_folder(area.folder)
        return replace(self._identity, branch=branch), area

    # -- the end

    def prepare(self, reached: Watermark, said: Filtered | None = None) -> tuple[BranchResult, ...]:
        """Checks the branches, and prepares all of them.

        Args:
            reached: the attempt's actual high watermark.
            said: what files that are retired say of filtered records, to be said on.

        Raises:
            QualityError: if a mandatory checker is not satisfied.
        """
        self._is_whole = False
        for lane in self._lanes:
            self._check(lane)
        _require_passed(self._unit, self._lanes)
        holes = self._note_filtered(reached, said or Filtered({}, {}))
        results = []
        for lane in self._lanes:
            prepared, sink = lane.writer.prepare_commit(), lane.branch.sink
            check_infos(sink, prepared.infos)
            prepared, holes = replace(prepared, holes=(*prepared.holes, *holes)), ()
            results.append(_result(lane.branch.name, sink.name, prepared, lane.written, 0, lane.outcomes))
        for name, writer in self._errors.items():
            rows = self._diverted[name]
            results.append(_result(name, self._flow.errors.name, writer.prepare_commit(), 0, rows, ()))
        return tuple(results)

    @property
    def _chains(self) -> list[Chain]:
        return [self._shared, *(lane.chain for lane in self._lanes)]

    @property
    def written(self) -> int:
        """Records given to writers so far."""
        return sum(lane.written for lane in self._lanes)

    def failed(self) -> tuple[BranchResult, ...]:
        """What is told of an attempt that failed: how much it had written, and what is wrong with it."""
        nothing = Prepared()
        return tuple(
            _result(lane.branch.name, lane.branch.sink.name, nothing, lane.written, 0, lane.outcomes)
            for lane in self._lanes
        )

    def constructs(self) -> tuple[ConstructCounts, ...]:
        """What each construct did; nothing where there are none."""
        chains = [("", self._shared), *((lane.branch.name, lane.chain) for lane in self._lanes)]
        return tuple(
            tally.counts("" if branch == MAIN_BRANCH else branch, stage.name)
            for branch, chain in chains
            for stage, tally in zip(chain.stages, chain.tallies, strict=True)
        )

    def abort(self) -> None:
        """Has all writers let go of what they hold."""
        for writer in (*(lane.writer for lane in self._lanes), *self._errors.values()):
            try:
                writer.abort()
            except Exception:  # the attempt has failed anyway, for a better reason
                logger.warning("a writer could not be aborted", exc_info=True)

    def _check(self, lane: _Lane) -> None:
        """Asks a branch's task checkers. Of records that are fed again they only tell: these are what is left of many
        work units, and no work unit of the source."""
        for check, asked in zip(lane.branch.checks, lane.checks, strict=True):
            passed, detail = asked.outcome(lane.counts)
            is_mandatory = check.is_mandatory and not self._is_fed_again
            outcome = CheckOutcome(check.name, bool(passed), is_mandatory, plain_text(detail, 500))
            lane.outcomes = (*lane.outcomes, outcome)

    def _note_filtered(self, reached: Watermark, said: Filtered) -> Sequence[SkippedRange]:
        """Has one of the writers keep which input records came to nothing; or, where nothing at all was written, what
        is to be kept of it elsewhere."""
        sets = {branch: parsed(text) for branch, text in said.positions.items()}
        for lane in self._lanes:
            if lane.filtered.count():
                sets.setdefault(lane.branch.name, OffsetSets()).update(lane.filtered)
        if not sets:
            return ()
        counts = dict(said.counts)
        for each in self.constructs():
            if each.filtered:
                name = f"{each.branch}.{each.construct}" if each.branch else each.construct
                counts[name] = counts.get(name, 0) + each.filtered
        filtered = Filtered({branch: found.to_text() for branch, found in sets.items()}, counts)
        writers = (*(lane.writer for lane in self._lanes), *self._errors.values())
        if any(writer.note_filtered(filtered) for writer in writers):
            return ()
        if self._origin.replaces:  # there is no range that could say it
            self._keep_without_records(filtered)
            return ()
        if self.written:
            return ()
        low = self._unit.low
        return [
            SkippedRange(partition, low.positions[partition], high, _FILTERED, True, low.incarnation)
            for partition, high in reached.positions.items()
            if high != low.positions[partition]
        ]

    def _keep_without_records(self, filtered: Filtered) -> None:
        """An error file that has no records, and says what was filtered."""
        if self._schema is None:
            return
        name = errors_of(self._only)
        columns = [each for each in self._schema if each.name not in ERROR_COLUMNS]
        writer = self._flow.errors.open_writer(*self._place(name), self._origin)
        writer.keep_without_records(filtered, pa.schema([*columns, *((each, pa.string()) for each in ERROR_COLUMNS)]))
        self._errors[name], self._diverted[name] = writer, 0


def _require_passed(unit: WorkUnit, lanes: Sequence[_Lane]) -> None:
    """Raises QualityError if a mandatory checker is not satisfied."""
    failed = [
        f"{lane.branch.name}: {each.checker}: {each.detail}"
        for lane in lanes
        for each in lane.outcomes
        if each.mandatory and not each.passed
    ]
    if failed:
        raise QualityError(
            "what was read is not as a task checker wants it",
            dataset=unit.dataset_urn,
            work_unit=unit.work_unit_id,
            found="; ".join(failed),
            todo="mend the data or the check; nothing of this work unit is published until it passes",
        )


def _turned_away(branch: str, batch: pa.RecordBatch, rejected: Rejections) -> pa.RecordBatch:
    """Input records as they came, with the branch that turned them away, and why."""
    rows = sorted(rejected)
    records = batch.select([column for column in batch.schema.names if column not in ERROR_COLUMNS]).take(
        pa.array(rows, pa.int64())
    )
    said = ([branch] * len(rows), [rejected[row].construct for row in rows], [rejected[row].reason for row in rows])
    for column, values in zip(ERROR_COLUMNS, said, strict=True):
        records = records.append_column(column, pa.array(values, pa.string()))
    return records


def _origins(provenance: Provenance | None, batch: pa.RecordBatch, rows: Rows | None) -> Origins | None:
    """Where records came from that are of those rows."""
    if provenance is None:
        return None
    columns = [batch.column(name) for name in (provenance.partition_column, provenance.offset_column)]
    if rows is not None:
        columns = [column.take(pa.array(rows)) for column in columns]
    return Origins(*columns)


def _result(
    branch: str, sink: str, prepared: Prepared, written: int, diverted: int, checks: Sequence[CheckOutcome]
) -> BranchResult:
    return BranchResult(
        branch=branch,
        sink=sink,
        files=tuple(prepared.files),
        infos=tuple(prepared.infos),
        records_written=written,
        records_diverted=diverted,
        holes=tuple(prepared.holes),
        content_sum=prepared.content_sum,
        checks=tuple(checks),
    )


def check_infos(sink: Sink, infos: Sequence[object]) -> None:
    """Makes sure that commit infos can be stored. Raises ConfigurationError."""
    try:
        check_plain(list(infos))
    except TypeError as error:
        raise ConfigurationError(
            "a sink's commit infos can't be stored",
            sink=sink.name,
            expected="plain data: numbers, text, bytes, booleans, None, and lists and dicts of them",
            found=str(error),
            todo="mend the writer's prepare_commit",
        ) from error
