"""The lag of Kafka datasets, in offsets and time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Literal

from confluent_kafka import TopicPartition

from distcommit.core.interfaces.source import Lag
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import as_offset
from distcommit.sources.kafka.batch_schema import NO_TIMESTAMP_MS
from distcommit.sources.kafka.client import ClientLog, KafkaConnection, KafkaQueries, close_consumer
from distcommit.sources.kafka.plan_dataset import stored_positions
from distcommit.sources.kafka.topics import KafkaDataset, PartitionName

_CHUNK = 500
_SMALL = {"queued.min.messages": "1", "fetch.message.max.bytes": "65536"}
"""Consumer settings to fetch little more than one message of each partition."""


def dataset_lags(
    connection: KafkaConnection, kind: Literal["topic", "partition"], states: Mapping[str, DatasetState]
) -> Iterator[Lag]:
    """Yield the lag of each dataset whose topic exists.

    Records include compacted ones and ends of transactions. The age is that of the oldest unread message, 0 if there is
    none. If a message does not arrive within `request_timeout_s`, `problem` names its partition, and the age may be
    larger. If none arrives, the age is None.

    Raises:
        SourceError: if no broker responds in time.
    """
    queries = KafkaQueries(connection)
    datasets = (dataset for topic in queries.topics() if not topic.error for dataset in topic.datasets(kind))
    kafka_datasets = (dataset for dataset in datasets if dataset.urn in states)
    while chunk := list(islice(kafka_datasets, _CHUNK)):
        yield from _lags(connection, queries, chunk, states)


def _lags(
    connection: KafkaConnection, queries: KafkaQueries, chunk: list[KafkaDataset], states: Mapping[str, DatasetState]
) -> Iterator[Lag]:
    logs = queries.logs([name for dataset in chunk for name in dataset.names()])
    behind: dict[str, int] = {}
    problems: dict[str, str] = {}
    first_unread: dict[PartitionName, int] = {}
    for dataset in chunk:
        stored = stored_positions(states.get(dataset.urn))
        for name in dataset.names():
            log, position = logs[name], stored.get(str(name[1]))
            if isinstance(log, str):
                problems[dataset.urn] = f"partition {name[1]}: {log}"
                continue
            begin = max(log.low, as_offset(position) if position is not None else log.low)
            if begin < log.high:
                behind[dataset.urn] = behind.get(dataset.urn, 0) + log.high - begin
                first_unread[name] = begin
    since = _first_times(connection, first_unread) if first_unread else {}
    now_ms = time.time() * 1000
    for dataset in chunk:
        names = [name for name in dataset.names() if name in first_unread]
        times = [since[name] for name in names if name in since]
        seconds = max(0.0, (now_ms - min(times)) / 1000) if times else None if names else 0.0
        late = ", ".join(str(name[1]) for name in names if name not in since)
        timeout = f"no unread message arrived within {connection.request_timeout_s:g} s"
        problem = problems.get(dataset.urn) or (f"partitions {late}: {timeout}" if late else "")
        yield Lag(dataset.urn, behind.get(dataset.urn, 0), None if problem and not times else seconds, problem)


def _first_times(connection: KafkaConnection, offsets: Mapping[PartitionName, int]) -> dict[PartitionName, int]:
    """Return the time (milliseconds since 1970) of the first message at or after each offset; the present if the
    message has none. Partitions without an answer in time are absent."""
    consumer = replace(connection, client={**connection.client, **_SMALL}).consumer(ClientLog(connection))
    times: dict[PartitionName, int] = {}
    try:
        consumer.assign([TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()])
        deadline_s = time.monotonic() + connection.request_timeout_s
        while len(times) < len(offsets) and (remaining_s := deadline_s - time.monotonic()) > 0:
            arrived = list[PartitionName]()
            for message in consumer.consume(len(offsets), min(remaining_s, 0.5)):
                topic, number = message.topic(), message.partition()
                if message.error() or topic is None or number is None or (topic, number) in times:
                    continue
                has_time, at_ms = message.timestamp()
                times[topic, number] = at_ms if has_time and at_ms != NO_TIMESTAMP_MS else int(time.time() * 1000)
                arrived.append((topic, number))
            if arrived:
                consumer.incremental_unassign([TopicPartition(*name) for name in arrived])
    finally:
        close_consumer(consumer)
    return times
