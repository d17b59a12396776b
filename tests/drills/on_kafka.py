"""Topics of a real Kafka that change under a job."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.drills.drill import Drilled, KafkaSituation, NotBrokenError, drilled
from tests.drills.registry import drill, drill_of
from tests.servers.kafka import KafkaServer
from tests.servers.kafka_records import wait_for_ended_transactions

_TOPICS = ["kept", "struck"]
_OPEN_MS = 900_000
"""Kafka's limit on the duration of a transaction."""
_WAIT_S = 60.0


class _Admin:
    """Creates and deletes topics, and deletes records as retention does."""

    def __init__(self, brokers: str) -> None:
        self._client = AdminClient({"bootstrap.servers": brokers})

    def make(self, topic: str) -> None:
        self._client.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)

    def delete(self, topic: str) -> None:
        self._client.delete_topics([topic])[topic].result(60)
        until_s = time.monotonic() + 60
        while topic in self._client.list_topics(timeout=30).topics:
            if time.monotonic() > until_s:
                raise NotBrokenError(f"the brokers still list the topic {topic}, which is deleted")
            time.sleep(0.05)

    def forget(self, topic: str, before: int) -> None:
        partition = TopicPartition(topic, 0, before)
        self._client.delete_records([partition])[partition].result(60)


@contextmanager
def _job(folder: Path) -> Iterator[tuple[KafkaSituation, _Admin]]:
    """Yield a job that has read ten records of each topic."""
    with KafkaServer() as server:
        admin, situation = _Admin(server.bootstrap_servers), KafkaSituation(folder)
        for topic in _TOPICS:
            admin.make(topic)
        situation.on(server.bootstrap_servers, _TOPICS, commit={"buckets": 2})
        for topic in _TOPICS:
            situation.numbers(topic, 10)
        situation.run(0)
        situation.numbers("kept", 5)
        yield situation, admin


@drill("PLAN_FAILED", "KAFKA_RECORDS_EXPIRED", "RECORDS_LOST")
def expired_offsets(folder: Path) -> Drilled:
    """The printed command accepts the loss; then `status` reports it until the next run."""
    with _job(folder) as (situation, admin):
        late = [b"late-%d" % number for number in range(10)]
        situation.produce("struck", *late)
        admin.forget("struck", 15)
        situation.run(1)
        cause = "struck could not be planned: Kafka has deleted records before they were read.*5 offsets have expired"
        return drilled(situation, cause, gone=Counter(late[:5]))


@drill("PLAN_FAILED")
def deleted_topic(folder: Path) -> Drilled:
    with _job(folder) as (situation, admin):
        admin.delete("struck")
        situation.run(1)

        def take_it_out() -> None:
            situation.write(source={**situation.config["source"], "topics": ["kept"]})

        cause = "struck could not be planned: the topic does not exist.*remove it from source.topics"
        return drilled(situation, cause, act=take_it_out)


@drill("KAFKA_POSITION_MISSING", "KAFKA_POSITION_MISSING: the topic was truncated or recreated")
def topic_made_again(folder: Path) -> Drilled:
    with _job(folder) as (situation, admin):
        admin.delete("struck")
        admin.make("struck")
        situation.numbers("struck", 7)
        situation.run(1)
        cause = "struck could not be planned: the stored position is not in the topic.*topic id.*recreated"
        return drilled(situation, cause)


def _in_transaction(situation: KafkaSituation, topic: str, *values: bytes) -> Producer:
    """Return a producer with an open transaction that contains these records of a topic."""
    settings = {"transactional.id": topic, "transaction.timeout.ms": _OPEN_MS, "log_level": 0}
    producer = Producer({"bootstrap.servers": situation.brokers, **settings})
    producer.init_transactions(_WAIT_S)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    if unacknowledged := producer.flush(_WAIT_S):
        raise NotBrokenError(f"{unacknowledged} records are not acknowledged")
    situation.given.update(values)
    return producer


@drill_of("PLAN_FAILED", "KAFKA_TRANSACTION_OPEN", kinds=("committed", "aborted"))
def position_behind_an_open_transaction(folder: Path, end: str) -> Drilled:
    """Read records of an open transaction, then only committed records.

    Records that were published before their transaction was aborted stay published.
    """
    with _job(folder) as (situation, _):
        source = situation.config["source"]
        producer = _in_transaction(situation, "struck", *(b"open-%d" % number for number in range(3)))
        situation.write(source={**source, "client": {"isolation.level": "read_uncommitted"}})
        situation.run(0)
        situation.write(source=source)
        situation.numbers("struck", 4)
        situation.numbers("kept", 5)
        situation.run(1)

        def finish() -> None:
            (producer.commit_transaction if end == "committed" else producer.abort_transaction)(_WAIT_S)
            wait_for_ended_transactions(situation.brokers, ["struck"])

        cause = "struck could not be planned: an open transaction precedes the stored position.*until its producer"
        return drilled(situation, cause, act=finish)
