"""What a real Kafka does to topics that a job reads."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.drills.drill import Drilled, KafkaSituation, NotBrokenError, drilled
from tests.drills.registry import drill
from tests.servers.kafka import KafkaServer

_TOPICS = ["kept", "struck"]


class _Admin:
    """Makes and deletes topics, and forgets records as retention does."""

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
    """One that has read ten records of each topic."""
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


@drill("could not be planned", "remedy of _deleted", "RECORDS_LOST: the run of epoch")
def expired_offsets(folder: Path) -> Drilled:
    """The command that is printed accepts the loss; then `status` reports it, until the next run."""
    with _job(folder) as (situation, admin):
        late = [b"late-%d" % number for number in range(10)]
        situation.produce("struck", *late)
        admin.forget("struck", 15)
        situation.run(1)
        cause = "struck could not be planned: Kafka has deleted records before they were read.*5 are gone"
        return drilled(situation, cause, gone=Counter(late[:5]))


@drill("could not be planned")
def deleted_topic(folder: Path) -> Drilled:
    with _job(folder) as (situation, admin):
        admin.delete("struck")
        situation.run(1)

        def take_it_out() -> None:
            situation.write(source={**situation.config["source"], "topics": ["kept"]})

        cause = "struck could not be planned: the topic does not exist.*take it out of source.topics"
        return drilled(situation, cause, act=take_it_out)


@drill("remedy of _made_again", "the topic was truncated or made again")
def topic_made_again(folder: Path) -> Drilled:
    with _job(folder) as (situation, admin):
        admin.delete("struck")
        admin.make("struck")
        situation.numbers("struck", 7)
        situation.run(1)
        cause = "struck could not be planned: the stored position is not in the topic.*topic id.*made again"
        return drilled(situation, cause)
