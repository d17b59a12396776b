"""Functions that job files of tests name as `source.transform.function`."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.functions import concat_ws, udf
from pyspark.sql.functions import sum as sum_of


def totals(orders: DataFrame, customers: str) -> DataFrame:
    """Return the sum of the orders of each customer, with the customer's name from another table."""
    names = orders.sparkSession.read.parquet(customers).withColumnRenamed("s", "name")
    total = orders.groupBy("id").agg(sum_of(orders["s"].cast("int")).alias("total"))
    return total.join(names, "id").select("id", concat_ws(":", "name", "total").alias("s"))


def exit_for_a_negative_id(frame: DataFrame) -> DataFrame:
    if frame.filter("id < 0").count():
        raise SystemExit("negative id")
    return frame


def since(frame: DataFrame, day: object) -> DataFrame:
    """Return all rows; for options of types that JSON lacks."""
    return frame


def failing_for_a_row(frame: DataFrame) -> DataFrame:
    def fail(value: str) -> str:
        raise ValueError(f"no such row as {value}")

    return frame.withColumn("s", udf(fail, useArrow=False)("s"))


def nothing(frame: DataFrame) -> None:
    """Forget to return the result."""
