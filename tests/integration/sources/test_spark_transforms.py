"""`source.transform`: which results are proved to be row-wise, and joins and aggregations that a run publishes.

Runs are killed in mid-commit; plain Python verifies the output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import LongType

from distcommit import Job
from distcommit.core.errors import SourceError
from distcommit.sources import query_checks
from distcommit.sources.spark import transform
from distcommit.sources.spark.source import SparkSource
from distcommit.spark import staged_frames, transformed_frame
from distcommit.spark.transformed_frame import transformed
from tests.integration.sources import frame_functions
from tests.integration.sources.test_spark_source import (
    TABLES,
    killed,
    parquet,
    problems,
    published,
    put,
    ran,
    run,
    spark_job,
)

FUNCTIONS = "tests.integration.sources.frame_functions"
Function = Callable[[DataFrame], DataFrame]


def _batch(values: pd.Series) -> pd.Series:
    return values


def _of_batches() -> Any:
    make: Any = pandas_udf
    return make("string")(_batch)


def source_with(**section: Any) -> SparkSource:
    tried = {"type": "spark", "format": "parquet", "datasets": {"t": {}}, "watermark": "id", "lookback": 0}
    return SparkSource.model_validate({**tried, "transform": {"row_wise": True, **section}})


def result_of(function: Function, read: DataFrame, monkeypatch: pytest.MonkeyPatch) -> DataFrame:
    """Apply a function as the one that the job file names."""
    monkeypatch.setattr(transform, "load_function", lambda *_: function)
    return transformed(read, source_with(function="m:f"), "t")


@pytest.fixture
def read(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(1, "a", [1, 2]), (2, "b", [3])], "id long, s string, list array<int>")


ROW_WISE: list[Function] = [
    lambda frame: frame,
    lambda frame: frame.withColumn("upper", f.upper("s")).drop("s").filter("id > 1"),
    lambda frame: frame.select("id", f.explode("list").alias("item")),
    lambda frame: frame.withColumn("twice", f.udf(lambda value: value * 2, LongType())("id")),
    lambda frame: frame.coalesce(1).orderBy("s").alias("x").select("x.id"),
]


@pytest.mark.parametrize("function", ROW_WISE)
def test_row_wise_function_is_accepted(function: Function, read: DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    assert result_of(function, read, monkeypatch).collect() == function(read).collect()


OTHERS: list[tuple[Function, str]] = [
    (lambda frame: frame.groupBy("id").count(), "Aggregate"),
    (lambda frame: frame.groupBy("id").count().alias("x"), "Aggregate"),
    (lambda frame: frame.selectExpr("id", "stack(1, id) AS n"), "Stack"),
    (lambda frame: frame.distinct(), "Deduplicate|Distinct|Aggregate"),
    (lambda frame: frame.dropDuplicates(["s"]), "Deduplicate|Aggregate"),
    (lambda frame: frame.limit(1), "GlobalLimit"),
    (lambda frame: frame.repartition(2), "operation Repartition"),
    (lambda frame: frame.repartition("s"), "operation RepartitionByExpression"),
    (lambda frame: frame.filter(f.rand() > 0.5), "another result at each execution"),
    (lambda frame: frame.withColumn("n", f.monotonically_increasing_id()), "another result at each execution"),
    (lambda frame: frame.withColumn("n", f.expr("uuid()")), "another result at each execution"),
    (lambda frame: frame.withColumn("n", f.length(_of_batches()("s")) + 1), "pandas or Arrow function"),
    (lambda frame: frame.sparkSession.sql("SET a.b = 1"), "found a command"),
    (lambda frame: frame.select(), "found a command"),
    (lambda frame: frame.sample(0.5), "Sample"),
    (lambda frame: frame.union(frame), "Union"),
    (lambda frame: frame.join(frame.select("id"), "id"), "Join"),
    (lambda frame: frame.withColumn("before", f.lag("s").over(Window.orderBy("id"))), "Window"),
    (lambda frame: frame.mapInPandas(lambda batches: batches, frame.schema), "MapInPandas"),
    (lambda frame: frame.sparkSession.createDataFrame(frame.collect(), frame.schema), "LogicalRDD|LocalRelation"),
    (lambda frame: frame.select("s"), "found columns s"),
    (lambda frame: frame.withColumn("id", frame["id"] + 0), "found a computed column of that name"),
    (lambda frame: frame.select(f.col("list")[0].alias("id"), f.col("id").alias("other")), "found a computed column"),
    (lambda frame: frame.select("id", "s", frame["id"].alias("s")), "found several s"),
    (lambda frame: frame.sparkSession.readStream.format("rate").load(), "found a streaming DataFrame"),
]


@pytest.mark.parametrize(("function", "found"), OTHERS)
def test_function_that_is_not_proved_row_wise_is_rejected(
    function: Function, found: str, read: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SourceError, match=found) as raised:
        result_of(function, read, monkeypatch)
    assert raised.value.id == "SOURCE_SETTINGS_INVALID"


def test_transform_over_spark_connect_is_rejected(read: DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformed_frame, "over_connect", lambda _: True)
    with pytest.raises(SourceError, match="found Spark Connect"):
        transformed(read, source_with(sql="SELECT * FROM source"), "t")


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT id, s || 'x' AS s FROM source WHERE s LIKE 'a%' -- names", ""),
        ("SELECT id, item FROM (SELECT id, explode(list) AS item FROM source) WHERE item > 1", ""),
        ("SELECT id, item FROM source LATERAL VIEW posexplode(list) AS place, item", ""),
        ("SELECT max(id) AS id FROM source", "operation Aggregate"),
        ("SELECT DISTINCT id FROM source", "operation Distinct"),
        ("SELECT id, row_number() OVER (ORDER BY id) AS n FROM source", "operation Window"),
        ("SELECT id FROM source WHERE id = (SELECT 1)", "a subquery in an expression"),
        ("SELECT id FROM source LIMIT 1", "operation GlobalLimit"),
        ("WITH x AS (SELECT * FROM source) SELECT * FROM source", "must read only the table"),
        ("SELECT id FROM source UNION ALL VALUES (7)", "operation Union"),
        ("SELECT CAST(id AS int) AS id FROM source", "a computed column of that name"),
        ("SELECT id FRM source x FROM source", "ParseException"),
        ("SELECT id, absent FROM source", "absent"),
    ],
)
def test_only_row_wise_sql_is_published_by_ranges(sql: str, found: str, read: DataFrame) -> None:
    if not found:
        assert transformed(read, source_with(sql=sql), "t").count()
    else:
        with pytest.raises((SourceError, ValueError), match=found):
            transformed(read, source_with(sql=sql), "t")
    assert not read.sparkSession.catalog.tableExists("source"), "the view is of the session only for the analysis"


@pytest.mark.parametrize(
    "command",
    [
        "INSERT INTO kept SELECT * FROM s",
        "FROM s INSERT INTO kept SELECT *",
        "DELETE FROM kept",
        "UPDATE kept SET id=1",
    ],
)
def test_command_after_with_is_not_executed(
    command: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's parser rejects commands that the check of the job file does not recognize."""
    monkeypatch.setattr(query_checks, "_require_query", lambda _: None)
    spark.sql(f"CREATE TABLE kept (id long) USING parquet LOCATION '{tmp_path}/kept'")
    try:
        source = SparkSource.model_validate(
            {
                **{"type": "spark", "format": "parquet", "datasets": {"t": {}}},
                "transform": {"sql": f"WITH s AS (SELECT id FROM source) {command}"},
            }
        )
        with pytest.raises(SourceError, match="ParseException"):
            transformed(spark.range(3), source, "t")
        assert spark.table("kept").count() == 0
    finally:
        query_checks.Query.of.cache_clear()
        spark.sql("DROP TABLE kept")


