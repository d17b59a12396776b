"""The records that read-committed consumers receive from Kafka topics, by a plain consumer."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

_TIMEOUT_S = 60.0


def committed_records(brokers: str, topics: Iterable[str]) -> Iterator[Message]:
    """Return the records of these topics, some of which may be missing, up to the first open transaction."""
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
