"""`python -m tests.integration.parts.where_tasks_run MASTER`: print the working folders of four tasks, one a line."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession


def _worker_folder(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        time.sleep(1)  # so that no executor takes all four
        yield pa.RecordBatch.from_pydict({"place": [str(Path.cwd())]})


def main(master: str) -> None:
    """Run a task on each core of the cluster."""
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
    }
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    rows = spark.range(0, 4, 1, 4).mapInArrow(_worker_folder, "place string").collect()
    for place in sorted({row.place for row in rows}):
        sys.stdout.write(place + "\n")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
