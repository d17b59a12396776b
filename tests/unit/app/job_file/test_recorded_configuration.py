"""The recorded configuration of a job contains no secrets."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from distcommit.app.job_file.secrets import without_secrets
from distcommit.app.jobs.job import Job
from distcommit.app.running.recorded_environment import facts_of

SECRET = "hunter2-S3cr3t"
TREE = {
    "job": "planes",
    "source": {
        "type": "kafka",
        "brokers": "a:9092",
        "topics": ["x"],
        "client": {"sasl.username": SECRET, "sasl.password": "${KAFKA_PASSWORD}", "ssl.key.location": SECRET},
    },
    "sink": {
        "type": "postgresql",
        "url": f"postgresql://ann:{SECRET}/@db:5432/x?password={SECRET}&sslmode=require",
        "password": SECRET,
        "target_file_bytes": 7,
    },
    "converters": [
        {"type": "python", "class": "a:B", "options": {"salt": SECRET, "nested": {"deep": [SECRET]}}},
        {"type": "avro", "registry": {"url": f"https://u:{SECRET}@r", "client": {"basic.auth.user.info": SECRET}}},
        {"type": "hash", "secret": f"${{SALT:-{SECRET}}}", "columns": ["a"]},
    ],
    "note": f"${{NAME:-{SECRET}}}",
    "headers": {"Authorization": f"Bearer {SECRET}"},
    "alerts": {"hooks": [{"type": "webhook", "url": f"https://hooks/{SECRET}"}]},
    "spark": {"conf": {"spark.hadoop.fs.s3a.secret.key": SECRET, "spark.x.api_key": SECRET}},
}


def test_recorded_configuration_hides_all_secrets_and_shows_other_values() -> None:
    recorded = without_secrets(TREE)
    assert SECRET not in json.dumps(recorded)
    assert (recorded["job"], recorded["source"]["brokers"], recorded["source"]["topics"]) == ("planes", "a:9092", ["x"])
    assert recorded["source"]["client"] == {
        "sasl.username": "***",
        "sasl.password": "${KAFKA_PASSWORD}",
        "ssl.key.location": "***",
    }
    assert recorded["sink"]["url"] == "postgresql://***@db:5432/x?password=***&sslmode=***"
    assert (recorded["sink"]["password"], recorded["sink"]["target_file_bytes"]) == ("***", 7)
    assert recorded["note"] == "${NAME:-***}"
    assert recorded["converters"][2]["columns"] == ["a"]


def test_value_from_the_environment_is_recorded_as_its_variable_name(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "job: planes\n"
        "source: {type: kafka, brokers: '${BROKERS:-b:1}', topics: [x], client: {sasl.password: '${PATH}'}}\n"
        "paths: {store: s, staging: t, output: o}\nretention: {runs: 5}\n"
    )
    job = Job.from_file(file, ["lock.enabled=false"])
    facts = facts_of(job._folders, job._folders.tree)
    assert facts.config["source"]["client"] == {"sasl.password": "${PATH}"}
    assert facts.config["lock"] == {"enabled": False}
    assert (facts.is_locked, facts.retained_runs, facts.retained_tables, facts.job_file) == (False, 5, 10, str(file))
    libraries = {"duckdb", "fastavro", "msgspec", "protobuf", "ptars"}
    assert set(facts.versions) >= {"python", "distcommit", "pyspark", *libraries}


def test_digest_of_settings_changes_with_hidden_values_and_environment_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "job.yaml"

    def digest(greeting: str, threshold: str, *, resumes: bool = True) -> str | msgspec.UnsetType:
        monkeypatch.setenv("THRESHOLD", threshold)
        file.write_text(
            "job: planes\nsource: {type: kafka, brokers: 'b:1', topics: [x]}\n"
            "converters:\n"
            f"- {{type: python, class: 'a:B', options: {{greeting: {greeting!r}, least: '${{THRESHOLD}}'}}}}\n"
            f"commit: {{policy: successful}}\ntask: {{resume_across_runs: {str(resumes).lower()}}}\n"
            "paths: {store: s, staging: t, output: o}\n"
        )
        job = Job.from_file(file)
        return facts_of(job._folders, job._folders.tree).settings_digest

    assert len({digest("Hello you", "3"), digest("Hello you", "4"), digest("Hello me", "3")}) == 3
    assert digest("Hello you", "3") == digest("Hello you", "3")
    assert digest("Hello you", "3", resumes=False) is msgspec.UNSET
