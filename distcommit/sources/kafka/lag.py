"""How far datasets are behind their topics, asked of the brokers: offsets that are not read, and how long the first of
them has been there."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Literal

from confluent_kafka import TopicPartition

from distcommit.core.interfaces.source import Lag
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import as_offset
from distcommit.sources.kafka.batches import NO_TIMESTAMP_MS
from distcommit.sources.kafka.client import ClientNotes, KafkaConnection, KafkaQueries, close_consumer
from distcommit.sources.kafka.names import KafkaDataset, PartitionName
from distcommit.sources.kafka.plan import stored_positions

_CHUNK = 500
"""Datasets asked about at once."""
_SMALL = {"queued.min.messages": "1", "fetch.message.max.bytes": "65536"}
"""One message of each partition is wanted, and no more."""


def lags_of(
    connection: KafkaConnection, kind: Literal["topic", "partition"], states: Mapping[str, DatasetState]
) -> Iterator[Lag]:
    """The lag of each of these datasets whose topic is there.

    Records are counted by offsets: what compaction took away, and the ends of transactions, count too. Seconds are the
    age of the first message that is not read, by the timestamp it carries; None where the brokers do not give it in
    time, and 0 where all is read.

    Args:
        connection: to the brokers.
        kind: what a dataset is.
        states: what is stored of the datasets, by URN.

    Raises:
        SourceError: if no broker answers in time.
    """
    queries = KafkaQueries(connection)
    found = (dataset for topic in queries.topics() if not topic.error for dataset in topic.datasets(kind))
    known = (dataset for dataset in found if dataset.urn in states)
    while chunk := list(islice(known, _CHUNK)):
        yield from _lags(connection, queries, chunk, states)


def _lags(
    connection: KafkaConnection, queries: KafkaQueries, chunk: list[KafkaDataset], states: Mapping[str, DatasetState]
) -> Iterator[Lag]:
    logs = queries.logs([name for dataset in chunk for name in dataset.names()], "earliest", ())
    behind: dict[str, int] = {}
    problems: dict[str, str] = {}
    unread: dict[PartitionName, int] = {}
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
                unread[name] = begin
    since = _first_times(connection, unread) if unread else {}
    now_ms = time.time() * 1000
    for dataset in chunk:
        names = [name for name in dataset.names() if name in unread]
        times = [since[name] for name in names if name in since]
        seconds = max(0.0, (now_ms - min(times)) / 1000) if times else None if names else 0.0
        problem = problems.get(dataset.urn, "")
        yield Lag(dataset.urn, behind.get(dataset.urn, 0), None if problem and not times else seconds, problem)


def _first_times(connection: KafkaConnection, unread: Mapping[PartitionName, int]) -> dict[PartitionName, int]:
    """When the message at each of these offsets, or the first one above it, was made; of as many as come in time."""
    consumer = replace(connection, client={**connection.client, **_SMALL}).consumer(ClientNotes(connection))
    found: dict[PartitionName, int] = {}
    try:
        consumer.assign([TopicPartition(topic, number, offset) for (topic, number), offset in unread.items()])
        deadline_s = time.monotonic() + connection.request_timeout_s
        while len(found) < len(unread) and (left_s := deadline_s - time.monotonic()) > 0:
            got: Iterable[PartitionName] = []
            for message in consumer.consume(len(unread), min(left_s, 0.5)):
                topic, number = message.topic(), message.partition()
                if message.error() or topic is None or number is None or (topic, number) in found:
                    continue
                has_time, at_ms = message.timestamp()
                found[topic, number] = at_ms if has_time and at_ms != NO_TIMESTAMP_MS else int(time.time() * 1000)
                got = [*got, (topic, number)]
            if got:
                consumer.incremental_unassign([TopicPartition(*name) for name in got])
    finally:
        close_consumer(consumer)
    return found
