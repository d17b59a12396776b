"""The Spark session of the benchmarks: the product's own settings, two slots on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from distcommit.app.config import SparkSettings
from distcommit.app.session import open_session, partitions_of


@contextmanager
def spark_session(slots: int = 2) -> Iterator[tuple[SparkSession, int]]:
    """A session, and how many partitions the product takes by default (for any number of buckets above it)."""
    settings = SparkSettings(master=f"local[{slots},4]")
    spark = open_session(settings, "distcommit benchmarks")
    try:
        yield spark, partitions_of(spark, settings, 65536)
    finally:
        spark.stop()
