"""Copies of Kafka topics to Parquet: by the product, by Spark's own reader and writer, and by a plain loop.

All of them write the same columns with the same codec at the same level, in row groups of the same size, a file for
each partition of a topic.
"""

from __future__ import annotations

import multiprocessing
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from benchmarks.runner import Parts, WrongResultError
from benchmarks.workloads.topics import Topics
from distcommit.app.job_file.load_job_file import parse_config
from distcommit.app.jobs.job import Job
from distcommit.sources.kafka.batch_schema import BATCH_SCHEMA

ROW_GROUP_BYTES = 64 << 20
_ZSTD_LEVEL = 1
_BATCH = 10_000


class Copy(ABC):
    """A way of copying topics."""

    name: str

    def missing(self) -> str:
        """Return why this arm cannot run here; empty if it can."""
        return ""

    @abstractmethod
    def copy(self, topics: Topics, root: Path) -> Parts:
        """Copy all topics to Parquet files below `root/output`, and return the costs."""


class OurCopy(Copy):
    """The product's whole run, durable and exactly once, on an existing session."""

    name = "ours"

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def copy(self, topics: Topics, root: Path) -> Parts:
        tree = {
            "job": "benchmark",
            "source": {
                "type": "kafka",
                "brokers": topics.brokers,
                "topics": list(topics.names),
                "records_per_work_unit": topics.records,
            },
            "paths": {name: name for name in ("store", "staging", "output")},
        }
        job = Job(parse_config(tree, root / "job.yaml"), self._spark)
        began = time.perf_counter()
        result = job.run()
        seconds = time.perf_counter() - began
        if not result.succeeded:
            raise WrongResultError(f"the run did not succeed: {result.error or result.reasons.entries[:1]}")
        return {"seconds": seconds} | {f"{name}_s": value for name, value in result.seconds.items()}


def all_of(spark: SparkSession, brokers: str, topics: Iterable[str]) -> DataFrame:
    """Return the records of the topics, by Spark's own source."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", brokers)
    reader = reader.option("subscribe", ",".join(topics)).option("includeHeaders", "true")
    return reader.option("startingOffsets", "earliest").option("endingOffsets", "latest").load()


class SparkCopy(Copy):
    """`spark.read.format("kafka")` and `write.parquet`, without syncs and without positions.

    Args:
        spark: a session with the Kafka source among its jars.
        missing: why it has none; empty if it has.
    """

    name = "spark"

    def __init__(self, spark: SparkSession, missing: str = "") -> None:
        self._spark, self._missing = spark, missing

    def missing(self) -> str:
        return self._missing

    def copy(self, topics: Topics, root: Path) -> Parts:
        began = time.perf_counter()
        rows = all_of(self._spark, topics.brokers, topics.names)
        writer = rows.write.option("compression", "zstd").option("parquet.block.size", str(ROW_GROUP_BYTES))
        writer.option("parquet.compression.codec.zstd.level", str(_ZSTD_LEVEL)).parquet(str(root / "output"))
        return {"seconds": time.perf_counter() - began}


class PlainLoop(Copy):
    """confluent-kafka and pyarrow in that many processes, started before the clock, without syncs."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self.name = f"plain_loop_{processes}p"

    def copy(self, topics: Topics, root: Path) -> Parts:
        output = root / "output"
        output.mkdir()
        context = multiprocessing.get_context("spawn")
        ready = context.Barrier(self._processes + 1)  # the processes start before the clock
        with context.Pool(self._processes, ready.wait) as pool:
            ready.wait()
            work = [(topics, name, place, str(output)) for name in topics.names for place in range(topics.partitions)]
            began = time.perf_counter()
            pool.starmap(_copy_partition, work, 1)
            return {"seconds": time.perf_counter() - began}


def _copy_partition(topics: Topics, name: str, partition: int, output: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": topics.brokers,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.assign([TopicPartition(name, partition, 0)])
    remaining, waiting, waiting_bytes = topics.records, list[pa.RecordBatch](), 0
    path = f"{output}/{name}-{partition}.parquet"
    with pq.ParquetWriter(path, BATCH_SCHEMA, compression="zstd", compression_level=_ZSTD_LEVEL) as writer:
        while remaining:
            batch = _batch(consumer.consume(min(remaining, _BATCH), 10))
            if not batch.num_rows:
                raise WrongResultError(f"{name} [{partition}] ends {remaining} records early")
            remaining -= batch.num_rows
            waiting.append(batch)
            waiting_bytes += batch.nbytes
            if waiting_bytes >= ROW_GROUP_BYTES or not remaining:
                rows = pa.Table.from_batches(waiting)
                writer.write_table(rows, row_group_size=rows.num_rows)
                waiting, waiting_bytes = [], 0
    consumer.close()


def _batch(messages: list[Any]) -> pa.RecordBatch:
    """Return a batch of the product's `BATCH_SCHEMA`."""
    for message in messages:
        if message.error():
            raise WrongResultError(str(message.error()))
    stamps = [message.timestamp() for message in messages]
    columns = [
        [message.key() for message in messages],
        [message.value() for message in messages],
        [message.headers() for message in messages],
        [message.partition() for message in messages],
        [message.offset() for message in messages],
        [time_ms for _, time_ms in stamps],
        ["append" if kind == TIMESTAMP_LOG_APPEND_TIME else "create" for kind, _ in stamps],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, BATCH_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=BATCH_SCHEMA)