@pytest.mark.parametrize("is_time", [False, True])
def test_filter_of_the_newest_rows_moves_the_watermark(tmp_path: Path, spark: SparkSession, is_time: bool) -> None:
    """The watermark column has not ended if the transform drops its greatest values."""
    if is_time:
        spark.sql("SELECT 's' AS s, id, timestamp_seconds(id * 86400 * 9) AS at FROM range(5)").coalesce(
            1
        ).write.parquet(str(tmp_path / "in" / "t0"))
    else:
        put(tmp_path, "t0", "a.parquet", [0, 1, 2, 3, 4], "a")
    own = {"sql": "SELECT * FROM source WHERE id < 2", "row_wise": True}
    column = "at" if is_time else "id"
    source = {**parquet(tmp_path, ["t0"]), "watermark": column, "lookback": 0, "transform": own}
    path = spark_job(tmp_path, source)
    for _ in range(3):
        assert not problems(run(path, spark))
    assert sorted((row[1], count) for row, count in published(tmp_path).items()) == [(0, 1), (1, 1)]
    (row,) = Job.from_file(path).status().datasets
    assert row.positions == {"": "1970-02-06T00:00:00.000000Z" if is_time else 4}


def test_dates_in_options_of_the_function_have_a_digest(tmp_path: Path, spark: SparkSession) -> None:
    put(tmp_path, "t0", "a.parquet", [1, 2, 3], "a")
    own = {"function": f"{FUNCTIONS}:since", "options": {"day": date(2024, 5, 1)}, "row_wise": True}
    source = {**parquet(tmp_path, ["t0"]), "watermark": "id", "lookback": 0, "transform": own}
    assert run(spark_job(tmp_path, source), spark).succeeded
    own["options"] = {"day": {1: 2, "a": 3}}
    assert "the options of the function have no digest" in problems(run(spark_job(tmp_path, source), spark))


