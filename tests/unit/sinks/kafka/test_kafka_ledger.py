"""The ledger topic during its creation: brokers list it later, or never."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin._acl import AclOperation

from distcommit.core.errors import TransientError
from distcommit.sinks.kafka.client import KafkaTarget, ledger_topic_id


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the recorded waits in seconds; sleeping is replaced."""
    delays: list[float] = []
    monkeypatch.setattr("time.sleep", delays.append)
    monkeypatch.setattr("random.uniform", lambda low, high: high)
    return delays


def topic_id_from(monkeypatch: pytest.MonkeyPatch, ids: Sequence[str], name: str) -> str:
    """Return the topic id that is found if brokers answer with these ids in turn."""
    answers = iter(ids)
    config = {"cleanup.policy": SimpleNamespace(value="compact")}
    admin = SimpleNamespace(create_topics=lambda topics: {}, describe_configs=lambda asked: {})
    parts: dict[str, Any] = {
        "admin": lambda self: nullcontext(admin),
        "topic_id": lambda self, admin: next(answers, ""),
        "answers": lambda self, futures: {self.ledger: None},
        "_value": lambda self, futures: config,
    }
    for part, act in parts.items():
        monkeypatch.setattr(KafkaTarget, part, act)
    return ledger_topic_id(KafkaTarget("b", (), name, 1, 10, 30), "run")


def test_created_topic_is_waited_for_with_increasing_delays(
    monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    assert topic_id_from(monkeypatch, ["", "", "", "", "id"], "late") == "id"
    assert waits == [0.05, 0.1, 0.2]


def test_topic_that_never_appears_is_reported_and_requested_again(
    monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    with pytest.raises(TransientError, match="does not exist after its creation"):
        topic_id_from(monkeypatch, [], "never")
    assert max(waits) == 2.0
    assert topic_id_from(monkeypatch, ["id"], "never") == "id"


def answered(value: object = None, error: Exception | None = None) -> Future[object]:
    future = Future[object]()
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
    return future


def test_brokers_that_do_not_answer_are_reported_with_a_remedy() -> None:
    target = KafkaTarget("broker:9092", (), "ledger", 1, 10, 0.01)
    no_answer = r"do not answer.*broker:9092.*on orders within 0.01 s.*raise sink.request_timeout_s"
    with pytest.raises(TransientError, match=no_answer):
        target.answers({"ledger": answered(), "orders": Future()})


def test_topic_that_can_not_be_described_is_not_reported_as_denied() -> None:
    descriptions = {
        "mine": answered(SimpleNamespace(authorized_operations=[AclOperation.WRITE])),
        "others": answered(SimpleNamespace(authorized_operations=[])),
        "lost": answered(error=KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))),
    }
    admin: Any = SimpleNamespace(describe_topics=lambda topics, **options: descriptions)
    reason = KafkaTarget("b", (), "ledger", 1, 10, 30).unwritable(admin, list(descriptions))
    assert {topic: text.partition(":")[0] for topic, text in reason.items() if topic != "lost"} == {
        "others": "TOPIC_AUTHORIZATION_FAILED"
    }
    assert "LEADER_NOT_AVAILABLE" in reason["lost"]
