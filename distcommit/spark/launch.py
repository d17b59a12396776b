"""Launching executor functions as Spark jobs, without a shuffle: one task per partition, results as counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from distcommit.spark.settings import RunSettings

Result = TypeVar("Result", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class PartitionCall(Generic[Result]):
    """Calls a module-level executor function with its partition number; the row id is the partition id."""

    function: Callable[[RunSettings, int], Result]
    settings: RunSettings

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for partition in batch.column(0).to_pylist():
                result = self.function(self.settings, partition)
                yield pa.RecordBatch.from_pydict({"report": [msgspec.msgpack.encode(result)]})


class Launch(Protocol):
    """Runs `function(settings, i)` for each i below `tasks`, in any order and place, and returns the results."""

    def __call__(
        self, function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
    ) -> list[Result]: ...


@dataclass(frozen=True, slots=True)
class SparkLaunch:
    """Launches on the executors of a Spark session, as one Spark job.

    DataFrame API only, so that it also runs over Spark Connect. The results must be small: the driver holds one for
    each task.
    """

    spark: SparkSession

    def __call__(
        self, function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
    ) -> list[Result]:
        call: Any = PartitionCall(function, settings)
        rows = self.spark.range(0, tasks, 1, tasks).mapInArrow(call, "report binary").collect()
        return [msgspec.msgpack.decode(bytes(row["report"]), type=kind) for row in rows]
