"""Spark's data source `distcommit`: `spark.read.format("distcommit").load("job.yaml")`, what a job has committed, at
one cut.

A frame is of the cut that was the newest, or the one that `as_of` says, when it was loaded, and stays there: its files
are named then, and each action reads these, or fails. Executors read them, with this package.
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

from distcommit.app.job_file.places import open_file_system
from distcommit.app.reading.cut_choice import parsed_as_of
from distcommit.app.reading.readers import Cut, read
from distcommit.model.errors import ConfigurationError, CutGoneError
from distcommit.model.parallel import in_flight
from distcommit.sinks.files.footer import read_batches, read_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "distcommit"
_OPTIONS = ("path", "dataset", "datasets", "branch", "as_of", "tasks")
_TASKS = 64


def register_data_source(spark: SparkSession) -> None:
    """Lets a session, also one of Spark Connect, read by `spark.read.format("distcommit")`."""
    spark.dataSource.register(DistcommitDataSource)


@dataclass(frozen=True, slots=True)
class _Pinned:
    """What a frame reads: files of one cut, by their paths on the file system of `place`."""

    place: str
    cut: str
    files: tuple[str, ...]
    schema: pa.Schema


class DistcommitDataSource(DataSource):
    """What a job has committed, at one cut; as `distcommit.read` has it.

    Options: `path` (what `load` is given): the job file, as the driver sees it. `dataset`: one, by its URN; or
    `datasets`: several, as a JSON list; without both all of them. `as_of`: the epoch of a run, or a time as ISO 8601
    has it. `branch`: of a job with a fork. `tasks`: in how many tasks it is read, at most; 64.

    Raises:
        ConfigurationError, NotSettledError, CutGoneError, StaleStoreError, CorruptError: from `load`, as
            `distcommit.read`.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        given = {name.lower(): value for name, value in options.items()}
        _require_known(given)
        cut = read(given["path"], _named(given), branch=given.get("branch"), as_of=parsed_as_of(given.get("as_of")))
        self._pinned, self._tasks = _pinned(cut), _tasks(given)

    @classmethod
    def name(cls) -> str:
        """As `format` takes it."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of all files; who lacks one has nulls there."""
        return from_arrow_schema(self._pinned.schema, prefer_timestamp_ntz=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        """What reads them."""
        return _Reader(self._pinned, schema, self._tasks)


class _Files(InputPartition):
    """What one task reads."""

    def __init__(self, files: Sequence[str]) -> None:
        super().__init__(list(files))


class _Reader(DataSourceReader):
    def __init__(self, pinned: _Pinned, schema: StructType, tasks: int) -> None:
        self._place, self._cut, self._files = pinned.place, pinned.cut, pinned.files
        self._schema, self._tasks = schema, tasks

    def partitions(self) -> Sequence[InputPartition]:
        tasks = min(self._tasks, len(self._files))
        return [_Files(self._files[task::tasks]) for task in range(tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        fs, wanted = open_file_system(self._place, durable=False), to_arrow_schema(self._schema, timezone="UTC")
        for path in partition.value or ():
            try:
                for batch in read_batches(fs, path):
                    yield _as_wanted(batch, wanted)
            except FileNotFoundError as error:
                raise CutGoneError(
                    "this cut went while it was read",
                    expected=self._cut,
                    found=str(error),
                    todo="load the frame anew; readers.kept_cuts in the job file says how many cuts are kept",
                ) from error


def _pinned(cut: Cut) -> _Pinned:
    paths = [path for found in cut.paths().values() for path in found]
    fs = cut.file_system
    try:
        schemas = in_flight(fs.parallel_calls, partial(read_schema, fs), paths)
    except FileNotFoundError as error:
        raise CutGoneError(
            "this cut went while it was opened", expected=f"epoch {cut.epoch}", found=str(error), todo="load it anew"
        ) from error
    schema = pa.unify_schemas(schemas, promote_options="permissive") if schemas else pa.schema([])
    return _Pinned(cut.place, f"the cut of epoch {cut.epoch}, phase {cut.phase}", tuple(paths), schema)


def _as_wanted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    there = batch.schema
    columns: list[Any] = [
        batch.column(there.get_field_index(field.name)).cast(field.type)
        if field.name in there.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _require_known(given: Mapping[str, str]) -> None:
    strangers = sorted(set(given) - set(_OPTIONS))
    if strangers or "path" not in given:
        raise ConfigurationError(
            "these are no options of this data source" if strangers else "it is not said which job is to be read",
            expected=f"load(JOB_FILE), and options {', '.join(_OPTIONS[1:])}",
            found=", ".join(strangers) or "no path",
        )


def _named(given: Mapping[str, str]) -> list[str] | None:
    if "datasets" not in given:
        return [given["dataset"]] if "dataset" in given else None
    try:
        found = json.loads(given["datasets"])
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(urn, str) for urn in found) or "dataset" in given:
        raise ConfigurationError(
            "these are no datasets",
            expected='dataset, or datasets as a JSON list such as ["orders", "items"]',
            found=given["datasets"],
        )
    return found


def _tasks(given: Mapping[str, str]) -> int:
    text = given.get("tasks", str(_TASKS))
    if not text.isdecimal() or not int(text):
        raise ConfigurationError("this is no number of tasks", expected="1 or more", found=text)
    return int(text)
