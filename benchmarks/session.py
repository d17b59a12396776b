"""The Spark sessions of the benchmarks: the product's own settings, on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from pyspark.sql import SparkSession

import benchmarks
from distcommit.spark.session import open_session
from distcommit.spark.session_settings import SparkSettings
from distcommit.spark.task_count import partitions_of


def session_or(spark: SparkSession | None, slots: int = 2) -> AbstractContextManager[tuple[SparkSession, int]]:
    """Yield that session, or a new one with that many slots."""
    return spark_session(slots) if spark is None else nullcontext((spark, 2 * spark.sparkContext.defaultParallelism))


_EXECUTOR_MIB = 512


@contextmanager
def cluster_session(executors: int) -> Iterator[SparkSession]:
    """Yield a session on that many executors, each a process with one slot, after all of them have started."""
    conf = {
        "spark.executor.memory": f"{_EXECUTOR_MIB}m",
        "spark.executorEnv.PYTHONPATH": str(Path(benchmarks.__file__).parents[1]),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    }
    settings = SparkSettings(master=f"local-cluster[{executors},1,{_EXECUTOR_MIB}]", conf=conf)
    spark = open_session(settings, "distcommit benchmarks")
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def spark_session(slots: int = 2, conf: Mapping[str, str] | None = None) -> Iterator[tuple[SparkSession, int]]:
    """Return a session, and the product's default number of partitions (for any number of buckets above it)."""
    settings = SparkSettings(master=f"local[{slots},4]", conf=dict(conf or {}))
    spark = open_session(settings, "distcommit benchmarks")
    try:
        yield spark, partitions_of(spark, settings, 65536)
    finally:
        spark.stop()