def test_failing_python_function_of_a_row_is_attributed_to_the_transform(tmp_path: Path, spark: SparkSession) -> None:
    put(tmp_path, "t0", "a.parquet", [1, 2, 3], "a")
    own = {"function": f"{FUNCTIONS}:failing_for_a_row", "row_wise": True}
    source = {**parquet(tmp_path, ["t0"]), "watermark": "id", "lookback": 0, "transform": own}
    text = problems(run(spark_job(tmp_path, source), spark))
    assert "correct source.transform.function" in text
    assert "no such row" in text
    assert "repair its source" not in text
    source["transform"] = {"sql": "SELECT id, raise_error('no such row') AS s FROM source", "row_wise": True}
    assert "correct source.transform.sql" in problems(run(spark_job(tmp_path, source), spark))


def test_failing_function_stops_only_its_dataset(tmp_path: Path, spark: SparkSession) -> None:
    put(tmp_path, "t0", "a.parquet", [1, 2, 3], "a")
    put(tmp_path, "t1", "a.parquet", [1, -2, 3], "b")
    own = {"function": f"{FUNCTIONS}:exit_for_a_negative_id", "row_wise": True}
    source = {**parquet(tmp_path, ["t0", "t1"]), "watermark": "id", "lookback": 0, "transform": own}
    text = problems(run(spark_job(tmp_path, source), spark))
    assert "the result of source.transform.function cannot be published [dataset=t1]" in text
    assert "SystemExit: negative id" in text
    assert published(tmp_path) == Counter({("t0", 1, "a"): 1, ("t0", 2, "a"): 1})
    own["function"] = f"{FUNCTIONS}:{frame_functions.nothing.__name__}"
    assert "expected a DataFrame; found a NoneType" in problems(run(spark_job(tmp_path, source), spark))


