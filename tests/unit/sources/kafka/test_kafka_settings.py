"""The Kafka source's settings: rejected values, hidden secrets, and masked client messages."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from pydantic import ValidationError

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.source import SourceState
from distcommit.sources.kafka.client import ClientLog, KafkaConnection
from distcommit.sources.kafka.source import KafkaSource
from tests.unit.sources.kafka.test_kafka_plan import everything, source

SECRET = "hunter2-hunter2"


def test_source_pickles_and_still_hides_its_secrets() -> None:
    kafka = source(
        client={"sasl.password": SECRET, "fetch.min.bytes": 5, "check.crcs": True}, start="2026-01-01T00:00:00Z"
    )
    again = pickle.loads(pickle.dumps(kafka))
    assert again == kafka
    assert {k: v.get_secret_value() for k, v in again.client.items()} == {
        "sasl.password": SECRET,
        "fetch.min.bytes": "5",
        "check.crcs": "true",
    }
    for shown in (repr(again), str(again), again.model_dump_json(), repr(again.model_dump())):
        assert SECRET not in shown
    assert KafkaSource.model_validate(again.model_dump()) == kafka


@pytest.mark.parametrize(
    "client", [{"security.protocol": SECRET}, {"no.such.key": SECRET}, {"ssl.key.location": SECRET}]
)
def test_rejected_client_settings_do_not_show_their_values(client: dict[str, str]) -> None:
    if "ssl.key.location" in client:
        client = {**client, "security.protocol": "ssl"}
    kafka = source(client=client)
    for act in (lambda: list(kafka.plan(everything, SourceState())), kafka.open):
        with pytest.raises(ConfigurationError, match="rejects the client settings") as failure:
            act()
        assert SECRET not in str(failure.value)
        assert failure.value.__cause__ is None


def test_secrets_are_masked_in_librdkafka_messages() -> None:
    connection = KafkaConnection("b:1", {"sasl.password": "pw", "debug": "abc"}, 1)
    assert connection.masked("pw abc") == "*** abc"
    assert "pw" not in repr(connection)
    notes = ClientLog(connection)
    notes.log(7, "%s [%s] %s", "FAIL", "x", "pw")


def test_protocol_and_mechanism_names_are_shown_in_their_own_settings() -> None:
    client = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.password": "PLAIN-1",
        "client.id": "ssl1",
    }
    connection = KafkaConnection("b:1", client, 1)
    assert connection.masked("sasl_ssl://b:1 by PLAIN, PLAIN-1, ssl1") == "sasl_ssl://b:1 by PLAIN, ***, ***"
    assert KafkaConnection("b:1", {"security.protocol": SECRET}, 1).masked(SECRET) == "***"


@pytest.mark.parametrize(
    ("code", "text", "refused"),
    [
        (KafkaError._AUTHENTICATION, "SASL authentication error", True),
        (KafkaError._SSL, "SSL handshake failed: broker certificate could not be verified", True),
        (KafkaError._SSL, "SSL handshake failed: Disconnected", False),
        (KafkaError._TRANSPORT, "Connection refused", False),
    ],
)
def test_rejected_connection_is_reported_after_all_brokers_are_down(code: int, text: str, refused: bool) -> None:
    errors = [KafkaError(code, text), KafkaError(KafkaError._ALL_BROKERS_DOWN, "2/2 brokers are down")]
    for first, second in (errors, errors[::-1]):
        notes = ClientLog(KafkaConnection("b:1", {}, 1))
        notes.error(first)
        assert not notes.refused
        notes.error(second)
        assert (notes.refused, notes.last) == (refused, text)


def test_secret_files_are_read_when_a_client_is_created(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    kafka = source(client={"ssl.key.password": f"a${{file:{secret}}}z"})
    secret.write_text(SECRET + "\n")
    connection = pickle.loads(pickle.dumps(kafka)).connection()
    assert connection.client == {"ssl.key.password": f"a{SECRET}z"}
    assert SECRET.encode() not in pickle.dumps(kafka)
    assert connection.masked(f"(a{SECRET}z)") == "(***)"
    secret.write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        kafka.open()


def test_secret_file_needs_an_absolute_path() -> None:
    with pytest.raises(ValidationError, match="absolute path"):
        source(client={"sasl.password": "${file:password}"})


@pytest.mark.parametrize("key", ["group.id", "enable.auto.commit", "auto.offset.reset", "enable.partition.eof"])
def test_settings_that_the_source_owns_are_rejected(key: str) -> None:
    with pytest.raises(ValidationError, match=key) as failure:
        source(client={key: SECRET})
    assert SECRET not in str(failure.value)


@pytest.mark.parametrize(
    "settings",
    [{"topics": []}, {"topic_patterns": ["("]}, {"start": "2026-01-01T00:00:00"}, {"start": "soon"}, {"topic": "x"}],
)
def test_invalid_kafka_settings_are_rejected(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        source(**settings)
