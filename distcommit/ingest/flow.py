"""What one task attempt does with one work unit: extract, decode, write, and report it as a task state."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from msgspec.structs import replace

from distcommit.ingest.decode import Decoder
from distcommit.ingest.staging import AttemptFolder
from distcommit.model.errors import RecordError, SourceError, plain_text
from distcommit.model.ports import Clock, FileSystem
from distcommit.model.source import Extractor, Source
from distcommit.model.urn import folder_of
from distcommit.model.watermark import Watermark
from distcommit.model.work import TaskOutcome, TaskState, WorkUnit
from distcommit.sinks.files import AttemptFiles, AttemptIdentity, FileSinkSettings

logger = logging.getLogger(__name__)

MAX_BYTES = "max_bytes"
"""Property of a work unit: payload bytes after which it stops and leaves the rest to the next run."""


@dataclass(frozen=True, slots=True)
class WorkUnitFlow:
    """The job's constructs from source to staged files. Picklable.

    `divert_rejected`: records that can't be decoded go to an error file; otherwise they fail the work unit.
    """

    source: Source
    decoder: Decoder
    sink: FileSinkSettings
    divert_rejected: bool


def run_work_unit(
    flow: WorkUnitFlow,
    fs: FileSystem,
    extractor: Extractor,
    unit: WorkUnit,
    folder: AttemptFolder,
    identity: AttemptIdentity,
    clock: Clock,
    deadline_ms: int = 0,
) -> TaskState:
    """Reads the work unit into staged files. Never raises for what concerns this work unit alone: failures are states.

    The files are closed and have their staged names, but are not synced: the caller syncs before it publishes the
    state.
    """
    state = TaskState(
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
    if deadline_ms and state.started_ms >= deadline_ms:  # the run's time is up: all of it waits for the next run
        return replace(state, outcome=TaskOutcome.SUCCEEDED, finished_ms=state.started_ms)
    files = AttemptFiles(
        fs,
        folder=folder.path,
        staged_prefix=folder.staged_prefix,
        settings=flow.sink,
        dataset_folder=folder_of(unit.dataset_urn),
        identity=identity,
        provenance=flow.source.provenance,
    )
    read = written = diverted = bytes_read = 0
    try:
        extraction = extractor.extract(unit)
        max_bytes = int(unit.properties.get(MAX_BYTES, 0))
        for batch in extraction:
            decoded = flow.decoder.decode(batch)
            read += batch.num_rows
            bytes_read = extraction.bytes_read()
            if decoded.rejected is not None and decoded.rejected.num_rows:
                if not flow.divert_rejected:
                    raise RecordError(
                        "a record can't be decoded",
                        dataset=unit.dataset_urn,
                        work_unit=unit.work_unit_id,
                        found=decoded.first_error,
                        todo="mend the producer or the decoder, or set on_undecodable: divert",
                    )
                files.reject(decoded.rejected)
                diverted += decoded.rejected.num_rows
            if decoded.records.num_rows:
                files.write(decoded.records)
                written += decoded.records.num_rows
            if (max_bytes and bytes_read >= max_bytes) or (deadline_ms and clock.now_ms() >= deadline_ms):
                break
        actual_high = _checked(unit, extraction.actual_high())
        state = replace(state, outcome=TaskOutcome.SUCCEEDED, actual_high=actual_high, outputs=files.close())
    except Exception as error:
        logger.warning("work unit failed: %s", error, extra={"work_unit": unit.work_unit_id}, exc_info=True)
        files.abort()
        state = replace(
            state,
            outcome=TaskOutcome.FAILED,
            actual_high=unit.low,
            error=plain_text(f"{type(error).__name__}: {error}", 4000),
        )
    return replace(
        state,
        records_read=read,
        records_written=written,
        records_diverted=diverted,
        bytes_read=bytes_read,
        finished_ms=clock.now_ms(),
    )


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
