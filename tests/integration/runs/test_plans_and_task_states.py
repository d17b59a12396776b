"""Plans and task states of runs are Parquet tables that other programs read directly."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from tests.golden.job import RUNS, run_job, source, store_at

READ = {"a": {"0": 3}, "b": {"0": 2, "1": 1}}


@pytest.mark.parametrize("table", ["task_states", "plans"])
def test_plans_and_task_states_are_read_by_spark_arrow_and_duckdb(
    tmp_path: Path, spark: SparkSession, table: str
) -> None:
    for place in ("store", "staging", "output"):
        (tmp_path / place).mkdir()
    store = store_at(tmp_path, create=True)
    for run_id in RUNS[:2]:
        assert run_job(store, source(READ), run_id).succeeded
    folder = tmp_path / "store" / table
    assert any(path.is_file() and path.suffix != ".parquet" for path in folder.rglob("*")), "a marker beside them"
    by_arrow = ds.dataset(folder, format="parquet", partitioning="hive").to_table()
    assert set(by_arrow["dataset_urn"].to_pylist()) == set(READ)
    assert {"run", *(["partition"] if table == "task_states" else [])} <= set(by_arrow.column_names)
    by_spark = spark.read.parquet(str(folder))
    assert by_spark.count() == by_arrow.num_rows
    assert {row["dataset_urn"] for row in by_spark.select("dataset_urn").distinct().collect()} == set(READ)
    with duckdb.connect() as duck:
        files = f"read_parquet('{folder}/**/*.parquet', hive_partitioning = true)"
        assert duck.execute(f"SELECT count(*), count(DISTINCT dataset_urn) FROM {files}").fetchall() == [
            (by_arrow.num_rows, len(READ))
        ]
        columns = {name for name, *_ in duck.execute(f"DESCRIBE SELECT * FROM {files}").fetchall()}
    assert {"run", *(["partition"] if table == "task_states" else [])} <= columns
