"""Why the data source has no `pushFilters`: Spark 4.3 returns wrong rows with it. Once this test fails, it can be
added."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, GreaterThan, InputPartition
from pyspark.sql.types import StructType

SWITCH = "spark.sql.python.filterPushdown.enabled"


class Numbers(DataSource):
    """The numbers 0 to 9, with push-down of `n > ...`."""

    @classmethod
    def name(cls) -> str:
        return "numbers_pushed"

    def schema(self) -> str:
        return "n bigint"

    def reader(self, schema: StructType) -> DataSourceReader:
        class Reader(DataSourceReader):
            above = -1

            def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
                for each in filters:
                    if isinstance(each, GreaterThan):
                        self.above = each.value
                    else:
                        yield each

            def partitions(self) -> Sequence[InputPartition]:
                return [InputPartition(0)]

            def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
                return ((n,) for n in range(10) if n > self.above)

        return Reader()


def test_spark_reuses_a_query_s_pushed_filters_in_the_next_query(spark: SparkSession) -> None:
    spark.dataSource.register(Numbers)
    spark.conf.set(SWITCH, "true")
    try:
        frame = spark.read.format("numbers_pushed").load()
        assert frame.where("n > 6").count() == 3
        assert frame.count() == 3, "of ten"
        fresh = spark.read.format("numbers_pushed").load()
        both = fresh.where("n > 1").union(fresh.where("n > 6"))
        assert both.count() == 6, "of eleven"
    finally:
        spark.conf.unset(SWITCH)
