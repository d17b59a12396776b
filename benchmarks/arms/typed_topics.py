"""Kafka topics of typed records to Parquet: the product's run, and Spark's own Kafka source with `from_avro`."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.arms.kafka_to_parquet import all_of
from benchmarks.runner import Parts, WrongResultError
from benchmarks.workloads.processor import ProcessorTime
from benchmarks.workloads.typed_records import AVRO_SCHEMA
from distcommit.app.job_file.load_job_file import parse_config
from distcommit.app.jobs.job import Job

_ROW_GROUP_BYTES = 64 << 20
_ZSTD_LEVEL = 1


@dataclass(frozen=True, slots=True)
class TypedTopics:
    """Produced topics: `records` in each of the `partitions` of each, `payload_bytes` of values in all."""

    brokers: str
    names: tuple[str, ...]
    partitions: int
    records: int
    payload_bytes: int

    @property
    def records_in_all(self) -> int:
        return len(self.names) * self.partitions * self.records


class TopicsArm(ABC):
    """A way of copying topics to Parquet files below `root/output`."""

    name: str

    def missing(self) -> str:
        """Return why this arm cannot run here; empty if it can."""
        return ""

    @abstractmethod
    def copy(self, topics: TypedTopics, root: Path) -> Parts:
        """Copy all topics, and return the costs."""


class OurRun(TopicsArm):
    """The product's whole run, durable and exactly once, on an existing session.

    Args:
        name: the arm's.
        spark: the session.
        converters: as in a job file.
    """

    def __init__(self, name: str, spark: SparkSession, converters: Sequence[Mapping[str, Any]]) -> None:
        self.name, self._spark, self._converters = name, spark, list(converters)

    def copy(self, topics: TypedTopics, root: Path) -> Parts:
        source = {
            "type": "kafka",
            "brokers": topics.brokers,
            "topics": list(topics.names),
            "records_per_work_unit": topics.records,
        }
        paths = {name: name for name in ("store", "staging", "output")}
        tree = {"job": "benchmark", "source": source, "paths": paths, "converters": self._converters}
        job = Job(parse_config(tree, root / "job.yaml"), self._spark)
        clock = ProcessorTime(self._spark)
        before, began = clock.seconds(), time.perf_counter()
        result = job.run()
        seconds, spent_by = time.perf_counter() - began, clock.since(before)
        if not result.succeeded:
            raise WrongResultError(f"the run did not succeed: {result.error or result.reasons.entries[:1]}")
        flow = job.status().last_run
        spent = {f"{counts.construct}_task_s": counts.seconds for counts in flow.totals.flow.constructs} if flow else {}
        return {"seconds": seconds} | {f"{name}_s": value for name, value in result.seconds.items()} | spent_by | spent


class SparkFromAvro(TopicsArm):
    """`spark.read.format("kafka")`, `from_avro` with the one schema of all records, and `write.parquet`, without syncs
    and positions.

    The five bytes of Confluent's frame are removed first.

    Args:
        spark: a session with the Kafka source and the Avro functions among its jars.
        missing: why it lacks them; empty if it has them.
    """

    name = "spark_from_avro"

    def __init__(self, spark: SparkSession, missing: str = "") -> None:
        self._spark, self._missing = spark, missing

    def missing(self) -> str:
        return self._missing

    def copy(self, topics: TypedTopics, root: Path) -> Parts:
        from pyspark.sql.avro.functions import from_avro  # noqa: PLC0415 - with its jar alone
        from pyspark.sql.functions import expr  # noqa: PLC0415

        began = time.perf_counter()
        rows = all_of(self._spark, topics.brokers, topics.names)
        typed = from_avro(expr("substring(value, 6)"), json.dumps(AVRO_SCHEMA)).alias("typed")
        beside = ["key", "headers", "partition", "offset", "timestamp", "timestampType"]
        writer = rows.select(*beside, typed).select(*beside, "typed.*").write
        writer = writer.option("compression", "zstd").option("parquet.block.size", str(_ROW_GROUP_BYTES))
        writer.option("parquet.compression.codec.zstd.level", str(_ZSTD_LEVEL)).parquet(str(root / "output"))
        return {"seconds": time.perf_counter() - began}
