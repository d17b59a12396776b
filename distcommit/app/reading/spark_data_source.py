"""Spark's data source `distcommit`: `spark.read.format("distcommit").load("job.yaml")` reads a job at one snapshot.

`load` chooses a snapshot and lists its files once. Each later action on the frame reads these files, or fails if they
are deleted. Executors read them with this package.

Options of `load` select columns and records, not the query: Spark does not pass the columns of a query to a Python data
source. With `pushFilters`, Spark 4.3 returns wrong rows: it keeps one plan for each loaded frame, so that a filter of
one query also applies to the next one (`tests/integration/sources/test_spark_push_down.py` reproduces it).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from distcommit.app.job_file.folder_locations import open_file_system
from distcommit.app.reading.row_filters import RowFilters, parsed_filters
from distcommit.app.reading.snapshot_reader import Snapshot, read
from distcommit.app.reading.table_union import joined_schema
from distcommit.core.errors import ConfigurationError, SnapshotExpiredError
from distcommit.core.support.parallel import run_parallel
from distcommit.sinks.files.footer import look_into, read_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "distcommit"
_OPTIONS = ("path", "dataset", "datasets", "branch", "as_of", "columns", "filters", "tasks")
_TASKS = 64


def register_data_source(spark: SparkSession) -> None:
    """Register the format `distcommit` in a session, also of Spark Connect."""
    spark.dataSource.register(DistcommitDataSource)


@dataclass(frozen=True, slots=True)
class _FrameFiles:
    """The files of one snapshot that a frame reads, as paths on the file system of `location`."""

    location: str
    snapshot: str
    files: tuple[str, ...]
    """Files that may have records which pass `filters`."""
    schema: pa.Schema
    columns: tuple[str, ...]
    filters: RowFilters


class DistcommitDataSource(DataSource):
    """A job's records at one snapshot, as `distcommit.read` returns them.

    Options:
        path: the job file, as the driver sees it; also the argument of `load`.
        dataset: URN of the dataset to read; default: all datasets.
        datasets: URNs of several datasets, as a JSON list, instead of `dataset`.
        as_of: the epoch of a run, or a time in ISO 8601; default: the newest snapshot.
        branch: the branch to read, for a job with a fork.
        columns: a JSON list of columns. From Parquet files only these are read.
        filters: filters of records, see `parsed_filters`. Parquet files and row groups are skipped if their statistics
            exclude a match.
        tasks: the maximum number of reading tasks; default: 64.

    Raises:
        ConfigurationError, NotSettledError, SnapshotExpiredError, StaleStoreError, CorruptError: from `load`, as
            `distcommit.read`.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        supplied = {name.lower(): value for name, value in options.items()}
        _check_option_names(supplied)
        cut = read(supplied["path"], _named(supplied), branch=supplied.get("branch"), as_of=supplied.get("as_of"))
        self._pinned, self._tasks = (
            _frame_files(cut, _columns(supplied), parsed_filters(supplied.get("filters"))),
            _tasks(supplied),
        )

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        """Return the requested columns, or those of all files. If a file lacks a column, its records have null."""
        selected = pa.schema([self._pinned.schema.field(name) for name in self._pinned.columns])
        return from_arrow_schema(selected, prefer_timestamp_ntz=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self._pinned, schema, self._tasks)


class _Files(InputPartition):
    def __init__(self, files: Sequence[str]) -> None:
        super().__init__(list(files))


