"""Secrets: settings that accept a secret file, and redaction of printed overrides and errors."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from distcommit.app.inspection.problems.recommended_commands import command_for
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.app.job_file.load_job_file import parse_config
from distcommit.app.job_file.secrets import PLACES, shown_override
from distcommit.core.errors import ConfigurationError, SourceError, reason_text
from distcommit.core.redaction import Redaction, redacted

REST = {"type": "rest", "url": "https://x/{dataset}", "datasets": {"a": {"url": "https://x/a"}}}
KAFKA = {"type": "kafka", "brokers": "b:1", "topics": ["x"]}
ICEBERG = {"type": "iceberg", "namespace": "n", "catalog": {"type": "rest", "uri": "http://c"}}
KAFKA_SINK = {"type": "kafka", "brokers": "b:1", "topic": "{dataset}-copy", "ledger": "l"}
FILE = "${file:/run/secrets/one}"
SECRET = "hunter2-S3cr3t"


def tree(**sections: Any) -> dict[str, Any]:
    return {"job": "j", "source": KAFKA, "paths": {"store": "s", "staging": "t", "output": "o"}, **sections}


@pytest.mark.parametrize(
    "sections",
    [
        {"source": {**KAFKA, "client": {"sasl.password": FILE}}},
        {"sink": {**KAFKA_SINK, "client": {"sasl.password": FILE}}},
        {"sink": {**ICEBERG, "catalog": {**ICEBERG["catalog"], "token": FILE}}},  # type: ignore[dict-item]
        {"spark": {"conf": {"spark.hadoop.fs.s3a.secret.key": FILE}}},
        {
            "alerts": {
                "after_failed_runs": 1,
                "webhooks": [{"url": FILE, "headers": {"Authorization": f"Bearer {FILE}"}}],
            }
        },
    ],
)
def test_secret_file_is_accepted_in_settings_that_may_hold_a_secret(sections: dict[str, Any]) -> None:
    assert parse_config(tree(**sections), Path("/jobs/job.yaml")).job == "j"


def test_secret_file_elsewhere_is_refused_with_the_places_that_take_one() -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_config(tree(source={**KAFKA, "topics": [FILE]}), Path("/jobs/job.yaml"))
    assert all(place in str(refused.value) for place in PLACES)


@pytest.mark.parametrize(
    ("override", "shown"),
    [
        (f"source.password={SECRET}", "source.password=***"),
        (f"source.client={{sasl.password: {SECRET}}}", "source.client=***"),
        (f"source.options.label={SECRET}", "source.options.label=***"),
        (f"spark.conf={{spark.x: {SECRET}}}", "spark.conf=***"),
        (f"source.transform.tables={{t: {{label: {SECRET}}}}}", "source.transform.tables=***"),
        (f"source.url=postgresql://u:{SECRET}@h/d", "source.url=***"),
        ("source.password=${file:/run/secrets/one}", "source.password=${file:/run/secrets/one}"),
        ("commit.buckets=4", "commit.buckets=4"),
        (f"alerts=[{SECRET}", "alerts=***"),
    ],
)
def test_printed_command_hides_the_value_of_an_override_that_may_be_secret(override: str, shown: str) -> None:
    folders = JobFolders(parse_config(tree(), Path("/jobs/job.yaml")), Path("/jobs/job.yaml"), (override,))
    assert shown_override(override) == shown
    assert SECRET not in command_for(folders)("run")


def test_error_that_quotes_a_secret_shows_stars_in_its_place() -> None:
    parse_config(tree(source={**KAFKA, "client": {"sasl.password": "planted-in-client"}}), Path("/jobs/job.yaml"))
    assert str(SourceError("refused", found="login planted-in-client")) == "SOURCE_FAILED: refused; found login ***"
    assert reason_text("ValueError: planted-in-client") == "ValueError: ***"


def test_process_that_unpickles_a_flow_redacts_the_secrets_of_the_driver() -> None:
    pickled = pickle.dumps(Redaction(["only-known-to-driver"])).replace(
        b"only-known-to-driver", b"sent-to-the-executor"
    )
    assert redacted("sent-to-the-executor") == "sent-to-the-executor"
    pickle.loads(pickled)
    assert redacted("found sent-to-the-executor") == "found ***"


@pytest.mark.parametrize("override", [f"a.b=[{SECRET}", SECRET, f"job.x={SECRET}"])
def test_override_that_is_wrong_is_refused_without_its_value(override: str, tmp_path: Path) -> None:
    from distcommit.app.job_file.load_job_file import load_tree

    path = tmp_path / "job.yaml"
    path.write_text("job: j\n", encoding="utf-8")
    with pytest.raises(ConfigurationError) as refused:
        load_tree(path, (override,))
    assert SECRET not in str(refused.value)
