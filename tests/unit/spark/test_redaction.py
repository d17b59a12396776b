"""Redaction: executor errors and settings in Spark's event log contain no secret."""

from __future__ import annotations

import re
from typing import Any

import pytest

from distcommit.core.redaction import redact
from distcommit.spark import task_launch
from distcommit.spark.job_failure_texts import failure_text
from distcommit.spark.session import redaction_pattern
from distcommit.spark.task_launch import PartitionCall, TaskError

SECRET = "S3cr3t+of-an-executor"


def refuse(settings: Any, partition: int) -> Any:
    try:
        raise ConnectionError(f"the server refused {settings}")
    except ConnectionError as error:
        raise ValueError(f"login of {partition} with {settings} was refused") from error


@pytest.fixture(autouse=True)
def _settings_are_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_launch, "require_visible_store", lambda settings: None)


def test_task_error_that_quotes_a_secret_reaches_spark_without_it() -> None:
    redact([SECRET])
    with pytest.raises(TaskError) as failed:
        list(PartitionCall(refuse, SECRET).in_task(3, ()))  # type: ignore[arg-type]
    assert failed.value.__suppress_context__
    assert SECRET not in str(failed.value)
    assert "ConnectionError: the server refused ***" in str(failed.value)
    assert failure_text(str(failed.value)) == "ValueError: login of 3 with *** was refused"


def test_task_error_without_a_secret_is_unchanged() -> None:
    with pytest.raises(ValueError, match="login of 3 with plain was refused"):
        list(PartitionCall(refuse, "plain").in_task(3, ()))  # type: ignore[arg-type]


def test_spark_hides_the_settings_whose_values_errors_hide() -> None:
    redact([SECRET])
    conf = {"spark.x.account": SECRET, "spark.x.path": "/data", "spark.x.file": "${file:/run/one}"}
    hidden = [key for key in (*conf, "spark.y.secret.key") if re.search(redaction_pattern(conf), key)]
    assert hidden == ["spark.x.account", "spark.x.file", "spark.y.secret.key"]
