"""What one task attempt does with one work unit: extract, decode, write, and report it as a task state."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from distcommit.ingest.decode import Decoder
from distcommit.model.committer import check_plain
from distcommit.model.errors import ConfigurationError, RecordError, SourceError, error_text, printable
from distcommit.model.ports import Clock
from distcommit.model.sink import AttemptIdentity, Origin, Prepared, Sink, SinkWriter, StagingArea
from distcommit.model.source import Extraction, Extractor, Source
from distcommit.model.storable import storable
from distcommit.model.watermark import Watermark, at_or_past
from distcommit.model.work import MAIN_BRANCH, BranchResult, SkippedRange, TaskOutcome, TaskState, WorkUnit

logger = logging.getLogger(__name__)

MAX_BYTES = "max_bytes"
"""Property of a work unit: payload bytes after which it stops and leaves the rest to the next run."""
_MOST_BYTES = 1 << 48
"""More than any work unit has: sums of such numbers stay within 64 bits."""


@dataclass(frozen=True, slots=True)
class WorkUnitFlow:
    """The job's constructs from source to sink. Picklable.

    `divert_rejected`: records that can't be decoded go to the writer's `reject`; otherwise they fail the work unit.
    """

    source: Source
    decoder: Decoder
    sink: Sink
    divert_rejected: bool


def run_work_unit(
    flow: WorkUnitFlow,
    extractor: Extractor,
    unit: WorkUnit,
    area: StagingArea,
    identity: AttemptIdentity,
    clock: Clock,
    deadline_ms: int = 0,
) -> TaskState:
    """Reads the work unit and prepares it at the sink. What concerns this work unit alone is never raised: failures are
    states.

    Staged files are closed and have their staged names, but are not synced: the caller syncs before it publishes the
    state.
    """
    failed = state = _begun(unit, identity, clock)
    if deadline_ms and state.started_ms >= deadline_ms:  # the run's time is up: all of it waits for the next run
        return replace(state, outcome=TaskOutcome.SUCCEEDED, finished_ms=state.started_ms)
    writer: SinkWriter | None = None
    counts, sink = _Counts(), flow.sink
    try:
        writer = sink.open_writer(identity, area, Origin(flow.source.provenance, unit.low.incarnation))
        extraction = extractor.extract(unit)
        _copy(flow, unit, extraction, writer, counts, lambda: bool(deadline_ms) and clock.now_ms() >= deadline_ms)
        actual_high = _checked(unit, extraction.actual_high())
        writer.note_holes(_checked_holes(unit, extraction.holes()))
        prepared = writer.prepare_commit()
        _check_infos(sink, prepared.infos)
        state = replace(
            state, outcome=TaskOutcome.SUCCEEDED, actual_high=actual_high, branches=(counts.result(sink, prepared),)
        )
        storable(state)  # else the rows that are stored with it could not be stored either
    except Exception as error:
        text = error_text(error)
        logger.warning("work unit failed: %s", printable(text), extra={"work_unit": unit.work_unit_id}, exc_info=True)
        state = replace(failed, error=text, branches=(counts.result(sink, Prepared()),))
        if writer is not None:
            _abort(writer)
    return replace(state, records_read=counts.read, bytes_read=counts.bytes_read, finished_ms=clock.now_ms())


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
    """What an attempt has read and written so far."""

    read: int = 0
    written: int = 0
    diverted: int = 0
    bytes_read: int = 0

    def result(self, sink: Sink, prepared: Prepared) -> BranchResult:
        """What is told of the branch."""
        return BranchResult(
            branch=MAIN_BRANCH,
            sink=sink.name,
            files=tuple(prepared.files),
            infos=tuple(prepared.infos),
            records_written=self.written,
            records_diverted=self.diverted,
            holes=tuple(prepared.holes),
            content_sum=prepared.content_sum,
        )


def _copy(
    flow: WorkUnitFlow,
    unit: WorkUnit,
    extraction: Extraction,
    writer: SinkWriter,
    counts: _Counts,
    is_late: Callable[[], bool],
) -> None:
    """Hands the work unit's records to the writer: all of them, or until it has read enough or is late.

    Raises:
        RecordError: if one can't be decoded, and such are not diverted.
    """
    max_bytes = int(unit.properties.get(MAX_BYTES, 0))
    for batch in extraction:
        writer.note_holes(_checked_holes(unit, extraction.holes()))
        decoded = flow.decoder.decode(batch)
        counts.read += batch.num_rows
        counts.bytes_read = _checked_bytes(unit, extraction.bytes_read())
        if decoded.rejected is not None and decoded.rejected.num_rows:
            if not flow.divert_rejected:
                raise RecordError(
                    "a record can't be decoded",
                    dataset=unit.dataset_urn,
                    work_unit=unit.work_unit_id,
                    found=decoded.first_error,
                    todo="mend the producer or the decoder, or set on_undecodable: divert",
                )
            writer.reject(decoded.rejected)
            counts.diverted += decoded.rejected.num_rows
        if decoded.records.num_rows:
            writer.write(decoded.records)
            counts.written += decoded.records.num_rows
        if (max_bytes and counts.bytes_read >= max_bytes) or is_late():
            return


def _abort(writer: SinkWriter) -> None:
    try:
        writer.abort()
    except Exception:  # the attempt has failed anyway, for a better reason
        logger.warning("a writer could not be aborted", exc_info=True)


def _check_infos(sink: Sink, infos: Sequence[object]) -> None:
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
        low, high = unit.low.positions.get(hole.partition), unit.expected_high.positions.get(hole.partition)
        within = low is not None and high is not None and at_or_past(hole.low, low) and at_or_past(high, hole.high)
        if not (within and hole.is_hole and at_or_past(hole.high, hole.low)):
            raise SourceError(
                "the source reports a hole outside its work unit",
                work_unit=unit.work_unit_id,
                expected=f"between {unit.low} and {unit.expected_high}",
                found=str(hole),
                todo="correct the source's Extraction.holes",
            )
    return found
