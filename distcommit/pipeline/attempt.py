"""What one task attempt does with one work unit: extract, convert, check, write, and report it as a task state."""

from __future__ import annotations

import gc
import logging
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from distcommit.core.errors import RecordError, SourceError, error_text, printable
from distcommit.core.foreign_errors import foreign_errors
from distcommit.core.interfaces.sink import AttemptIdentity, StagingArea
from distcommit.core.interfaces.source import Extraction, Extractor
from distcommit.core.ports import Clock
from distcommit.core.support.storable import storable
from distcommit.core.watermark import Watermark, at_or_past
from distcommit.core.work import BranchResult, SchemaIds, SkippedRange, TaskOutcome, TaskState, WorkUnit
from distcommit.pipeline.branches.branching import Branches
from distcommit.pipeline.limits.progress_counters import READ, Live
from distcommit.pipeline.position_check import Delivered
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.stores.schemas.schema_history import SchemaStore

logger = logging.getLogger(__name__)

MAX_BYTES = "max_bytes"
"""Property of a work unit: payload bytes after which it stops and leaves the rest to the next run."""
_MOST_BYTES = 1 << 48
"""More than any work unit has: sums of such numbers stay within 64 bits."""


def run_work_unit(
    flow: TaskFlow,
    extractor: Extractor,
    unit: WorkUnit,
    area: StagingArea,
    identity: AttemptIdentity,
    clock: Clock,
    deadline_ms: int = 0,
    *,
    keeps_prefix: bool = False,
    kept: SchemaStore | None = None,
    live: Live | None = None,
) -> TaskState:
    """Reads the work unit and prepares it at the sink, one after the other, as `Attempt` has it."""
    attempt = Attempt(flow, unit, area, identity, clock, kept=kept, live=live)
    attempt.read(extractor, deadline_ms, keeps_prefix=keeps_prefix)
    attempt.prepare()
    return attempt.state()


