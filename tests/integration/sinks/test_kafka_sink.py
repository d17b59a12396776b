"""Failures at Kafka brokers: each concerns one dataset, is reported, and leaves nothing half committed."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_END, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from distcommit.core.errors import ConfigurationError, ConflictError, CorruptError, TransientError
from distcommit.core.interfaces.committer import (
    AlreadyCommitted,
    CommitOutcome,
    CommitRequest,
    Committed,
    CommitterContext,
    FailedForGood,
    RetryLater,
)
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, StagingArea
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.kafka.catchable_producer import CatchableProducer
from distcommit.sinks.kafka.client import ledger_topic_id
from distcommit.sinks.kafka.committer import KafkaCommitter
from distcommit.sinks.kafka.sink import KafkaSink
from tests.servers.kafka import KafkaServer
from tests.servers.kafka_records import committed_records, wait_for_ended_transactions
from tests.unit.sinks.open_clients import client_threads

FS = LocalFileSystem(durable=False)
commit_transaction: Callable[..., Any] = CatchableProducer.commit_transaction


class Target:
    """Topics of one test, behind one transactional id."""

    def __init__(self, brokers: str, folder: Path) -> None:
        self.brokers, self.folder, self.name = brokers, folder, f"sink-{uuid.uuid4().hex[:12]}"
        self.context = CommitterContext(FS, f"{folder}", f"{folder}/output", "store")
        ledger_topic_id(self.sink().target(), "the first")

    def sink(self, **settings: Any) -> KafkaSink:
        topics = {"topic": f"{self.name}-{{dataset}}", "create": True, "ledger": f"{self.name}.ledger"}
        section = {"brokers": self.brokers, "transactional_ids": 1, "format": "json", "key": "", **topics, **settings}
        return KafkaSink.model_validate({"type": "kafka", **section})

    def prepare(
        self, urn: str, epoch: int, *numbers: int, text: str = "", bases: tuple[int, ...] = ()
    ) -> CommitRequest:
        attempt = uuid.uuid4().hex
        (self.folder / attempt).mkdir()
        area = StagingArea(FS, f"{self.folder}/{attempt}", attempt, f"{self.folder}/output")
        writer = self.sink().open_writer(AttemptIdentity("run", epoch, urn, "unit", attempt), area, Origin())
        writer.write(pa.record_batch({"n": numbers, "text": [text] * len(numbers)}))
        return CommitRequest(urn, epoch, tuple(writer.prepare_commit().infos), bases=bases, attempts=(attempt,))

    def commit(self, *requests: CommitRequest, **settings: Any) -> Sequence[CommitOutcome]:
        committer = self.sink(**settings).open_committer(self.context)
        try:
            return committer.commit(requests)
        finally:
            committer.close()

    def seen(self, urn: str) -> list[int]:
        """Return the messages that read-committed consumers receive."""
        records = committed_records(self.brokers, [f"{self.name}-{urn}"])
        return sorted(json.loads(record.value() or b"")["n"] for record in records)

    def delete_topic(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.brokers})
        admin.delete_topics([topic])[topic].result()
        until_s = time.monotonic() + 60
        while topic in admin.list_topics(timeout=30).topics:
            assert time.monotonic() < until_s, f"{topic} is still there"
            time.sleep(0.05)


@pytest.fixture
def target(kafka_server: KafkaServer, tmp_path: Path) -> Target:
    return Target(kafka_server.bootstrap_servers, tmp_path)


def refused(outcome: CommitOutcome, said: str) -> None:
    assert isinstance(outcome, FailedForGood), outcome
    assert said in outcome.reason


def test_deleted_ledger_is_never_guessed(target: Target) -> None:
    assert target.commit(target.prepare("a", 1, 1)) == [Committed()]
    second = target.prepare("a", 2, 2, bases=(1,))
    target.delete_topic(f"{target.name}.ledger")
    with pytest.raises(Exception, match="the ledger topic is gone"):
        target.commit(second)
    made_again = ledger_topic_id(target.sink().target(), "a later run")
    (outcome,) = target.commit(second)
    refused(outcome, "was recreated after this was prepared")
    third = target.prepare("a", 3, 3, bases=(1,))
    told_of_it = tuple({**info, "ledger": made_again} for info in third.infos)  # as writers of later processes are
    (outcome,) = target.commit(replace(third, infos=told_of_it))
    refused(outcome, "not the target that the store knows")
    assert target.seen("a") == [1]


def test_replaced_target_is_refused_and_others_are_committed(target: Target) -> None:
    assert target.commit(target.prepare("a", 1, 1, bases=(0,))) == [Committed()]
    put_back, other = target.prepare("a", 3, 3, bases=(2,)), target.prepare("b", 3, 3)
    outcome, committed = target.commit(put_back, other)
    refused(outcome, "not the target that the store knows")
    assert committed == Committed()
    assert (target.seen("a"), target.seen("b")) == ([1], [3])


def test_record_refused_by_a_topic_delays_only_its_dataset(target: Target) -> None:
    large, good = target.prepare("large", 1, 1, text="x" * 2_000_000), target.prepare("good", 1, 1)
    outcome, committed = target.commit(large, good)
    refused(outcome, "can't be sent to the topic")
    refused(outcome, "raise max.message.bytes of the topic, and release the dataset with retry")
    assert committed == Committed()
    missing = target.prepare("missing", 2, 2)
    outcome, committed = target.commit(missing, target.prepare("good", 2, 2), create=False)
    assert isinstance(outcome, RetryLater)
    assert "it does not exist" in outcome.reason
    assert committed == Committed()
    assert target.seen("good") == [1, 2]
    assert target.commit(missing) == [Committed()]
    assert (target.seen("missing"), target.seen("large")) == ([2], [])


def test_topic_without_write_permission_delays_only_its_dataset(target: Target, kafka_server: KafkaServer) -> None:
    """The brokers refuse the whole transaction because of one topic, without naming it."""
    user = {"sasl.username": KafkaServer.user, "sasl.password": KafkaServer.password}
    client = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", **user}
    limited = {"brokers": kafka_server.sasl_bootstrap_servers, "client": client}
    names = ["a", "denied", "b"]
    assert target.commit(*(target.prepare(name, 1, 1) for name in names), **limited) == [Committed()] * 3
    admin = AdminClient({"bootstrap.servers": target.brokers})
    of = (ResourceType.TOPIC, f"{target.name}-denied", ResourcePatternType.LITERAL, "User:*", "*")
    readers = AclBinding(*of, AclOperation.READ, AclPermissionType.ALLOW)
    for future in admin.create_acls([readers]).values():
        future.result(20)
    asked = [target.prepare(name, 2, 2) for name in names]
    first, denied, last = target.commit(*asked, **limited)
    assert isinstance(denied, RetryLater)
    assert "may not write to it" in denied.reason
    assert (first, last) == (Committed(), Committed())
    assert [target.seen(name) for name in names] == [[1, 2], [1], [1, 2]]
    everything = AclBindingFilter(*of, AclOperation.ANY, AclPermissionType.ANY)
    for future in admin.delete_acls([everything]).values():
        future.result(20)
    assert target.commit(*asked, **limited) == [AlreadyCommitted(), Committed(), AlreadyCommitted()]
    assert target.seen("denied") == [1, 2]


def test_committed_messages_of_a_topic_are_counted_and_no_others(target: Target) -> None:
    """Committed messages count, from several partitions; messages of other producers count too."""
    admin, topic = AdminClient({"bootstrap.servers": target.brokers}), f"{target.name}-a"
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(20)

    def counted(urn: str = "a", **settings: Any) -> int | None:
        committer = target.sink(**settings).open_committer(target.context)
        return committer.visible_rows(urn, "main")

    assert counted("there-is-no-topic-of-it") == 0
    assert target.commit(target.prepare("a", 1, *range(50)), target.prepare("b", 1, 1)) == [Committed()] * 2
    assert (counted(), counted("b")) == (50, 1)
    other = Producer({"bootstrap.servers": target.brokers, "transactional.id": f"{target.name}-another"})
    other.init_transactions(20)
    for end, then in ((other.abort_transaction, 50), (other.commit_transaction, 51)):
        other.begin_transaction()
        other.produce(topic, b"{}")
        other.flush(20)
        end(20)
        assert wait_for_ended_transactions(target.brokers, [topic])
        assert counted() == then
    assert counted(topic=f"{target.name}-all", create=True) is None, "whose they are can't be told"
    for result in admin.delete_records([TopicPartition(topic, number, OFFSET_END) for number in range(3)]).values():
        result.result(20)
    assert counted() is None, "some are gone"
    compacted = NewTopic(f"{target.name}-c", 1, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([compacted])[compacted.topic].result(20)
    assert counted("c") is None, "some may be gone"


def test_commit_with_a_lost_answer_is_found_in_the_ledger(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[bool] = []

    def losing_the_first_answer(producer: CatchableProducer, *arguments: Any) -> None:
        commit_transaction(producer, *arguments)
        if not lost:
            lost.append(True)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))

    monkeypatch.setattr(CatchableProducer, "commit_transaction", losing_the_first_answer)
    assert target.commit(target.prepare("a", 1, 1, 2)) == [AlreadyCommitted()]
    assert lost
    assert target.seen("a") == [1, 2]


def test_zombie_with_its_whole_transaction_sent_is_fenced_and_commits_nothing(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, woken = target.prepare("a", 1, 1), list[Sequence[CommitOutcome]]()

    def sleeps_before_the_first(producer: CatchableProducer, *arguments: Any) -> None:
        if not woken:
            woken.append([])
            woken[0] = target.commit(request)
        commit_transaction(producer, *arguments)

    monkeypatch.setattr(CatchableProducer, "commit_transaction", sleeps_before_the_first)
    assert target.commit(request) == [AlreadyCommitted()]
    assert woken == [[Committed()]]
    assert target.seen("a") == [1]


def test_no_client_stays_open_while_committers_and_errors_are_referenced(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    references: list[object] = []
    began = client_threads()

    def each_way(act: Callable[[KafkaCommitter], object], **settings: Any) -> object:
        committer = target.sink(**settings).open_committer(target.context)
        assert isinstance(committer, KafkaCommitter)
        references.append(committer)
        assert client_threads() > began
        try:
            outcome = act(committer)
        except Exception as error:  # noqa: BLE001 - it is kept, whatever it is
            outcome = error
        finally:
            committer.close()
        references.append(outcome)
        assert client_threads() == began, outcome
        return outcome

    committed, missing, taken_back = (target.prepare(name, 1, 1) for name in ("a", "missing", "b"))
    assert each_way(lambda committer: committer.commit([committed])) == [Committed()]
    (refused_topic,) = target.commit(missing, create=False)
    assert isinstance(refused_topic, RetryLater)
    assert isinstance(each_way(lambda committer: committer.withdraw([committed])), ConflictError)
    assert each_way(KafkaCommitter.probe) is None
    assert each_way(lambda committer: committer.visible_rows("a", "main")) == 1
    away = {"brokers": "localhost:1", "request_timeout_s": 0.5, "client": {"log_level": "0"}}
    for act in (lambda committer: committer.commit([committed]), KafkaCommitter.probe):
        assert isinstance(each_way(act, **away), KafkaException | TransientError)
    with monkeypatch.context() as patched:
        no_answer = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
        patched.setattr(CatchableProducer, "commit_transaction", Mock(side_effect=no_answer))
        assert each_way(lambda committer: committer.withdraw([taken_back])) is no_answer
    with pytest.raises(ConfigurationError, match="not this job's") as other_ledger:
        ledger_topic_id(target.sink(transactional_ids=2).target(), "of another job")
    references.append(other_ledger)
    assert client_threads() == began
    other = Producer({"bootstrap.servers": target.brokers})
    other.produce(f"{target.name}.ledger", b"no row", b"[]")
    assert other.flush(20) == 0
    del other
    assert isinstance(each_way(lambda committer: [*committer.ledger()]), CorruptError)
