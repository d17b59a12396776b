"""Processor time of a record from Kafka to Parquet: reading alone, and step by step."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from benchmarks.arms.flows import TYPED_JSON, WriterAlone, place
from benchmarks.arms.typed_topics import TopicsArm, TypedTopics
from benchmarks.runner import Parts, WrongResultError
from benchmarks.workloads.typed_records import HeldSource
from distcommit.app.job_file.sections.flow_settings import FlowSettings
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import TaskOutcome, WorkUnit
from distcommit.engine.system_clock import SystemClock
from distcommit.pipeline.task_attempt import run_work_unit
from distcommit.sinks.files.content_sum import content_sum
from distcommit.sinks.files.sink import FileSink
from distcommit.testing.fakes.convert_batch import convert_batch

_AT_A_TIME = 10_000
_PROCESSES = 2
Place = tuple[str, int]
"""A topic, and one of its partitions."""


class ConsumeOnly(TopicsArm):
    """librdkafka in as many processes as a run has slots, each with half of the partitions.

    Messages are counted and dropped. No client on top of confluent-kafka reads faster here.
    """

    name = "consume_only"

    def copy(self, topics: TypedTopics, root: Path) -> Parts:
        places = [(name, partition) for name in topics.names for partition in range(topics.partitions)]
        context = multiprocessing.get_context("spawn")
        begin, answers = context.Barrier(_PROCESSES), context.SimpleQueue()
        share = [places[number::_PROCESSES] for number in range(_PROCESSES)]
        readers = [context.Process(target=_read, args=(topics, part, begin, answers)) for part in share]
        for reader in readers:
            reader.start()
        reads: list[tuple[float, float, float]] = [answers.get() for _ in readers]
        for reader in readers:
            reader.join()
        seconds = max(ended for _, ended, _ in reads) - min(began for began, _, _ in reads)
        return {"seconds": seconds, "cpu_s": sum(cpu_s for _, _, cpu_s in reads)}


def _read(topics: TypedTopics, places: Sequence[Place], begin: Any, answers: Any) -> None:
    """Return the beginning and the end, by the clock of all processes, and the processor time."""
    consumer = _consumer(topics.brokers)
    begin.wait(60)
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    _consume(consumer, places, topics.records * len(places))
    answers.put((began_s, time.monotonic(), time.process_time() - began_cpu_s))
    consumer.close()


def _consumer(brokers: str) -> Consumer:
    requested = {"group.id": "only", "enable.auto.commit": False, "queued.max.messages.kbytes": 65536}
    consumer = Consumer({**requested, "bootstrap.servers": brokers})
    consumer.list_topics(timeout=30)
    return consumer


def _consume(consumer: Consumer, places: Sequence[Place], records: int) -> None:
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in places])
    while records > 0:
        records -= len(consumer.consume(min(_AT_A_TIME, records), 1))


def record_costs(topics: TypedTopics, root: Path) -> Parts:
    """Return the microseconds of processor time of a record of the first partition in one process.

    They are those of a whole task attempt (`task`), of each of its parts alone, and of the difference (`rest`). The
    first call includes loading and compiling.

    Raises:
        WrongResultError: if the attempt fails.
    """
    topic, count = topics.names[0], topics.records
    source = {"type": "kafka", "brokers": topics.brokers, "topics": [topic]}
    flow = FlowSettings.model_validate({**TYPED_JSON, "source": source}).task_flow()
    unit = WorkUnit("00000_000001", topic, Watermark({"0": 0}), Watermark({"0": count}), count)
    costs: Parts = {}

    @contextmanager
    def counted(name: str) -> Iterator[None]:
        began_s = time.process_time()
        yield
        costs[name] = (time.process_time() - began_s) * 1e6 / count

    consumer = _consumer(topics.brokers)
    with counted("consume"):
        _consume(consumer, [(topic, 0)], count)
    consumer.close()
    extractor = flow.source.open()
    with counted("to_arrow"):
        batches = list(extractor.extract(unit))
    extractor.close()
    costs["to_arrow"] -= costs["consume"]
    for stage in flow.branches[0].stages or flow.stages:
        with counted(stage.name):
            batches = _converted(stage.construct, batches)
    with counted("content_sum"):
        content_sum(pa.Table.from_batches(batches))
    costs["write"] = WriterAlone("", FileSink(), HeldSource(batches)).make(root)["cpu_s"] * 1e6 / count
    costs["write"] -= costs["content_sum"]
    parts = sum(costs.values())
    extractor, (area, identity) = flow.source.open(), place(root / "task")
    with counted("task"):
        state = run_work_unit(flow, extractor, unit, area, identity, SystemClock())
    extractor.close()
    if state.outcome is not TaskOutcome.SUCCEEDED:
        raise WrongResultError(f"the task has failed: {state.error}")
    return costs | {"rest": costs["task"] - parts}


def _converted(converter: Any, batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return [created.records for batch in batches for created in convert_batch(converter, batch)]


def broker_seconds() -> Callable[[], float]:
    """Return a clock of the processor time of the brokers that this process has started."""
    started = psutil.Process().children(recursive=True)
    brokers = [process for process in started if "kafka.Kafka" in _command(process)]

    def seconds() -> float:
        times = [process.cpu_times() for process in brokers]
        return float(sum(item.user + item.system for item in times))

    return seconds


def _command(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return list(process.cmdline())
    return []
