"""Which calls Spark's Python streaming writers get, and when: why `df.writeStream.format("distcommit")` does not
exist (conf/docs/guides/streaming.md)."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType


def tell(folder: str, event: str, **facts: Any) -> None:
    session = SparkSession.getActiveSession()
    line = {"event": event, "pid": os.getpid(), "has_session": session is not None, "at": time.monotonic_ns(), **facts}
    Path(folder, f"{time.monotonic_ns():020d}-{uuid.uuid4().hex}.json").write_text(json.dumps(line))


class Telling(DataSource):
    """Writer that stores nothing and records its calls."""

    @classmethod
    def name(cls) -> str:
        return "telling"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        tell(self.options["path"], "made", options=dict(self.options))
        return TellingWriter(self.options["path"])


class TellingWriter(DataSourceStreamArrowWriter):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        keys = ("streaming.sql.batchId", "sql.streaming.queryId")
        properties = {key: context.getLocalProperty(key) if context else None for key in keys}
        tell(self.folder, "write", rows=sum(batch.num_rows for batch in iterator), told=properties)
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        tell(self.folder, "commit", batch=batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        tell(self.folder, "abort", batch=batchId)


@pytest.mark.parametrize("kind", [DataSourceStreamWriter, DataSourceStreamArrowWriter])
def test_spark_neither_requests_nor_restores_a_streaming_writer_s_state(kind: type[DataSourceStreamWriter]) -> None:
    """This is why a sink's writers have none either (conf/docs/reference/task-flow-omissions.md)."""
    assert {name for name in dir(kind) if not name.startswith("_")} == {"write", "commit", "abort"}


@pytest.mark.slow
def test_driver_side_is_called_only_after_all_tasks_wrote_and_has_no_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "told").mkdir()
    for number in range(2):
        (tmp_path / "in" / f"{number}.json").write_text('{"n": 1}\n')
    spark.dataSource.register(Telling)
    stream = spark.readStream.schema("n INT").option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
    query = (
        stream.writeStream.format("telling")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "told"))
    )
    query.awaitTermination(60)
    calls = [json.loads(path.read_text()) for path in sorted((tmp_path / "told").iterdir())]
    assert [item["event"] for item in calls] == ["made", "write", "made", "commit"] * 2
    assert [item["batch"] for item in calls if item["event"] == "commit"] == [0, 1]
    assert not any(item["has_session"] or item["pid"] == os.getpid() for item in calls), "a run could be launched there"
    options = {key for item in calls if item["event"] == "made" for key in item["options"]}
    assert options == {"checkpointlocation", "path"}, "neither the batch nor the query is named before tasks write"
    assert len({item["pid"] for item in calls if item["event"] in ("made", "commit")}) == 2, (
        "one could fence for the other"
    )
    written = [item["told"] for item in calls if item["event"] == "write"]
    assert [properties["streaming.sql.batchId"] for properties in written] == ["0", "1"], (
        "by a property that is not documented"
    )