class _Reader(DataSourceReader):
    def __init__(self, frame_files: _FrameFiles, schema: StructType, tasks: int) -> None:
        self._pinned, self._schema, self._tasks = frame_files, schema, tasks

    def partitions(self) -> Sequence[InputPartition]:
        files = self._pinned.files
        tasks = min(self._tasks, len(files))
        return [_Files(files[task::tasks]) for task in range(tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        frame_files, required = self._pinned, to_arrow_schema(self._schema, timezone="UTC")
        fs, needed = (
            open_file_system(frame_files.location, durable=False),
            frame_files.filters.columns | set(required.names),
        )
        condition = frame_files.filters.expression(frame_files.schema)
        looked_at = pa.schema([field for field in frame_files.schema if field.name in needed])
        for path in partition.value or ():
            try:
                for batch in read_batches(fs, path, needed, frame_files.filters.of_file):
                    filtered = batch if condition is None else _with_schema(batch, looked_at).filter(condition)
                    yield _with_schema(filtered, required)
            except FileNotFoundError as error:
                raise SnapshotExpiredError(
                    "the snapshot was deleted while it was read",
                    expected=frame_files.snapshot,
                    found=str(error),
                    todo="load the frame again; raise readers.kept_snapshots in the job file to keep more snapshots",
                ) from error


def _frame_files(cut: Snapshot, columns: Sequence[str] | None, filters: RowFilters) -> _FrameFiles:
    paths = [path for dataset_paths in cut.paths().values() for path in dataset_paths]
    fs = cut.file_system
    try:
        looked = run_parallel(fs.parallel_calls, partial(look_into, fs, predicate=filters.of_file), paths)
    except FileNotFoundError as error:
        raise SnapshotExpiredError(
            "the snapshot was deleted while it was opened",
            expected=f"epoch {cut.epoch}",
            found=str(error),
            todo="load the frame again",
        ) from error
    schema = joined_schema([dataset_paths for dataset_paths, _ in looked])
    filters.expression(schema)  # rejected at load
    matching = tuple(path for path, (_, may_have) in zip(paths, looked, strict=True) if may_have)
    name = f"the snapshot of epoch {cut.epoch}, phase {cut.phase}"
    return _FrameFiles(cut.location, name, matching, schema, _known_columns(columns, schema), filters)


def _known_columns(columns: Sequence[str] | None, schema: pa.Schema) -> tuple[str, ...]:
    if columns is None:
        return tuple(schema.names)
    if strangers := [name for name in columns if name not in schema.names]:
        raise ConfigurationError(
            "there are no columns of these names",
            id="ARGUMENT_INVALID",
            expected=", ".join(schema.names),
            found=", ".join(strangers),
        )
    return tuple(columns)


def _with_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    batch_schema = batch.schema
    columns: list[Any] = [
        batch.column(batch_schema.get_field_index(field.name)).cast(field.type)
        if field.name in batch_schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _check_option_names(supplied: Mapping[str, str]) -> None:
    strangers = sorted(set(supplied) - set(_OPTIONS))
    if strangers or "path" not in supplied:
        raise ConfigurationError(
            "the data source does not have these options" if strangers else "the job to read is not given",
            id="ARGUMENT_INVALID",
            expected=f"load(JOB_FILE), and options {', '.join(_OPTIONS[1:])}",
            found=", ".join(strangers) or "no path",
        )


def _named(options: Mapping[str, str]) -> list[str] | None:
    if "datasets" not in options:
        return [options["dataset"]] if "dataset" in options else None
    names = _names(options["datasets"])
    if names is None or "dataset" in options:
        raise ConfigurationError(
            "the option `datasets` is not a list of datasets, or is set together with `dataset`",
            id="ARGUMENT_INVALID",
            expected='a JSON list of names, such as ["orders", "items"]',
            found=options["datasets"],
            todo="correct the option `datasets`, or set only `dataset`",
        )
    return names


def _columns(options: Mapping[str, str]) -> list[str] | None:
    if "columns" not in options:
        return None
    names = _names(options["columns"])
    if not names or len(set(names)) < len(names):
        raise ConfigurationError(
            "the option `columns` is not a list of different columns",
            id="ARGUMENT_INVALID",
            expected='a JSON list of one or more names, such as ["name", "at"]',
            found=options["columns"],
            todo="correct the option `columns`, or leave it out to read all columns",
        )
    return names


def _names(text: str) -> list[str] | None:
    try:
        result = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return result if isinstance(result, list) and all(isinstance(name, str) for name in result) else None


def _tasks(options: Mapping[str, str]) -> int:
    text = options.get("tasks", str(_TASKS))
    if not text.isdecimal() or not int(text):
        raise ConfigurationError(
            "the option `tasks` is not a number of tasks",
            id="ARGUMENT_INVALID",
            expected="1 or more",
            found=text,
            todo="correct the option `tasks`, or leave it out",
        )
    return int(text)
