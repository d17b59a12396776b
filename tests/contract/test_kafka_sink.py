"""The Kafka sink fulfills the sink contract, on a real broker."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from distcommit.core.interfaces.committer import CommitRequest
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.sinks.kafka.client import ledger_topic_id
from distcommit.sinks.kafka.sink import KafkaSink
from distcommit.sinks.kafka.topic_names import topic_of
from distcommit.testing.contracts import LaterEpochs, SinkContract
from tests.servers.kafka import KafkaServer
from tests.servers.kafka_records import committed_records


class TestKafkaSink(SinkContract, LaterEpochs):
    """Topics for each place, and one transactional id, so that the suite's kills cover all of the committer."""

    preloaded = ("distcommit.sinks.kafka.committer",)

    @pytest.fixture(autouse=True)
    def _broker(self, kafka_server: KafkaServer) -> None:
        self.brokers = kafka_server.bootstrap_servers

    def name(self, place: Path) -> str:
        return f"contract-{hashlib.sha256(str(place).encode()).hexdigest()[:16]}"

    def make_sink(self, folder: Path) -> CommitterSink:
        topics = {"topic": f"{self.name(folder)}-{{dataset}}", "create": True, "ledger": f"{self.name(folder)}.ledger"}
        sink = KafkaSink.model_validate(
            {"type": "kafka", "brokers": self.brokers, **topics, "transactional_ids": 1, "format": "json", "key": ""}
        )
        ledger_topic_id(sink.target(), "the first writer")  # once for each place, as writers do
        return sink

    def observe(self, folder: Path) -> Sequence[tuple[str, int]]:
        topics = {topic_of(f"{self.name(folder)}-{{dataset}}", urn): urn for urn in ("a", "b", "c", "b/ü")}
        records = committed_records(self.brokers, topics)
        return [(topics[record.topic() or ""], json.loads(record.value() or b"")["offset"]) for record in records]

    def lose(self, folder: Path, request: CommitRequest) -> bool:
        (folder / "staging" / request.infos[-1]["files"][-1][0]).unlink()
        return True

    def cut_off(self, folder: Path) -> bool:
        admin = AdminClient({"bootstrap.servers": self.brokers})
        admin.delete_topics([f"{self.name(folder)}.ledger"])[f"{self.name(folder)}.ledger"].result()
        return True

    @pytest.mark.slow
    @pytest.mark.long
    @pytest.mark.timeout(600)
    def test_commit_killed_at_some_lines_is_committed_by_the_next(self, tmp_path: Path) -> None:
        self.kill_before_lines(tmp_path, apart=6)

    @pytest.mark.slow
    @pytest.mark.long
    @pytest.mark.timeout(1800)
    def test_commit_killed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        super().test_commit_killed_at_any_line_is_committed_by_the_next(tmp_path)
