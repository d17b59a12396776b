"""Our sources keep what a source has to keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka import Producer

from distcommit.app.demo.broker import MockBroker
from distcommit.model.source import Source
from distcommit.sources.kafka.source import KafkaSource
from distcommit.testing.contracts import SourceContract
from distcommit.testing.models.model_source import ModelDataset, ModelSource

HELD = {"orders": {"0": 10, "1": 7}, "clicks": {"0": 3}, "empty": {"0": 0}}


class TestModelSource(SourceContract):
    def make_source(self) -> Source:
        return ModelSource({urn: ModelDataset(partitions, units=2) for urn, partitions in HELD.items()})

    def holds(self) -> Mapping[str, Mapping[str, int]]:
        return HELD


@pytest.fixture(scope="module")
def broker() -> Iterator[MockBroker]:
    with MockBroker.start({topic: len(partitions) for topic, partitions in HELD.items()}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for topic, partitions in HELD.items():
            for partition, count in partitions.items():
                for number in range(count):
                    producer.produce(topic, f"{number}", partition=int(partition))
        assert producer.flush(20) == 0
        yield broker


class TestKafkaSource(SourceContract):
    target = 4

    @pytest.fixture(autouse=True)
    def _broker(self, broker: MockBroker) -> None:
        self.brokers = broker.bootstrap_servers

    def make_source(self) -> Source:
        settings = {"type": "kafka", "brokers": self.brokers, "topic_patterns": [".*"]}
        return KafkaSource.model_validate({**settings, "records_per_work_unit": self.target})

    def holds(self) -> Mapping[str, Mapping[str, int]]:
        return HELD


class TestKafkaSourceOfSmallPartitions(TestKafkaSource):
    """Several partitions share a work unit."""

    target = 100