class Attempt:
    """One at a work unit: first `read`, then `prepare`, then `state`. What concerns this work unit alone is never
    raised: failures are states. What it spends is told to `live`.

    Staged files are closed and have their staged names, but are not synced: the caller syncs before it publishes the
    state.

    Args:
        flow: the job's.
        unit: what is read.
        area: the attempt's folder.
        identity: who reads it.
        clock: for when it began and ended.
        kept: where converters keep schemas.
        live: told how far it is.
    """

    def __init__(
        self,
        flow: TaskFlow,
        unit: WorkUnit,
        area: StagingArea,
        identity: AttemptIdentity,
        clock: Clock,
        *,
        kept: SchemaStore | None = None,
        live: Live | None = None,
    ) -> None:
        self.unit = unit
        self._flow, self._area, self._identity, self._clock = flow, area, identity, clock
        self._kept, self._live = kept, live or Live()
        self._failed = self._state = _begun(unit, identity, clock)
        self._finished_ms = self._failed.started_ms
        self._counts = _Counts()
        self._branches: Branches | None = None
        self._extraction: Extraction | None = None
        self._results: tuple[BranchResult, ...] | None = None
        self._spent: Mapping[str, float] = {}
        self._error: Exception | None = None

    def read(self, extractor: Extractor, deadline_ms: int = 0, *, keeps_prefix: bool = False) -> None:
        """Reads it, and asks all constructs. With `keeps_prefix` one that fails keeps what it has read before, in whole
        batches, if all branches hold these and their mandatory task checks pass on them: then it is partial."""
        if deadline_ms and self._failed.started_ms >= deadline_ms:  # the time is up: all of it waits for the next run
            self._state = replace(self._failed, outcome=TaskOutcome.SUCCEEDED)
            return
        unit = self.unit
        try:
            with foreign_errors():
                self._read(unit, extractor, partial(_is_late, self._clock, deadline_ms), keeps_prefix=keeps_prefix)
        except Exception as error:  # noqa: BLE001 - the state tells it
            self._error = error
        self._tell_spent()

    def _read(self, unit: WorkUnit, extractor: Extractor, is_late: Callable[[], bool], *, keeps_prefix: bool) -> None:
        branches = self._branches = Branches(self._flow, unit, self._area, self._identity)
        branches.open(self._kept)
        extraction = self._extraction = extractor.extract(unit)
        delivered = Delivered(unit, self._flow.source.provenance)
        _copy(extraction, branches, delivered, self._counts, is_late, self._live, keeps_prefix=keeps_prefix)
        actual_high = _checked(unit, extraction.actual_high())
        delivered.compare(actual_high)
        branches.note_holes(_checked_holes(unit, extraction.holes()))
        filtered, holes = extraction.said_on()
        branches.note_holes(holes)
        branches.ask(actual_high, filtered)
        self._state = replace(
            self._failed, outcome=TaskOutcome.SUCCEEDED, actual_high=actual_high, schemas=branches.schemas()
        )

    @property
    def prepares_apart(self) -> bool:
        """Whether `prepare` may be called in another thread, while this one reads on, and is worth that."""
        return self._error is None and self._branches is not None and self._branches.prepares_apart

    @property
    def bytes_read(self) -> int:
        """Payload bytes, most of which may wait in memory to be prepared."""
        return self._counts.bytes_read

    def prepare(self) -> None:
        """Has all writers prepare what was read."""
        if self._error is None and self._branches is not None:
            try:
                with foreign_errors():
                    self._results = self._branches.prepare()
            except Exception as error:  # noqa: BLE001 - the state tells it
                self._error = error
        self._finished_ms = self._clock.now_ms()

    def state(self) -> TaskState:
        """What has become of it, with what was prepared.

        Raises:
            ValueError: if it is still to be prepared: it would claim what nobody can publish.
        """
        branches, counts, extraction = self._branches, self._counts, self._extraction
        state = self._state
        if self._error is None and extraction is not None:
            if self._results is None:
                raise ValueError(f"the attempt {self._identity.attempt!r} was not prepared")
            try:
                with foreign_errors():
                    results = extraction.staged_with(self._results, self._area, self._identity)
                state = replace(state, branches=results)
                storable(state)  # else the rows that are stored with it could not be stored either
            except Exception as error:  # noqa: BLE001 - the state tells it
                self._error = error
        if self._error is not None:
            state = self._what_is_left(self._error)
        self._tell_spent()
        return replace(
            state,
            records_read=counts.read,
            bytes_read=counts.bytes_read,
            constructs=branches.constructs() if branches is not None else (),
            finished_ms=self._finished_ms,
        )

    def _tell_spent(self) -> None:
        before, self._spent = self._spent, self._branches.seconds() if self._branches is not None else {}
        self._live.ended({activity: spent - before.get(activity, 0) for activity, spent in self._spent.items()})

    def _what_is_left(self, error: Exception) -> TaskState:
        """What an attempt that failed says: its prefix is prepared if it has one, or else nothing is kept of it."""
        unit = self.unit
        if isinstance(error, RecordError):
            error.ids |= {"dataset": unit.dataset_urn, "work_unit": unit.work_unit_id}
        text = error_text(error)
        logger.warning("work unit failed: %s", printable(text), extra={"work_unit": unit.work_unit_id}, exc_info=error)
        failed, branches, counts = replace(self._failed, error=text), self._branches, self._counts
        if branches is None:
            return failed
        prefix = counts.prefix
        if branches.cut_back() and prefix is not None and prefix.high != failed.low:
            try:
                with foreign_errors():
                    branches.ask(prefix.high)
                    results = branches.prepare()
                state = replace(failed, outcome=TaskOutcome.PARTIAL, actual_high=prefix.high, branches=results)
                state = replace(state, schemas=prefix.schemas)
                storable(state)
            except Exception:  # the attempt has failed anyway, for another reason
                logger.warning("nothing of it is kept", extra={"work_unit": failed.work_unit_id}, exc_info=True)
            else:
                counts.read, counts.bytes_read = prefix.read, prefix.bytes_read
                return state
        branches.abort()
        return replace(failed, branches=branches.failed())


def _begun(unit: WorkUnit, identity: AttemptIdentity, clock: Clock) -> TaskState:
    """An attempt that has read nothing yet; as it stands, a failed one."""
    return TaskState(
        run_id=identity.run_id,
        epoch=identity.epoch,
        dataset_urn=unit.dataset_urn,
        work_unit_id=unit.work_unit_id,
        attempt=identity.attempt,
        outcome=TaskOutcome.FAILED,
        low=unit.low,
        expected_high=unit.expected_high,
        actual_high=unit.low,
        started_ms=clock.now_ms(),
    )


