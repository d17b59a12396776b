"""Why the Kafka sink sends sealed records in a transaction of the committer, and is tested on a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.servers.kafka import KafkaServer
from tests.servers.kafka_records import committed_records

_WAIT_S = 20.0


def producing(brokers: str, name: str) -> Producer:
    """Return a producer of that transactional id, which aborts the previous one's open transaction."""
    producer = Producer({"bootstrap.servers": brokers, "transactional.id": name, "log_level": 0})
    producer.init_transactions(_WAIT_S)
    return producer


def sent(producer: Producer, topic: str, value: bytes) -> None:
    """Begin a transaction and send a record that the broker acknowledges."""
    producer.begin_transaction()
    producer.produce(topic, value, partition=0)
    assert producer.flush(_WAIT_S) == 0


def values(brokers: str, topic: str) -> list[bytes]:
    """Return the values that read-committed consumers receive."""
    return [message.value() or b"" for message in committed_records(brokers, [topic])]


def test_transaction_of_a_writer_cannot_be_continued_by_another_producer(kafka_server: KafkaServer) -> None:
    """KIP-939 is not available: the next producer of the transactional id aborts the transaction before it can query
    it."""
    brokers, topic = kafka_server.bootstrap_servers, f"t{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    writer = producing(brokers, topic)
    sent(writer, topic, b"written ahead")
    committer = producing(brokers, topic)
    with pytest.raises(KafkaException) as caught:
        committer.commit_transaction(_WAIT_S)
    assert "_STATE" in str(caught.value)
    with pytest.raises(KafkaException) as fenced:
        writer.commit_transaction(_WAIT_S)
    assert fenced.value.args[0].txn_requires_abort() or fenced.value.args[0].fatal()
    sent(committer, topic, b"the committer's own")
    committer.commit_transaction(_WAIT_S)
    assert values(brokers, topic) == [b"the committer's own"]


@pytest.fixture
def mock() -> Iterator[str]:
    """Return the address of librdkafka's own mock broker."""
    keeper = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "replaced", "log_level": 0})
    (broker,) = keeper.list_topics(timeout=_WAIT_S).brokers.values()
    yield f"{broker.host}:{broker.port}"
    keeper.flush(_WAIT_S)  # it lives as long as its client


def test_librdkafkas_mock_broker_neither_fences_nor_isolates(mock: str) -> None:
    zombie = producing(mock, "t")
    sent(zombie, "topic", b"a zombie's")
    newer = producing(mock, "t")
    sent(newer, "topic", b"newer")
    newer.commit_transaction(_WAIT_S)
    zombie.commit_transaction(_WAIT_S)  # raises nothing
    undone = producing(mock, "t")
    sent(undone, "topic", b"undone")
    undone.abort_transaction(_WAIT_S)
    assert values(mock, "topic") == [b"a zombie's", b"newer", b"undone"]


def test_librdkafkas_mock_broker_drops_records_above_five_megabytes(mock: str) -> None:
    """On this broker the source still reports a low offset of zero."""
    producer = Producer({"bootstrap.servers": mock, "log_level": 0})
    for _ in range(80):
        producer.produce("large", b"x" * 100_000, partition=0)
    assert producer.flush(_WAIT_S) == 0
    consumer = Consumer({"bootstrap.servers": mock, "group.id": "any", "log_level": 0})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition("large", 0), _WAIT_S)
    finally:
        consumer.close()
    assert high == 80
    assert low > 0, "without a deletion, and without an error"
