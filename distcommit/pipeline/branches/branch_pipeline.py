"""A branch in one attempt at a work unit: its chain, its writer, its task checkers, and whether it has failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from distcommit.core.errors import ConfigurationError, error_text, reason_text
from distcommit.core.foreign_errors import foreign_errors
from distcommit.core.interfaces.committer import check_plain
from distcommit.core.interfaces.constructs import BranchCounts, TaskCheck
from distcommit.core.interfaces.sink import Filtered, Origins, Prepared, Sink, SinkWriter
from distcommit.core.support.nesting import check_levels
from distcommit.core.work import BranchResult, CheckOutcome, SkippedRange, WorkUnit
from distcommit.pipeline.branches.chain import Chain, Rejection
from distcommit.pipeline.branches.piece import Piece, Rows
from distcommit.pipeline.branches.source_order import in_source_order, merged_by_schema, runs_of
from distcommit.pipeline.known_schemas import begin
from distcommit.pipeline.limits.time_limit import at_most
from distcommit.pipeline.task_flow import Branch, Stage
from distcommit.sinks.files.offsets import OffsetSets
from distcommit.stores.schemas.schema_history import SchemaStore


@dataclass(slots=True)
class Lane:
    """A branch in one attempt. What is raised here has failed the branch: `error` says why, and `error_construct` at
    which construct.

    `construct_seconds`: how long each construct may work on a batch, 0 for no limit.

    One that failed before (`branch.error`) turns all records away; its writer is that of its error branch.
    """

    branch: Branch
    construct_seconds: float = 0
    chain: Chain = field(init=False)
    checks: list[TaskCheck] = field(default_factory=list)
    writer: SinkWriter | None = None
    read: int = 0
    written: int = 0
    rejected: int = 0
    kept: int = 0
    filtered: OffsetSets = field(default_factory=OffsetSets)
    outcomes: tuple[CheckOutcome, ...] = ()
    writing_s: float = 0.0
    error: str = ""
    error_construct: str = ""

    def __post_init__(self) -> None:
        self.chain = Chain(self.branch.stages, self.construct_seconds)

    @property
    def is_diverted(self) -> bool:
        """Whether all of its records are turned away."""
        return bool(self.branch.error)

    @property
    def counts(self) -> BranchCounts:
        """What became of the input records so far."""
        return BranchCounts(self.read, self.written, self.rejected, self.read - self.rejected - self.kept)

    @contextmanager
    def at(self, construct: str = "") -> Iterator[None]:
        """What is raised within has failed the branch, at that construct; by default at the one of its chain that was
        at work. Of a branch that is diverted it has failed the attempt: nothing is left to be diverted."""
        try:
            with foreign_errors():
                yield
        except Exception as error:
            if not self.is_diverted:
                self.error, self.error_construct = error_text(error, 1000), construct or self.chain.at
            raise

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """The same at the sink, whose time is taken."""
        began_s = time.perf_counter()
        with self.at(self.branch.sink.name):
            yield
        self.writing_s += time.perf_counter() - began_s

    @property
    def stages(self) -> Sequence[Stage]:
        """What its records go through."""
        return () if self.is_diverted else self.branch.stages

    def open(self, unit: WorkUnit, open_writer: Callable[[], SinkWriter], kept: SchemaStore | None = None) -> None:
        """Begins the work unit. `kept`: where converters keep schemas."""
        with self.at(self.branch.sink.name):
            self.writer = open_writer()
        if self.is_diverted:
            return
        for stage in self.branch.stages:
            with self.at(stage.name), at_most(self.construct_seconds, stage.name):
                begin(stage, unit, kept, self.branch.name)
        for check in self.branch.checks:
            with self.at(check.name):
                self.checks.append(check.checker.begin())

    def run(self, pieces: Sequence[Piece]) -> tuple[list[Piece], dict[int, Rejection]]:
        """What the chain makes of the pieces, and which rows are turned away. Raises as `Chain.run`."""
        if self.is_diverted:
            why = Rejection(self.branch.error_construct, self.branch.error)
            return [], {row: why for piece in pieces for row in piece.origin_rows().tolist()}
        with self.at():
            return self.chain.run(pieces)

    def write(self, made: Sequence[Piece], origins_of: Callable[[Rows | None], Origins | None]) -> None:
        """Pass records to the task checkers and the writer in source order.

        Args:
            made: what the chain returned of one batch.
            origins_of: returns where records of these rows came from.
        """
        if not made or self.writer is None:
            return
        grouped = merged_by_schema(made, with_metadata=False)
        for check, asked in zip(self.branch.checks, self.checks, strict=True):
            for piece in grouped if check.checker.groups_schemas else in_source_order(grouped):
                with self.at(check.name):
                    asked.see(piece.records)
        with self._writing():
            for piece in grouped:
                check_levels(piece.records.schema)
            origins = [origins_of(piece.rows) for piece in grouped]
            whole = [(number, 0, piece.records.num_rows) for number, piece in enumerate(grouped)]
            for number, begin, length in whole if self.writer.groups_schemas else runs_of(grouped):
                of = origins[number]
                run = (
                    None if of is None else Origins(of.partitions.slice(begin, length), of.offsets.slice(begin, length))
                )
                self.writer.write(grouped[number].records.slice(begin, length), run)
                self.written += length

    def ask(self, *, decides: bool) -> str:
        """Asks the task checkers.

        Args:
            decides: whether mandatory ones do; else all of them only tell.

        Returns:
            what mandatory ones are not satisfied with; empty if they are.
        """
        if self.is_diverted:
            return ""
        for check, asked in zip(self.branch.checks, self.checks, strict=True):
            with self.at(check.name):
                passed, detail = asked.outcome(self.counts)
                found = CheckOutcome(check.name, bool(passed), check.is_mandatory and decides, reason_text(detail, 500))
            self.outcomes = (*self.outcomes, found)
        failed = [each for each in self.outcomes if each.mandatory and not each.passed]
        if not failed:
            return ""
        self.error_construct = failed[0].checker
        self.error = "; ".join(f"{each.checker}: {each.detail}" for each in failed)
        return "; ".join(f"{self.branch.name}: {each.checker}: {each.detail}" for each in failed)

    def note_holes(self, holes: Sequence[SkippedRange]) -> None:
        """Tells the writer of holes."""
        if self.writer is not None:
            with self.at(self.branch.sink.name):
                self.writer.note_holes(holes)

    def note_filtered(self, filtered: Filtered) -> bool:
        """Tells the writer what was filtered; whether it keeps it."""
        if self.writer is None:
            return False
        with self.at(self.branch.sink.name):
            return self.writer.note_filtered(filtered)

    def prepare(self, holes: Sequence[SkippedRange]) -> BranchResult:
        """What the writer has prepared, with those holes to be kept beside it. Of a branch that is diverted nothing."""
        if self.is_diverted or self.writer is None:
            return self._result(Prepared(holes=holes), self.branch.error, self.branch.error_construct)
        with self._writing():
            prepared = self.writer.prepare_commit()
            check_infos(self.branch.sink, prepared.infos)
        return self._result(replace(prepared, holes=(*prepared.holes, *holes)))

    def failed(self) -> BranchResult:
        """What is told of an attempt that failed: how much it had written here, what was checked, and what failed."""
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
