"""Settings of spark-submit and spark-defaults.conf, which the product's defaults must not replace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from distcommit.spark import submitted_settings
from distcommit.spark.session_settings import SparkSettings
from distcommit.spark.submitted_settings import master_of

_ASKED = ("spark.master", "spark.ui.enabled", "spark.log.level", "spark.driver.memory", "spark.task.maxFailures")
_PROGRAM = f"""
import json, logging, sys
logging.basicConfig(stream=sys.stderr, format="%(message)s")
from distcommit.spark.session import open_session, stop_session
from distcommit.spark.session_settings import SparkSettings
spark = open_session(SparkSettings(**json.loads(sys.argv[1])), "test")
print(json.dumps({{name: spark.sparkContext.getConf().get(name) for name in {_ASKED!r}}}))
stop_session(spark)
"""


def session_of(
    tmp_path: Path, settings: Mapping[str, object], *command: str, defaults: str = ""
) -> tuple[dict[str, str], str]:
    """Return the settings of a session that a new process opens, and what it logs."""
    (tmp_path / "spark-defaults.conf").write_text(defaults)
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    env = {**os.environ, "SPARK_CONF_DIR": str(tmp_path), "PYTHONPATH": os.getcwd(), "PYSPARK_PYTHON": sys.executable}
    words = [*(command or (sys.executable,)), str(program), json.dumps(settings)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=True)
    shown = next(line for line in done.stdout.splitlines() if line.startswith("{"))
    return json.loads(shown), done.stdout + done.stderr


def submit(*options: str) -> tuple[str, ...]:
    return (str(Path(sys.executable).parent / "spark-submit"), *options)


def test_spark_defaults_win_over_the_products_defaults(tmp_path: Path) -> None:
    defaults = "# ours\nspark.master=local[3]\nspark.ui.enabled true\n\nspark.driver.memory: 700m\n"
    conf, log = session_of(tmp_path, {}, defaults=defaults)
    assert conf["spark.master"] == "local[3]"
    assert (conf["spark.ui.enabled"], conf["spark.driver.memory"]) == ("true", "700m")
    assert conf["spark.log.level"] == "ERROR"
    assert "replaces" not in log


def test_job_file_wins_over_spark_defaults_and_the_log_names_what_it_replaces(tmp_path: Path) -> None:
    settings = {"master": "local[1]", "conf": {"spark.ui.enabled": "false", "spark.task.maxFailures": "3"}}
    conf, log = session_of(tmp_path, settings, defaults="spark.master local[3]\nspark.ui.enabled true\n")
    assert (conf["spark.master"], conf["spark.ui.enabled"]) == ("local[1]", "false")
    assert "spark.conf of the job file replaces settings of spark-defaults.conf: spark.ui.enabled\n" in log


def test_spark_submit_keeps_its_master_and_settings(tmp_path: Path) -> None:
    command = submit("--master", "local[2]", "--driver-memory", "800m", "--conf", "spark.ui.enabled=true")
    conf, log = session_of(tmp_path, {"master": "local[1]"}, *command)
    assert (conf["spark.master"], conf["spark.ui.enabled"]) == ("local[2]", "true")
    assert conf["spark.driver.memory"] == "800m"
    assert "spark.master local[1] of the job file is not used: spark-submit has local[2]" in log


@pytest.mark.parametrize(
    ("settings", "given", "submitted", "master"),
    [
        ({}, {}, False, "local[2,4]"),
        ({}, {"spark.master": "yarn"}, False, "yarn"),
        ({"master": "local[1]"}, {"spark.master": "yarn"}, False, "local[1]"),
        ({"master": "local[1]"}, {"spark.master": "yarn"}, True, "yarn"),
        ({"master": "local[1]"}, {}, True, "local[1]"),
    ],
)
def test_master_is_that_of_spark_submit_then_the_job_file_then_the_defaults(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], given: dict[str, str], submitted: bool, master: str
) -> None:
    monkeypatch.setattr(submitted_settings, "is_submitted", lambda: submitted)
    assert master_of(SparkSettings(**settings), given) == master  # type: ignore[arg-type]
