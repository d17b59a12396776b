"""Failed Spark starts: those that a retry may fix, and those that need a correction first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkRuntimeError

from distcommit.core.errors import ConfigurationError, ProcessLostError, TransientError
from distcommit.spark.session import default_settings, not_started


class JavaError(Py4JJavaError):  # type: ignore[misc]
    """A JVM exception with the text that py4j would return."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def __str__(self) -> str:
        if self.text is None:
            raise Py4JNetworkError("Answer from Java side is empty")
        return self.text


def caused_by(cause: str) -> JavaError:
    return JavaError(f"An error occurred while calling X.\n: org.apache.spark.SparkException: no\nCaused by: {cause}\n")


@pytest.mark.parametrize(
    ("error", "kind", "exit_code"),
    [
        (PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={}), ProcessLostError, 4),
        (Py4JNetworkError("Answer from Java side is empty"), ProcessLostError, 4),
        (
            Py4JError("An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext"),
            ProcessLostError,
            4,
        ),
        (ConnectionRefusedError(111, "Connection refused"), ProcessLostError, 4),
        (EOFError(), ProcessLostError, 4),
        (JavaError(None), ProcessLostError, 4),
        (caused_by("java.net.ConnectException: Connection refused"), TransientError, 4),
        (caused_by("java.net.BindException: Address already in use"), TransientError, 4),
        (caused_by("java.io.IOException: No space left on device"), TransientError, 4),
        (
            caused_by("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."),
            TransientError,
            4,
        ),
        (caused_by("java.net.UnknownHostException: no-such-master"), ConfigurationError, 2),
        (caused_by("java.io.FileNotFoundException: /no/such/file"), ConfigurationError, 2),
        (caused_by("org.apache.spark.SparkException: Could not parse Master URL: 'x'"), ConfigurationError, 2),
        (TypeError("'JavaPackage' object is not callable"), ConfigurationError, 2),
    ],
    ids=lambda value: None if isinstance(value, int) else getattr(value, "__name__", type(value).__name__),
)
def test_exit_code_tells_whether_a_start_may_be_retried(
    error: Exception, kind: type[Exception], exit_code: int
) -> None:
    start_error = not_started(error, "local[2]")
    assert type(start_error) is kind
    assert (start_error.id == "SPARK_SETTINGS_INVALID") is (kind is ConfigurationError)
    assert (start_error.exit_code, start_error.ids["master"]) == (exit_code, "local[2]")


_PROGRAM = """
from distcommit.core.errors import DistcommitError
from distcommit.spark.session import open_session
from distcommit.spark.session_settings import SparkSettings
try:
    open_session(SparkSettings(master="local[1]"), "test")
except DistcommitError as error:
    print(type(error).__name__, error.exit_code)
"""


@pytest.mark.thorough
def test_jvm_killed_while_spark_starts_is_not_a_wrong_setting(tmp_path: Path) -> None:
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "17.0.1"\' >&2 && exit 0\nkill -9 $$\n')
    java.chmod(0o755)
    environment: dict[str, Any] = {**os.environ, "JAVA_HOME": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == ["ProcessLostError", "4"]


@pytest.mark.parametrize("given", ["spark.excludeOnFailure.enabled", "spark.task.maxFailures"])
def test_failed_tasks_are_repeated_elsewhere_unless_the_user_decides_about_it(given: str) -> None:
    name = "spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor"
    assert default_settings("spark://host:7077", ["spark.executor.memory"])[name] == "2"
    wait = "spark.scheduler.excludeOnFailure.unschedulableTaskSetTimeout"
    assert default_settings("spark://host:7077", [])[wait] == "15s"
    assert wait not in default_settings("spark://host:7077", [wait])
    assert not [key for key in default_settings("spark://host:7077", [given]) if "exclude" in key]
    assert not [key for key in default_settings("local[2,4]", []) if "exclude" in key]
