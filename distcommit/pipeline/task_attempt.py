"""One attempt at one work unit."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from distcommit.core.error_handling.foreign_errors import foreign_errors
from distcommit.core.errors import RecordError, error_text, printable
from distcommit.core.interfaces.clock import Clock
from distcommit.core.interfaces.sink import AttemptIdentity, StagingArea
from distcommit.core.interfaces.source import Extraction, Extractor
from distcommit.core.interfaces.work_unit_settings import SETTINGS
from distcommit.core.records.run_counts import SinkCounter
from distcommit.core.support.storable_check import storable
from distcommit.core.task_properties import TaskProperties
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import BranchResult, SchemaIds, TaskOutcome, TaskState, WorkUnit
from distcommit.pipeline.branches.all_branches import Branches
from distcommit.pipeline.branches.collect_task_properties import properties_of_parts, with_properties_of_writers
from distcommit.pipeline.merge_work_unit_settings import flow_of_unit
from distcommit.pipeline.position_check import PositionCheck, checked_bytes, checked_high, checked_holes
from distcommit.pipeline.progress_counters import READ, ProgressCounters
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.stores.schemas.schema_store import SchemaStore

logger = logging.getLogger(__name__)

MAX_BYTES = "max_bytes"
"""Work unit property: payload bytes after which the attempt stops. The next run continues there."""


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
    schema_store: SchemaStore | None = None,
    counters: ProgressCounters | None = None,
) -> TaskState:
    """Read and prepare in one call; arguments are those of `Attempt` and `Attempt.read`."""
    attempt = Attempt(flow, unit, area, identity, clock, schema_store=schema_store, counters=counters)
    attempt.read(extractor, deadline_ms, keeps_prefix=keeps_prefix)
    attempt.prepare()
    return attempt.state()


class Attempt:
    """One attempt at a work unit. Call `read`, then `prepare`, then `state`.

    A failure that concerns only this work unit is reported in the task state and never raised.

    Staged files are closed and have their staged names, but they are not synced. The caller must sync them before it
    puts the state.

    Args:
        identity: run, work unit and attempt.
        clock: for start and end times.
        schema_store: where converters store schemas.
    """

    def __init__(
        self,
        flow: TaskFlow,
        unit: WorkUnit,
        area: StagingArea,
        identity: AttemptIdentity,
        clock: Clock,
        *,
        schema_store: SchemaStore | None = None,
        counters: ProgressCounters | None = None,
    ) -> None:
        self.unit = unit
        self._flow = flow.for_dataset(unit.dataset_urn)
        self._area, self._identity, self._clock = area, identity, clock
        self._schema_store, self._live = schema_store, counters or ProgressCounters()
        self._failed = self._state = _initial_state(unit, identity, clock)
        self._finished_ms = self._failed.started_ms
        self._counts = _Counts()
        self._branches: Branches | None = None
        self._extraction: Extraction | None = None
        self._results: tuple[BranchResult, ...] | None = None
        self._properties: TaskProperties = {}
        self._spent: Mapping[str, float] = {}
        self._error: Exception | None = None

    def read(self, extractor: Extractor, deadline_ms: int = 0, *, keeps_prefix: bool = False) -> None:
        """Read the work unit through all constructs.

        At `deadline_ms` (milliseconds since 1970; 0 for never) reading stops after the current batch, or before the
        first, and the attempt succeeds.

        With `keeps_prefix`, a failed attempt keeps whole batches that all branches received and task checkers accept,
        as PARTIAL.
        """
        if deadline_ms and self._failed.started_ms >= deadline_ms:  # the next run reads all of it
            self._state = replace(self._failed, outcome=TaskOutcome.SUCCEEDED)
            return
        unit = self.unit
        try:
            with foreign_errors():
                self._read(unit, extractor, partial(_is_late, self._clock, deadline_ms), keeps_prefix=keeps_prefix)
        except Exception as error:  # noqa: BLE001 - reported in the state
            self._error = error
            self._record_properties_of_failure()
        self._note_problems()
        self._count_spent()
        if SETTINGS in unit.properties:  # its constructs are not used again
            self._flow.close()

    def _read(self, unit: WorkUnit, extractor: Extractor, is_late: Callable[[], bool], *, keeps_prefix: bool) -> None:
        self._flow = flow_of_unit(self._flow, unit)
        branches = self._branches = Branches(self._flow, unit, self._area, self._identity)
        branches.open(self._schema_store)
        extraction = self._extraction = extractor.extract(unit)
        delivered = PositionCheck(unit, self._flow.source.provenance)
        _copy(extraction, branches, delivered, self._counts, is_late, self._live, keeps_prefix=keeps_prefix)
        actual_high = checked_high(unit, extraction.actual_high())
        delivered.compare(actual_high)
        branches.note_holes(checked_holes(unit, extraction.holes()))
        filtered, holes = extraction.superseded_notes()
        branches.note_holes(holes)
        branches.run_task_checks(actual_high, filtered)
        self._properties = properties_of_parts(self._flow, branches.pipelines, extraction)
        self._state = replace(
            self._failed, outcome=TaskOutcome.SUCCEEDED, actual_high=actual_high, schemas=branches.schemas()
        )

    def _record_properties_of_failure(self) -> None:
        if self._branches is not None:
            with suppress(Exception), foreign_errors():  # the attempt already has an error to report
                self._properties = properties_of_parts(self._flow, self._branches.pipelines, self._extraction)

    def _note_problems(self) -> None:
        if self._branches is None or self._extraction is None:
            return
        try:
            with foreign_errors():
                self._branches.note_problems(*self._extraction.problems())
        except Exception as error:  # noqa: BLE001 - reported in the state
            self._error = self._error or error

    @property
    def prepares_in_background(self) -> bool:
        """Whether `prepare` may run in another thread, and saves time."""
        return self._error is None and self._branches is not None and self._branches.prepares_in_background

    @property
    def error(self) -> Exception | None:
        return self._error

    @property
    def bytes_read(self) -> int:
        """Payload bytes read, mostly in memory until `prepare` returns."""
        return self._counts.bytes_read

    def prepare(self) -> None:
        if self._error is None and self._branches is not None:
            try:
                with foreign_errors():
                    self._results = self._branches.prepare()
                    self._properties = with_properties_of_writers(self._properties, self._branches.pipelines)
            except Exception as error:  # noqa: BLE001 - reported in the state
                self._error = error
        self._finished_ms = self._clock.now_ms()

    @property
    def counters(self) -> tuple[SinkCounter, ...]:
        return self._identity.metrics.counters()

    def state(self) -> TaskState:
        """Return the task state; raises ValueError if `prepare` was not called."""
        branches, counts, extraction = self._branches, self._counts, self._extraction
        state = self._state
        if self._error is None and extraction is not None:
            if self._results is None:
                raise ValueError(f"the attempt {self._identity.attempt!r} was not prepared")
            try:
                with foreign_errors():
                    results = extraction.with_maintenance_files(self._results, self._area, self._identity)
                state = replace(state, branches=results)
                storable(state)  # one bad row would keep the whole table of task states from being stored
            except Exception as error:  # noqa: BLE001 - reported in the state
                self._error = error
        if self._error is not None:
            state = self._failure_state(self._error)
        self._count_spent()
        return replace(
            state,
            records_read=counts.read,
            bytes_read=counts.bytes_read,
            constructs=branches.constructs() if branches is not None else (),
            properties=self._properties,
            finished_ms=self._finished_ms,
        )

    def _count_spent(self) -> None:
        before, self._spent = self._spent, self._branches.seconds() if self._branches is not None else {}
        self._live.ended({activity: spent - before.get(activity, 0) for activity, spent in self._spent.items()})

    def _failure_state(self, error: Exception) -> TaskState:
        """Return a PARTIAL state if earlier batches can be prepared, else a FAILED state."""
        unit = self.unit
        if isinstance(error, RecordError):
            error.ids |= {"dataset": unit.dataset_urn, "work_unit": unit.work_unit_id}
        text = error_text(error)
        logger.warning("work unit failed: %s", printable(text), extra={"work_unit": unit.work_unit_id}, exc_info=error)
        failed, branches, counts = replace(self._failed, error=text), self._branches, self._counts
        if branches is None:
            return failed
        prefix = counts.prefix
        if branches.discard_failed_counts() and prefix is not None and prefix.high != failed.low:
            try:
                with foreign_errors():
                    branches.run_task_checks(prefix.high)
                    results = branches.prepare()
                    self._properties = with_properties_of_writers(self._properties, branches.pipelines)
                state = replace(failed, outcome=TaskOutcome.PARTIAL, actual_high=prefix.high, branches=results)
                state = replace(state, schemas=prefix.schemas)
                storable(state)
            except Exception:  # the state reports the first error
                logger.warning(
                    "the prefix of a failed work unit could not be prepared",
                    extra={"work_unit": failed.work_unit_id},
                    exc_info=True,
                )
            else:
                counts.read, counts.bytes_read = prefix.read, prefix.bytes_read
                return state
        branches.abort()
        return replace(failed, branches=branches.failed())


def _initial_state(unit: WorkUnit, identity: AttemptIdentity, clock: Clock) -> TaskState:
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
    """Counts of an attempt so far.

    Attributes:
        read: records read.
        bytes_read: payload bytes read.
        prefix: range that all branches have received; None if unneeded or unknown.
    """

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
    delivered: PositionCheck,
    counts: _Counts,
    is_late: Callable[[], bool],
    counters: ProgressCounters,
    *,
    keeps_prefix: bool,
) -> None:
    """Pass batches to the branches until the end, `MAX_BYTES`, or `is_late`.

    Raises:
        RecordError: if a record was rejected and must fail the work unit.
    """
    unit = delivered.unit
    max_bytes = int(unit.properties.get(MAX_BYTES, 0))
    batches = iter(extraction)
    while True:
        with _gc_paused():
            try:
                with counters.at(READ):
                    batch = next(batches)
            except StopIteration:
                return
            holes, before = checked_holes(unit, extraction.holes()), counts.bytes_read
            counts.read += batch.num_rows
            counts.bytes_read = checked_bytes(unit, extraction.bytes_read())
            delivered.take(batch, holes)
            branches.route(batch, holes)
        counters.count_batch(batch.num_rows, counts.bytes_read - before, branches.seconds())
        if keeps_prefix:
            counts.prefix = _prefix(extraction, branches, delivered, counts)
        if (max_bytes and counts.bytes_read >= max_bytes) or is_late():
            return


@contextmanager
def _gc_paused() -> Iterator[None]:
    """Pause cyclic garbage collection.

    A batch may create an object for each record, which reference counting frees; tracing costs 1/6 to 1/3 of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _prefix(extraction: Extraction, branches: Branches, delivered: PositionCheck, counts: _Counts) -> _Prefix | None:
    """Return the range read so far; None if the source has no position there."""
    try:
        high = checked_high(delivered.unit, extraction.actual_high())
        delivered.compare(high)
        return _Prefix(high, counts.read, counts.bytes_read, branches.schemas())
    except Exception:  # any failure means that reading cannot stop here
        logger.debug(
            "the source has no position between two batches",
            extra={"work_unit": delivered.unit.work_unit_id},
            exc_info=True,
        )
        return None
