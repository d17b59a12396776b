"""Staging of datasets that Spark's data source readers read."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from msgspec import structs
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import max as max_of

from distcommit.core.errors import DistcommitError, SourceError, TransientError, printable, reason_text
from distcommit.core.records.log_records import DatasetState
from distcommit.core.support.decoding import from_json
from distcommit.core.support.parallel import run_parallel
from distcommit.core.watermark import Position
from distcommit.protocol.paths.staging import SPOOL_FOLDER, SPOOLED_FRAMES
from distcommit.sources.plan_error import PlanError
from distcommit.sources.spark.source import SparkSource
from distcommit.sources.spark.staged_row_files import (
    FrameSpool,
    StagedFrame,
    StagedFrames,
    StagedPart,
    end_of,
    stored_in,
)
from distcommit.sources.watermark_column import BEGINNINGS, Kind, position_of, time_at
from distcommit.spark.job_failure_texts import failure_text
from distcommit.spark.transformed_frame import not_published, transformed
from distcommit.stores.folders.staging import remove_attempts
from distcommit.stores.state.job_store import JobStore

logger = logging.getLogger(__name__)

_PARALLEL_DATASETS = 8
"""Number of datasets that are read at a time. Each mostly waits for its reader."""
_KINDS = {
    **dict.fromkeys(("byte", "short", "integer", "long"), Kind.INTEGER),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), Kind.TIME),
}
_MARGIN = timedelta(days=2)
"""Time before the stored position from which rows are requested, because readers compare times in their zones."""


@contextmanager
def staged_frames(spark: SparkSession, source: SparkSource, store: JobStore) -> Iterator[StagedFrames]:
    """Stage the rows of all datasets for a block, then delete them. Staged rows of dead runs are deleted, too.

    If a dataset cannot be read, its index contains the error, for the run to report.

    Raises:
        OSError: if the staging folder is not writable.
    """
    fs, root = store.fs, store.roots.staging
    remove_attempts(fs, root, [SPOOLED_FRAMES])
    folder = f"{root}/{SPOOLED_FRAMES}/{uuid.uuid4().hex}"
    fs.make_folders(folder)
    frames = StagedFrames(fs, folder, tuple(source.datasets))
    states = _stored(store, frames.datasets)
    try:
        run_parallel(
            _PARALLEL_DATASETS, lambda urn: _Reading(spark, source, frames, urn).stage(states.get(urn)), frames.datasets
        )
        yield frames
    finally:
        remove_attempts(fs, root, [SPOOLED_FRAMES])
        fs.delete_folder(f"{root}/{SPOOL_FOLDER}")


def _stored(store: JobStore, datasets: tuple[str, ...]) -> Mapping[str, DatasetState]:
    """Return the stored states of datasets. Replay can only move their watermarks forward."""
    states: dict[str, DatasetState] = {}
    for bucket in {store.planning_bucket(urn) for urn in datasets}:
        with suppress(DistcommitError, OSError):  # the run itself reports the error
            states |= store.bucket_log(bucket).refresh().datasets
    return states


@dataclass(frozen=True, slots=True)
class _Reading:
    spark: SparkSession
    source: SparkSource
    frames: StagedFrames
    urn: str

    def stage(self, state: DatasetState | None) -> None:
        self.frames.fs.make_folder(self.frames.folder_of(self.urn))
        try:
            frame = self._staged(state)
        except (PySparkException, Py4JJavaError) as error:
            frame = StagedFrame(error=str(self._typed(error)))
        except PlanError as error:
            frame = StagedFrame(error=str(error), remedy=error.remedy)
        except DistcommitError as error:
            frame = StagedFrame(error=str(error))
        if frame.error:
            logger.warning(
                "Spark cannot read the dataset: %s", printable(frame.error), extra={"dataset": printable(self.urn)}
            )
        self.frames.put(self.urn, frame)

    def _staged(self, state: DatasetState | None) -> StagedFrame:
        reader = self.spark.read.format(self.source.format).options(**self.source.reader_options(self.urn))
        read, column = reader.load(), self.source.watermark
        if not column:
            return StagedFrame(self._parts(transformed(read, self.source, self.urn), Kind.INTEGER))
        frame = StagedFrame(column=column, kind=self._kind(read), reader=self.source.reader_of(self.urn))
        stored = stored_in(self.urn, frame, state)
        requested = _new_rows(read, column, stored)
        before = (
            _maximum(requested, column) if frame.kind is Kind.INTEGER else position_of(Kind.TIME, datetime.now(UTC))
        )
        read_parts: tuple[StagedPart, ...] = ()
        if self.source.transform is not None:  # its result may lack the newest rows
            read_parts = self._parts(requested.agg(max_of(requested[f"`{column}`"]).alias(column)), frame.kind)
        parts = self._parts(transformed(requested, self.source, self.urn), frame.kind)
        end = end_of(frame.kind, read_parts or parts, self.source.lookback or 0, before)
        greatest = read_parts[0].newest if read_parts else None
        return structs.replace(frame, parts=parts, bound=stored, end=end, greatest=greatest)

    def _parts(self, read: DataFrame, kind: Kind) -> tuple[StagedPart, ...]:
        spool = FrameSpool(self.frames.fs, self.frames.folder_of(self.urn), self.source.watermark, kind)
        rows = read.mapInArrow(spool, "part string").collect()
        return tuple(from_json(row["part"], StagedPart) for row in rows)

    def _kind(self, read: DataFrame) -> Kind:
        types = {field.name: field.dataType for field in read.schema.fields}
        field_type = types.get(self.source.watermark)
        kind = _KINDS.get(field_type.typeName()) if field_type is not None else None
        if kind is None:
            raise SourceError(
                "the dataset has no suitable watermark column",
                id="SOURCE_SETTINGS_INVALID",
                dataset=self.urn,
                expected=f"column {self.source.watermark!r} of integers or timestamps",
                found=f"type {field_type.simpleString()}" if field_type is not None else f"columns {', '.join(types)}",
                todo="set source.watermark to another column, or cast it in the reader's options (`query` of jdbc)",
            )
        return kind

    def _typed(self, error: PySparkException | Py4JJavaError) -> DistcommitError:
        cause = self.source.without_password(failure_text(str(error)) or type(error).__name__, self.urn)
        found, transform = reason_text(cause, 1000), self.source.transform
        if transform is not None and _is_of_user_code(error):
            return not_published(self.urn, transform, "rows", found)
        also = f"correct {transform.name} if it fails for a row, " if transform is not None else ""
        return TransientError(
            "Spark cannot read the dataset",
            id="SOURCE_SERVER_UNAVAILABLE",
            dataset=self.urn,
            format=self.source.format,
            found=found,
            todo=f"{also}correct the reader's options, add its jars (spark.conf), or repair its source; then run again",
        )


def _is_of_user_code(error: PySparkException | Py4JJavaError) -> bool:
    is_of_python = isinstance(error, PythonException) or ".PythonException" in str(error)
    return is_of_python and f"{FrameSpool.__module__.rpartition('.')[2]}.py" not in str(error)


def _maximum(read: DataFrame, column: str) -> int | None:
    (row,) = read.agg(max_of(read[f"`{column}`"])).collect()
    return None if row[0] is None else int(row[0])


def _new_rows(read: DataFrame, column: str, stored: Position | None) -> DataFrame:
    if stored is None or stored in BEGINNINGS.values():
        return read
    quoted = read[f"`{column}`"]
    if isinstance(stored, int):
        return read.filter((quoted >= stored) | quoted.isNull())
    try:
        bound = time_at(stored) - _MARGIN
    except OverflowError:
        return read
    return read.filter((quoted >= bound) | quoted.isNull())
