"""The Spark sessions of the benchmarks: the product's own settings, on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from pyspark.sql import SparkSession

from distcommit.app.config import SparkSettings
from distcommit.app.session import open_session, partitions_of


def session_or(spark: SparkSession | None, slots: int = 2) -> AbstractContextManager[tuple[SparkSession, int]]:
    """That session, or a new one with that many slots."""
    return spark_session(slots) if spark is None else nullcontext((spark, 2 * spark.sparkContext.defaultParallelism))


@contextmanager
def spark_session(slots: int = 2) -> Iterator[tuple[SparkSession, int]]:
    """A session, and how many partitions the product takes by default (for any number of buckets above it)."""
    settings = SparkSettings(master=f"local[{slots},4]")
    spark = open_session(settings, "distcommit benchmarks")
    try:
        yield spark, partitions_of(spark, settings, 65536)
    finally:
        spark.stop()
