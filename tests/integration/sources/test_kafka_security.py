"""SASL and TLS on a real broker, by the command line: accepted clients read exactly once, rejections have a reason,
no secret leaks."""

from __future__ import annotations

import logging
import pickle
import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from distcommit import Job
from distcommit.cli.main import app
from distcommit.core.errors import ConfigurationError, SourceError, SourceUnavailableError, TransientError
from distcommit.core.interfaces.source import SourceState
from distcommit.sources.kafka.source import KafkaSource
from tests.jobs.kafka_job import KafkaJob
from tests.servers.java import keytool
from tests.servers.kafka import KafkaServer

WRONG = "not-the-password-at-all"


def over_tls(server: KafkaServer, password: str) -> dict[str, str]:
    """Return the client settings for SASL over TLS."""
    return {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": KafkaServer.user,
        "sasl.password": password,
        "ssl.ca.location": str(server.ca_file),
    }


def job_of_twenty_records(folder: Path, server: KafkaServer) -> KafkaJob:
    """Produce twenty records to a topic, and return the job whose file is still to be written."""
    topic = uuid.uuid4().hex
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    job = KafkaJob(folder, server, {topic: 2})
    job.produce(10)
    return job


def write(job: KafkaJob, server: KafkaServer, client: dict[str, str], **source: Any) -> None:
    source = {"brokers": server.tls_bootstrap_servers, "client": client, **source}
    job.write(source=source, spark={"partitions": 2})


def written_below(folder: Path, *but: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file() and path not in but)


