"""The records that read-committed consumers receive from Kafka topics, by a plain consumer.

A broker answers the end of a transaction before it has written the transaction's markers into the partitions. Until
then a read-committed consumer receives nothing of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

_TIMEOUT_S = 60.0
_OPEN_S = 5.0
"""How long records of transactions that do not end are waited for."""


def wait_for_ended_transactions(brokers: str, topics: Iterable[str], timeout_s: float = _TIMEOUT_S) -> bool:
    """Wait until no transaction is open in these topics, some of which may be missing; whether that was reached."""
    admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0})
    there = admin.list_topics(timeout=_TIMEOUT_S).topics
    latest = {
        TopicPartition(topic, partition): OffsetSpec.latest()  # type: ignore[no-untyped-call]
        for topic in topics
        if topic in there
        for partition in there[topic].partitions
    }

    def ends(isolation: IsolationLevel) -> list[int]:
        answers = admin.list_offsets(latest, isolation_level=isolation, request_timeout=_TIMEOUT_S)
        return [answers[partition].result().offset for partition in latest]

    def is_ended() -> bool:
        try:
            return ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED)
        except KafkaException:  # a new topic's partition has no leader yet
            return False

    deadline_s = time.monotonic() + timeout_s
    while latest and not is_ended():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.02)
    return True


def committed_records(brokers: str, topics: Iterable[str]) -> Iterator[Message]:
    """Return the records of these topics, some of which may be missing, up to the first open transaction."""
    topics = list(topics)
    wait_for_ended_transactions(brokers, topics, _OPEN_S)
    conf = {"bootstrap.servers": brokers, "group.id": "readers", "isolation.level": "read_committed", "log_level": 0}
    consumer = Consumer({**conf, "enable.partition.eof": True, "fetch.wait.max.ms": 10, "enable.auto.commit": False})
    try:
        there = consumer.list_topics(timeout=_TIMEOUT_S).topics
        unfinished = {(topic, partition) for topic in topics if topic in there for partition in there[topic].partitions}
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in unfinished])
        deadline_s = time.monotonic() + _TIMEOUT_S
        while unfinished:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"not read to their ends: {sorted(unfinished)[:10]}")
            for message in consumer.consume(1000, timeout=0.2):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard((message.topic() or "", message.partition() or 0))
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
