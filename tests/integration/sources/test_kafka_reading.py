"""Reading from real brokers while the cluster changes, and records that cannot be read."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from distcommit.core.errors import DistcommitError, SourceError
from distcommit.core.interfaces.source import DatasetProblem, SkippedDataset, SourceState
from distcommit.core.records.deferred_records import DeferredRecords
from distcommit.core.records.fixed_settings import SourceFact
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import DatasetPlan, WorkUnit
from distcommit.sources.kafka.extractor import KafkaExtractor
from distcommit.sources.kafka.source import KafkaSource
from tests.servers.kafka import KafkaServer
from tests.servers.kafka_records import wait_for_ended_transactions

RECORDS = 60_000


def make_topic(server: KafkaServer, topic: str = "", replicas: dict[int, list[int]] | None = None) -> str:
    topic = topic or uuid.uuid4().hex
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    new = NewTopic(topic, 1, 1) if replicas is None else NewTopic(topic, 1, replica_assignment=[*replicas.values()])
    admin.create_topics([new])[topic].result(30)
    return topic


def delete_topic(server: KafkaServer, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(30)
    while topic in admin.list_topics(timeout=10).topics:
        time.sleep(0.02)


def produce(server: KafkaServer, topic: str, records: int, size: int = 10) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "linger.ms": 20, "acks": "all"})
    for number in range(records):
        producer.produce(topic, (b"%d" % number).ljust(size), partition=0)
        if number % 10_000 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0


def source(server: KafkaServer, topic: str, **settings: Any) -> KafkaSource:
    given = {"brokers": server.bootstrap_servers, "request_timeout_s": 10, **settings}
    return KafkaSource.model_validate({"type": "kafka", "topics": [topic], **given})


def planned(kafka: KafkaSource, state: DatasetState | None = None) -> DatasetPlan | DatasetProblem:
    (planned_dataset,) = (
        f
        for f in kafka.plan(bool, SourceState({state.dataset_urn: state} if state else {}))
        if not isinstance(f, SourceFact | SkippedDataset | DeferredRecords)
    )
    return planned_dataset


def unit_of(kafka: KafkaSource) -> WorkUnit:
    plan = planned(kafka)
    assert isinstance(plan, DatasetPlan), plan
    (unit,) = plan.work_units
    return unit


@contextmanager
def opened(kafka: KafkaSource) -> Iterator[KafkaExtractor]:
    extractor = kafka.open()
    try:
        yield extractor
    finally:
        extractor.close()


def offsets(batches: list[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("kafka_offset").to_pylist()]


def test_the_watermark_carries_the_topic_id(kafka_server: KafkaServer) -> None:
    topic = make_topic(kafka_server)
    produce(kafka_server, topic, 2)
    plan = planned(source(kafka_server, topic))
    assert isinstance(plan, DatasetPlan)
    topic_id = plan.start.incarnation
    assert len(topic_id) == 22
    assert {plan.work_units[0].low.incarnation, plan.work_units[0].expected_high.incarnation} == {topic_id}
    produce(kafka_server, topic, 1)
    for stored in (topic_id, ""):  # a watermark without an id was set by an operator
        state = DatasetState(topic, watermark=Watermark({"0": 2}, stored))
        again = planned(source(kafka_server, topic), state)
        assert isinstance(again, DatasetPlan)
        assert again.work_units[0].expected_high == Watermark({"0": 3}, topic_id)


def test_position_behind_an_open_transaction_waits_and_one_behind_the_end_is_reported(
    kafka_server: KafkaServer,
) -> None:
    topic = make_topic(kafka_server)
    writer = Producer({"bootstrap.servers": kafka_server.bootstrap_servers, "transactional.id": topic})
    writer.init_transactions(30)
    writer.begin_transaction()
    for _ in range(2):
        writer.produce(topic, b"open", partition=0)
    assert writer.flush(30) == 0
    committed = source(kafka_server, topic)
    uncommitted = source(kafka_server, topic, client={"isolation.level": "read_uncommitted"})
    for position, reason in ((1, "an open transaction"), (2, "an open transaction"), (3, "is not in the topic")):
        problem = planned(committed, DatasetState(topic, watermark=Watermark({"0": position})))
        assert isinstance(problem, DatasetProblem)
        assert reason in problem.error
    assert isinstance(planned(uncommitted, DatasetState(topic, watermark=Watermark({"0": 1}))), DatasetPlan)
    writer.commit_transaction(30)
    assert wait_for_ended_transactions(kafka_server.bootstrap_servers, [topic])
    plan = planned(committed, DatasetState(topic, watermark=Watermark({"0": 1})))
    assert isinstance(plan, DatasetPlan)
    assert plan.work_units[0].expected_high.positions == {"0": 3}, "behind the transaction's end"


def test_topic_recreated_during_reading_fails_the_work_unit(kafka_server: KafkaServer) -> None:
    topic = make_topic(kafka_server)
    produce(kafka_server, topic, 3)
    kafka = source(kafka_server, topic)
    unit = unit_of(kafka)
    delete_topic(kafka_server, topic)
    make_topic(kafka_server, topic)
    produce(kafka_server, topic, 5)
    with opened(kafka) as extractor:
        extraction = extractor.extract(unit)
        assert len(offsets(list(extraction))) == 3, "other records than those that were planned"
        with pytest.raises(SourceError, match="recreated while it was read"):
            extraction.actual_high()


@pytest.mark.slow
def test_leader_killed_during_a_fetch_loses_no_record(kafka_pair: KafkaServer) -> None:
    topic = make_topic(kafka_pair, replicas={0: [2, 1]})
    produce(kafka_pair, topic, RECORDS, 200)
    kafka = source(kafka_pair, topic, client={"queued.max.messages.kbytes": 1000, "fetch.message.max.bytes": 100_000})
    with opened(kafka) as extractor:
        unit = unit_of(kafka)
        extraction = extractor.extract(unit)
        batches = iter(extraction)
        fetched = [next(batches)]
        kafka_pair.kill_broker(2)
        try:
            fetched += batches
            assert offsets(fetched) == list(range(RECORDS))
            assert extraction.actual_high() == unit.expected_high
            assert list(extraction.holes()) == []
        finally:
            kafka_pair.start_broker(2)


@pytest.mark.slow
def test_broker_restarted_during_a_fetch_loses_no_record(kafka_pair: KafkaServer) -> None:
    topic = make_topic(kafka_pair, replicas={0: [2]})
    produce(kafka_pair, topic, RECORDS, 200)
    kafka = source(kafka_pair, topic, client={"queued.max.messages.kbytes": 1000, "fetch.message.max.bytes": 100_000})
    with opened(kafka) as extractor:
        unit = unit_of(kafka)
        extraction = extractor.extract(unit)
        batches = iter(extraction)
        fetched = [next(batches)]
        kafka_pair.kill_broker(2)
        restart = threading.Thread(target=kafka_pair.start_broker, args=(2,))
        restart.start()
        try:
            fetched += batches
        finally:
            restart.join()
        assert offsets(fetched) == list(range(RECORDS))
        assert extraction.actual_high() == unit.expected_high


def test_a_message_larger_than_the_client_takes_is_a_clear_error(kafka_server: KafkaServer) -> None:
    topic = make_topic(kafka_server)
    produce(kafka_server, topic, 1, 500_000)
    client = {"message.max.bytes": 50_000, "fetch.max.bytes": 50_000, "receive.message.max.bytes": 60_000}
    kafka = source(kafka_server, topic, client=client, idle_timeout_s=3)
    with opened(kafka) as extractor, pytest.raises(DistcommitError) as caught:
        list(extractor.extract(unit_of(kafka)))
    assert "larger than the client settings allow" in str(caught.value)
    assert topic in str(caught.value)