def test_end_of_a_range_is_determined_before_the_function_is_called(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function may read rows. A row that arrives later must not raise the end above rows that were missed."""
    calls: list[str] = []

    def record(name: str, actual: Callable[..., Any]) -> None:
        def call(*args: Any) -> Any:
            calls.append(name)
            return actual(*args)

        monkeypatch.setattr(staged_frames, name, call)

    for name in ("_maximum", "transformed"):
        record(name, getattr(staged_frames, name))
    put(tmp_path, "t0", "a.parquet", [1, 2], "a")
    run(spark_job(tmp_path, {**parquet(tmp_path, ["t0"]), "watermark": "id", "lookback": 0}), spark)
    assert calls == ["_maximum", "transformed"]


def test_changed_sql_stops_a_dataset_with_a_watermark(tmp_path: Path, spark: SparkSession) -> None:
    put(tmp_path, "t0", "a.parquet", [1, 2, 3], "a")
    own = {"sql": "SELECT * FROM source WHERE id <> 1", "row_wise": True}
    source = {**parquet(tmp_path, ["t0"]), "watermark": "id", "lookback": 0, "transform": own}
    assert run(spark_job(tmp_path, source), spark).succeeded
    own["sql"] = "SELECT * FROM source"
    put(tmp_path, "t0", "b.parquet", [4], "a")
    assert "SOURCE_READER_CHANGED" in problems(run(spark_job(tmp_path, source), spark))
    assert published(tmp_path) == Counter({("t0", 2, "a"): 1})


def test_sql_joins_other_tables_and_replaces_the_previous_result(tmp_path: Path, spark: SparkSession) -> None:
    put(tmp_path, "orders", "a.parquet", [1, 1, 2], "5")
    put(tmp_path, "names", "a.parquet", [1, 2], "ann")
    sql = (
        "SELECT id, concat(max(n.s), ':', CAST(sum(o.s) AS int)) AS s FROM source o JOIN names n USING (id) GROUP BY id"
    )
    tables = {"names": {"path": str(tmp_path / "in" / "names")}}
    path = spark_job(tmp_path, {**parquet(tmp_path, ["orders"]), "transform": {"sql": sql, "tables": tables}})
    assert run(path, spark).succeeded
    put(tmp_path, "orders", "b.parquet", [2], "7")
    assert run(path, spark).succeeded
    expected = {("orders", 1, "ann:10"): 1, ("orders", 2, "ann:12"): 1}
    assert published(tmp_path, newest=True) == Counter(expected)
    assert Job.from_file(path).audit(deep=True).exact


@pytest.mark.slow
def test_new_rows_of_row_wise_sql_are_published_once_in_spite_of_kills(tmp_path: Path) -> None:
    sql = "SELECT id, s || n AS s FROM (SELECT id, s, explode(array(0, 1)) AS n FROM source WHERE id % 3 > 0)"
    source = {**parquet(tmp_path), "watermark": "id", "lookback": 0, "transform": {"sql": sql, "row_wise": True}}
    path, kills = spark_job(tmp_path, source), 0
    for batch in range(4):
        for table in TABLES:
            put(tmp_path, table, f"{batch}.parquet", [*range(batch * 300, batch * 300 + 300)], f"v{batch}-")
        if batch < 3:
            kills += killed(path, batch)
    assert kills, "no run was killed in the middle of its commit"
    ran(path)
    passing = [number for number in range(1199) if number % 3]  # the newest, 1199, waits
    rows = ((table, number, f"v{number // 300}-{n}") for table in TABLES for number in passing for n in (0, 1))
    assert published(tmp_path) == Counter(rows)
    assert Job.from_file(path).audit(deep=True).exact


@pytest.mark.slow
def test_aggregated_join_of_a_function_is_newest_in_spite_of_kills(tmp_path: Path) -> None:
    put(tmp_path, "customers", "a.parquet", [*range(100)], "ann")
    options = {"customers": str(tmp_path / "in" / "customers")}
    source = {**parquet(tmp_path), "transform": {"function": f"{FUNCTIONS}:totals", "options": options}}
    path, kills = spark_job(tmp_path, source), 0
    for version in range(3):
        for table in TABLES:
            put(tmp_path, table, f"{version}.parquet", [*range(100), *range(50)], "1")
        kills += killed(path, version)
    assert kills, "no run was killed in the middle of its commit"
    ran(path)
    rows = ((table, number, f"ann:{6 if number < 50 else 3}") for table in TABLES for number in range(100))
    assert published(tmp_path, newest=True) == Counter(rows)
    assert Job.from_file(path).audit(deep=True).exact
