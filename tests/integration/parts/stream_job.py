"""`python -m tests.integration.parts.stream_job FOLDER`: a query over FOLDER/in, one file in each micro-batch, that
commits by FOLDER/job.yaml until all files are read."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import yaml
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from distcommit import Job
from distcommit.spark.session import open_session
from distcommit.spark.session_settings import SparkSettings

DATASETS = 12


def write_job(folder: Path) -> Path:
    """Write a job file that routes rows to the dataset named by their column `shop`."""
    job = {
        "job": "shops",
        "source": {"type": "micro_batch", "dataset_column": "shop"},
        "paths": {name: name for name in ("store", "staging", "output")},
        "commit": {"buckets": 4, "min_interval_ms": 0},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def produce(folder: Path, first: int, rows: int) -> None:
    """Add a file of rows numbered from `first` that go to the datasets in turn."""
    (folder / "in").mkdir(exist_ok=True)
    lines = [json.dumps({"shop": f"shop-{n % DATASETS:02d}", "n": n}) for n in range(first, first + rows)]
    new = folder / f"{first:08d}.json"
    new.write_text("\n".join(lines))
    new.rename(folder / "in" / new.name)


def start(folder: Path, spark: SparkSession, on_batch: Callable[[DataFrame, int], None]) -> StreamingQuery:
    """Start the query from its checkpoint; it ends once all present files are read."""
    stream = spark.readStream.schema("shop string, n long").option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    writer = stream.writeStream.foreachBatch(on_batch).option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(availableNow=True).start()


def main(folder: Path) -> None:
    """Run the query to its end."""
    spark = open_session(SparkSettings(), "stream")
    start(folder, spark, Job.from_file(folder / "job.yaml").on_batch).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