@dataclass(slots=True)
class _Counts:
    """What an attempt has read so far; `prefix`: how far that reaches, as all branches have taken it, if it is to be
    kept and the source can tell."""

    read: int = 0
    bytes_read: int = 0
    prefix: _Prefix | None = None


@dataclass(frozen=True, slots=True)
class _Prefix:
    high: Watermark
    read: int
    bytes_read: int
    schemas: SchemaIds


def _is_late(clock: Clock, deadline_ms: int) -> bool:
    return bool(deadline_ms) and clock.now_ms() >= deadline_ms


def _copy(
    extraction: Extraction,
    branches: Branches,
    delivered: Delivered,
    counts: _Counts,
    is_late: Callable[[], bool],
    live: Live,
    *,
    keeps_prefix: bool,
) -> None:
    """Hands the work unit's records to the branches: all of them, or until it has read enough or is late.

    Raises:
        RecordError: if one is turned away that is to fail the work unit.
    """
    unit = delivered.unit
    max_bytes = int(unit.properties.get(MAX_BYTES, 0))
    batches = iter(extraction)
    while True:
        with _uncollected():
            try:
                with live.at(READ):
                    batch = next(batches)
            except StopIteration:
                return
            holes, before = _checked_holes(unit, extraction.holes()), counts.bytes_read
            counts.read += batch.num_rows
            counts.bytes_read = _checked_bytes(unit, extraction.bytes_read())
            delivered.take(batch, holes)
            branches.take(batch, holes)
        live.took(batch.num_rows, counts.bytes_read - before, branches.seconds())
        if keeps_prefix:
            counts.prefix = _prefix(extraction, branches, delivered, counts)
        if (max_bytes and counts.bytes_read >= max_bytes) or is_late():
            return


@contextmanager
def _uncollected() -> Iterator[None]:
    """Puts Python's search for cyclic garbage off until a batch is through: each of its records may be an object, or
    several, that is gone by then without it. Looked at while they come, they take a sixth to a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _prefix(extraction: Extraction, branches: Branches, delivered: Delivered, counts: _Counts) -> _Prefix | None:
    """How far is read by now; None if the source can't tell it between these two batches."""
    try:
        high = _checked(delivered.unit, extraction.actual_high())
        delivered.compare(high)
        return _Prefix(high, counts.read, counts.bytes_read, branches.schemas())
    except Exception:  # whatever it is, it is no position to stop at
        logger.debug("no position between two batches", extra={"work_unit": delivered.unit.work_unit_id}, exc_info=True)
        return None


def _checked(unit: WorkUnit, actual: Watermark) -> Watermark:
    """The actual high watermark, if it is one that this work unit can have.

    Raises:
        SourceError: if it lies outside the work unit's range or names other partitions: the source is at fault.
    """
    if unit.can_end_at(actual):
        return actual
    raise SourceError(
        "the source reports an actual high watermark outside its work unit",
        work_unit=unit.work_unit_id,
        expected=f"between {unit.low} and {unit.expected_high}",
        found=str(actual),
        todo="correct the source's Extraction.actual_high",
    )


def _checked_bytes(unit: WorkUnit, bytes_read: int) -> int:
    """How much was read, as a number of Python's."""
    found = operator.index(bytes_read)
    if 0 <= found <= _MOST_BYTES:
        return found
    raise SourceError(
        "the source reports a number of bytes that it can't have read",
        work_unit=unit.work_unit_id,
        expected=f"0 to {_MOST_BYTES}",
        found=str(found),
        todo="correct the source's Extraction.bytes_read",
    )


def _checked_holes(unit: WorkUnit, holes: Iterable[SkippedRange]) -> list[SkippedRange]:
    """The holes, if they are ranges of the work unit: footers name them, and the audit believes footers."""
    found = [storable(hole) for hole in holes]
    for hole in found:
        low, high = unit.low.positions.get(hole.partition), unit.expected_high.positions.get(hole.partition, hole.high)
        within = low is not None and at_or_past(hole.low, low) and at_or_past(high, hole.high)
        if not (within and hole.is_hole and at_or_past(hole.high, hole.low)):
            raise SourceError(
                "the source reports a hole outside its work unit",
                work_unit=unit.work_unit_id,
                expected=f"between {unit.low} and {unit.expected_high}",
                found=str(hole),
                todo="correct the source's Extraction.holes",
            )
    return found