@pytest.mark.slow
def test_password_from_the_environment_or_a_file_is_accepted_and_never_shown(
    tmp_path: Path, kafka_server: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files and output of the job are searched for the secrets."""
    monkeypatch.setenv("KAFKA_TEST_PASSWORD", KafkaServer.password)
    secret = tmp_path / "password"
    secret.write_text(KafkaServer.password + "\n")
    job = job_of_twenty_records(tmp_path, kafka_server)
    output = ""
    for password in ("${KAFKA_TEST_PASSWORD}", f"${{file:{secret}}}"):
        write(job, kafka_server, {**over_tls(kafka_server, password), "debug": "security,broker"})
        code, result, errors = job.cli("run", "--verbose")
        assert code == 0, errors[-3000:]
        assert result["totals"]["records_published"] == 20
        output += str(result) + errors
        job.assert_exact()
        job.produce(10)
        monkeypatch.delenv("KAFKA_TEST_PASSWORD", raising=False)
    assert KafkaServer.password not in output
    assert KafkaServer.password.encode() not in written_below(tmp_path, secret)


@pytest.mark.slow
def test_bad_credentials_and_unknown_certificates_are_reported_without_waiting(
    tmp_path: Path, kafka_server: KafkaServer, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """The command refuses bad credentials before the run. Runs are in this process, as each JVM start takes ten seconds
    or more."""
    stranger, store = tmp_path / "stranger.pem", ["-keystore", str(tmp_path / "keys"), "-storepass", "changeit"]
    keytool("-genkeypair", *store, "-dname", "CN=stranger", "-keyalg", "EC", "-groupname", "secp256r1")
    keytool("-exportcert", *store, "-rfc", "-file", str(stranger))
    job = job_of_twenty_records(tmp_path, kafka_server)
    right = over_tls(kafka_server, KafkaServer.password)

    def assert_no_secret(output: str) -> None:
        for secret in (WRONG, KafkaServer.password):
            assert secret not in output
            assert secret.encode() not in written_below(tmp_path, job.path)

    # Neither the check before the run nor the run waits as for an unreachable broker.
    write(job, kafka_server, {**right, "sasl.password": WRONG}, request_timeout_s=1000)
    code, _, errors = job.cli("run")
    assert code == 2, errors[-3000:]
    assert "CREDENTIALS_REJECTED" in errors
    assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in errors
    assert "Traceback" not in errors
    assert_no_secret(errors)

    write(job, kafka_server, {**right, "ssl.ca.location": str(stranger)}, request_timeout_s=1000)
    with pytest.raises(SourceUnavailableError) as caught:
        Job.from_file(job.path, session=spark).run()
    error = str(caught.value)
    assert "no dataset could be planned" in error
    assert f"brokers={kafka_server.tls_bootstrap_servers}" in error
    # These are OpenSSL's words. librdkafka adds its own, unless the handshake fails in its very first step.
    assert "certificate verify failed" in error
    assert "correct the security settings in source.client (sasl.mechanism" in error
    assert_no_secret(error + caplog.text)

    write(job, kafka_server, right)
    assert Job.from_file(job.path, session=spark).run().totals.records_published == 20
    job.assert_exact()


def source(server: KafkaServer, client: dict[str, str]) -> KafkaSource:
    given = {"brokers": server.tls_bootstrap_servers, "topics": ["t"], "request_timeout_s": 10, "client": client}
    return KafkaSource.model_validate({"type": "kafka", **given})


@pytest.mark.parametrize(
    ("changed", "setting", "remedy"),
    [
        ({"sasl.password": "${WRONG_PASSWORD}"}, "sasl.password", "(here the variable WRONG_PASSWORD)"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.mechanism", ""),
    ],
)
@pytest.mark.parametrize("section", ["source", "sink"])
def test_check_and_run_name_the_setting_of_rejected_credentials(
    tmp_path: Path,
    kafka_server: KafkaServer,
    monkeypatch: pytest.MonkeyPatch,
    section: str,
    changed: dict[str, str],
    setting: str,
    remedy: str,
) -> None:
    monkeypatch.setenv("WRONG_PASSWORD", WRONG)
    client = over_tls(kafka_server, KafkaServer.password) | changed
    kafka: dict[str, Any] = {"type": "kafka", "brokers": kafka_server.tls_bootstrap_servers, "client": client}
    files = {"type": "files", "paths": [f"{tmp_path}/{{dataset}}/*"], "format": "jsonl"}
    sections: dict[str, dict[str, Any]] = {
        "source": {"source": {**kafka, "topic_patterns": [".*"]}},
        "sink": {"source": files, "sink": {**kafka, "topic": "copied", "ledger": "ledger", "value": "line"}},
    }
    path = tmp_path / "job.yaml"
    folders = {name: str(tmp_path / name) for name in ("store", "staging", "output")}
    path.write_text(yaml.safe_dump({"job": "refused", "paths": folders, **sections[section]}))
    for command in ("check", "run"):
        done = CliRunner(env={"COLUMNS": "400"}).invoke(app, [command, str(path)])
        output = " ".join((done.stdout + done.stderr).split())
        assert done.exit_code == 2, output
        assert "CREDENTIALS_REJECTED: the server rejects the user or the password" in output
        assert f"To do: set {section}.client.{setting} {remedy}".strip() in output
        assert WRONG not in output


def test_a_refusal_is_an_error_without_the_password(
    kafka_server: KafkaServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    kafka = source(kafka_server, {**over_tls(kafka_server, WRONG), "debug": "security,broker"})
    for act, kind in ((lambda: list(kafka.plan(bool, SourceState())), SourceError), (kafka.open, TransientError)):
        with pytest.raises(kind, match="uthentication failed") as caught:
            act()
        assert WRONG not in str(caught.value) + caplog.text
        assert WRONG.encode() not in pickle.dumps(caught.value)


def test_a_secret_file_that_is_missing_or_empty_is_named(kafka_server: KafkaServer, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    for name, problem in (("none", "No such file"), ("empty", "an empty file")):
        kafka = source(kafka_server, over_tls(kafka_server, f"${{file:{tmp_path}/{name}}}"))
        with pytest.raises(ConfigurationError, match=problem) as caught:
            kafka.open()
        assert str(tmp_path / name) in str(caught.value)
