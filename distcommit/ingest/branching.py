"""What becomes of an attempt's records in all branches: chains, fork, writers, error branches, and what is counted."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from distcommit.ingest.chain import Chain, Piece, Rejection, turned_away, without
from distcommit.ingest.task_flow import Branch, TaskFlow
from distcommit.model.committer import check_plain
from distcommit.model.constructs import BranchCounts, TaskCheck
from distcommit.model.errors import ConfigurationError, QualityError, plain_text
from distcommit.model.sink import AttemptIdentity, Filtered, Origin, Origins, Prepared, Sink, SinkWriter, StagingArea
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
from distcommit.sinks.files.offsets import OffsetSets

logger = logging.getLogger(__name__)

ERROR_COLUMNS = ("error_branch", "error_construct", "error_reason")
"""What error branches' records have beside what the source gave: the branch that turned them away (empty: all of them),
the construct, and why."""

_FORK = "fork"
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
    """All branches of one attempt at a work unit. After an error only `abort` and `failed` are left.

    Args:
        flow: the job's.
        unit: what is read.
        area: the attempt's folder.
        identity: whose records they are.
    """

    def __init__(self, flow: TaskFlow, unit: WorkUnit, area: StagingArea, identity: AttemptIdentity) -> None:
        self._flow, self._unit, self._area, self._identity = flow, unit, area, identity
        names = tuple(branch.name for branch in flow.branches)
        self._origin = Origin(flow.source.provenance, unit.low.incarnation, names, flow.makes_several)
        self._shared = Chain(flow.stages)
        self._errors: dict[str, SinkWriter] = {}
        self._diverted: dict[str, int] = {}
        self._lanes: list[_Lane] = []
        for branch in flow.branches:
            writer = self._open(branch.name)
            self._lanes.append(_Lane(branch, writer, Chain(branch.stages), [c.checker.begin() for c in branch.checks]))
        self._is_plain = flow.fork is None and not (flow.stages or flow.branches[0].stages)

    def note_holes(self, holes: Sequence[SkippedRange]) -> None:
        """Told to one writer: what a source does not have is in no branch."""
        if holes:
            self._lanes[0].writer.note_holes(holes)

    def take(self, batch: pa.RecordBatch) -> None:
        """Sends a batch of the extractor through the constructs to the writers.

        Raises:
            RecordError: if a record is to fail its work unit.
            ConfigurationError: if a construct can't work on what came, or does not keep what it says.
        """
        if self._is_plain:
            lane = self._lanes[0]
            lane.read += batch.num_rows
            lane.kept += batch.num_rows
            self._write(lane, batch, None)
            return
        pieces, rejected = self._shared.run([Piece(batch)])
        by_branch = self._forked(pieces, rejected)
        self._divert("", batch, rejected)
        for lane in self._lanes:
            self._take(lane, batch, by_branch[lane.branch.name], rejected)

    def _take(
        self, lane: _Lane, batch: pa.RecordBatch, pieces: Sequence[Piece], rejected: Mapping[int, Rejection]
    ) -> None:
        """Sends what has come to a branch on to its writer."""
        came = _rows_in(pieces, batch.num_rows) if self._flow.fork is not None else np.ones(batch.num_rows, bool)
        came[list(rejected)] = True
        made, own = lane.chain.run(without(pieces, rejected))
        self._divert(lane.branch.name, batch, own)
        kept = _rows_in(made, batch.num_rows)
        lane.read += int(np.count_nonzero(came))
        lane.rejected += len(rejected) + len(own)
        lane.kept += int(np.count_nonzero(kept))
        for piece in made:
            self._write(lane, piece.records, self._origins(batch, piece.rows))
        kept[[*rejected, *own]] = True
        gone = None if kept.all() else self._origins(batch, np.flatnonzero(~kept))
        if gone is not None and self._origin.provenance is not None:
            lane.filtered.add_origins(gone, self._origin.provenance)

    def _forked(self, pieces: Sequence[Piece], rejected: dict[int, Rejection]) -> Mapping[str, list[Piece]]:
        """What goes to each branch; adds to the rejected ones those that go nowhere."""
        fork, names = self._flow.fork, [lane.branch.name for lane in self._lanes]
        if fork is None:
            return {names[0]: list(pieces)}
        found: dict[str, list[Piece]] = {name: [] for name in names}
        for piece in pieces:
            accepting = [name for name in names if fork.accepts(name, piece.records.schema)]
            chosen = fork.choose(piece.records, accepting) if accepting else {}
            somewhere = np.zeros(piece.records.num_rows, bool)
            for name in accepting:
                if name not in chosen:
                    continue
                keep = _as_mask(chosen[name], len(somewhere), name)
                somewhere |= keep
                if keep.any():
                    found[name].append(piece.only(keep))
            for row in piece.origin_rows()[~somewhere].tolist():
                if self._flow.on_rejected == "fail":
                    raise turned_away(_FORK, "no branch takes it")
                rejected.setdefault(row, Rejection(_FORK, "no branch takes it"))
        return found

    def _divert(self, branch: str, batch: pa.RecordBatch, rejected: Mapping[int, Rejection]) -> None:
        """Writes input records as they came to an error branch."""
        if not rejected:
            return
        rows = sorted(rejected)
        name = errors_of("" if branch == MAIN_BRANCH else branch)
        if name not in self._errors:
            self._errors[name] = self._open(name)
        records = batch.select([column for column in batch.schema.names if column not in ERROR_COLUMNS]).take(
            pa.array(rows, pa.int64())
        )
        said = ([branch] * len(rows), [rejected[row].construct for row in rows], [rejected[row].reason for row in rows])
        for column, values in zip(ERROR_COLUMNS, said, strict=True):
            records = records.append_column(column, pa.array(values, pa.string()))
        self._errors[name].write(records)
        self._diverted[name] = self._diverted.get(name, 0) + len(rows)

    def _origins(self, batch: pa.RecordBatch, rows: npt.NDArray[np.int64] | None) -> Origins | None:
        """Where records came from that are of those rows."""
        provenance = self._origin.provenance
        if provenance is None:
            return None
        columns = [batch.column(name) for name in (provenance.partition_column, provenance.offset_column)]
        if rows is not None:
            columns = [column.take(pa.array(rows)) for column in columns]
        return Origins(*columns)

    def _write(self, lane: _Lane, batch: pa.RecordBatch, origins: Origins | None) -> None:
        if not batch.num_rows:
            return
        for check in lane.checks:
            check.see(batch)
        lane.writer.write(batch, origins)
        lane.written += batch.num_rows

    def _open(self, branch: str) -> SinkWriter:
        """A writer for a branch, in a folder of its own if it is not the only one."""
        area, name = self._area, branch.replace("/", ".")
        if branch != MAIN_BRANCH:
            area = replace(area, folder=f"{area.folder}/{name}", prefix=f"{area.prefix}/{name}")
            area.fs.make_folder(area.folder)
        identity = replace(self._identity, branch=branch)
        return self._flow.sink_of(branch).open_writer(identity, area, self._origin)

    # -- the end

    def prepare(self, reached: Watermark) -> tuple[BranchResult, ...]:
        """Checks the branches, and prepares all of them.

        Args:
            reached: the attempt's actual high watermark.

        Raises:
            QualityError: if a mandatory checker is not satisfied.
        """
        for lane in self._lanes:
            self._check(lane)
        failed = [
            f"{lane.branch.name}: {each.checker}: {each.detail}"
            for lane in self._lanes
            for each in lane.outcomes
            if each.mandatory and not each.passed
        ]
        if failed:
            raise QualityError(
                "what was read is not as a task checker wants it",
                dataset=self._unit.dataset_urn,
                work_unit=self._unit.work_unit_id,
                found="; ".join(failed),
                todo="mend the data or the check; nothing of this work unit is published until it passes",
            )
        holes = self._note_filtered(reached)
        results = []
        for lane in self._lanes:
            prepared, sink = lane.writer.prepare_commit(), lane.branch.sink
            check_infos(sink, prepared.infos)
            prepared, holes = replace(prepared, holes=(*prepared.holes, *holes)), ()
            results.append(_result(lane.branch.name, sink.name, prepared, lane.written, 0, lane.outcomes))
        for name, writer in self._errors.items():
            rows = self._diverted[name]
            results.append(_result(name, self._flow.errors.name, writer.prepare_commit(), 0, rows, ()))
        self.close()
        return tuple(results)

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
        self.close()

    def close(self) -> None:
        """Has the converters let go of what they hold."""
        for converter in self._flow.converters:
            try:
                converter.close()
            except Exception:
                logger.warning("a converter could not be closed", exc_info=True)

    def _check(self, lane: _Lane) -> None:
        """Asks a branch's task checkers."""
        for check, asked in zip(lane.branch.checks, lane.checks, strict=True):
            passed, detail = asked.outcome(lane.counts)
            outcome = CheckOutcome(check.name, bool(passed), check.is_mandatory, plain_text(detail, 500))
            lane.outcomes = (*lane.outcomes, outcome)

    def _note_filtered(self, reached: Watermark) -> Sequence[SkippedRange]:
        """Has one of the writers keep which input records came to nothing; or, where nothing at all was written, what
        is to be kept of it elsewhere."""
        positions = {lane.branch.name: lane.filtered.to_text() for lane in self._lanes if lane.filtered.count()}
        if not positions:
            return ()
        counts: dict[str, int] = {}
        for each in self.constructs():
            if each.filtered:
                counts[f"{each.branch}.{each.construct}" if each.branch else each.construct] = each.filtered
        writers = (*(lane.writer for lane in self._lanes), *self._errors.values())
        if any(writer.note_filtered(Filtered(positions, counts)) for writer in writers) or self.written:
            return ()
        low = self._unit.low
        return [
            SkippedRange(partition, low.positions[partition], high, _FILTERED, True, low.incarnation)
            for partition, high in reached.positions.items()
            if high != low.positions[partition]
        ]


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


def _rows_in(pieces: Sequence[Piece], rows: int) -> npt.NDArray[np.bool_]:
    """Which rows of the extractor's batch anything in the pieces came from."""
    found = np.zeros(rows, bool)
    for piece in pieces:
        found[piece.origin_rows()] = True
    return found


def _as_mask(mask: pa.BooleanArray | None, rows: int, branch: str) -> npt.NDArray[np.bool_]:
    if mask is None:
        return np.ones(rows, bool)
    if len(mask) != rows or not pa.types.is_boolean(mask.type):
        raise ConfigurationError(
            "a fork operator does not keep what it says",
            branch=branch,
            expected=f"a boolean for each of {rows} records",
            found=f"{len(mask)} {mask.type}",
            todo="mend the operator's choose()",
        )
    found: npt.NDArray[np.bool_] = (pc.fill_null(mask, False) if mask.null_count else mask).to_numpy(
        zero_copy_only=False
    )
    return found


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
