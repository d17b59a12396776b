"""Our sources keep what a source has to keep."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer

from distcommit.app.demo.broker import MockBroker
from distcommit.model.source import Source
from distcommit.sources.files.source import FilesSource
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


class TestFilesSource(SourceContract):
    """Each work unit numbers the rows of its files in a partition of its own."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        for urn, files in {"orders": (10, 0, 7), "clicks": (3,), "empty": (0,)}.items():
            (tmp_path / urn).mkdir()
            for number, rows in enumerate(files):
                path = tmp_path / urn / f"{number}.jsonl"
                path.write_bytes(b'{"a": 1}\n' * rows)
                os.utime(path, (1_700_000_000 + number // 2,) * 2)

    def make_source(self) -> Source:
        settings = {"type": "files", "paths": [f"{self.folder}/{{dataset}}/*.jsonl"], "format": "jsonl"}
        return FilesSource.model_validate({**settings, "bytes_per_work_unit": 1})

    def holds(self) -> Mapping[str, Mapping[str, int]]:
        row_counts = {"orders": 17, "clicks": 3, "empty": 0}
        units = {"orders": 3, "clicks": 1, "empty": 1}
        return {
            urn: {"files": rows, **{str(number): 0 for number in range(units[urn])}} for urn, rows in row_counts.items()
        }


class TestKafkaSourceOfSmallPartitions(TestKafkaSource):
    """Several partitions share a work unit."""

    target = 100
