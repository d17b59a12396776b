"""The command started by spark-submit: its master and settings hold, and Spark's event log shows what each job does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.sources.test_files_source import Inbox

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_job_runs_under_spark_submit_with_its_master_and_shows_job_run_and_phase(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, spark={"master": "local[1]", "conf": {"spark.ui.enabled": False}})
    inbox.arrive(5)
    events = tmp_path / "events"
    events.mkdir()
    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri()}
    conf |= {"spark.eventLog.compress": "false", "spark.ui.enabled": "true"}
    done = subprocess.run(
        [
            *(str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2,4]"),
            *(word for name, value in conf.items() for word in ("--conf", f"{name}={value}")),
            *(str(ROOT / "conf/deploy/spark_submit.py"), "run", str(inbox.path)),
        ],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = done.stdout + done.stderr
    assert "spark.master local[1] of the job file is not used: spark-submit has local[2,4]" in shown
    assert "spark.conf of the job file replaces settings of spark-submit: spark.ui.enabled" in shown
    inbox.assert_exact()
    lines = [json.loads(line) for path in events.rglob("events_*") for line in path.read_text().splitlines()]
    jobs = [line["Properties"] for line in lines if line.get("Event") == "SparkListenerJobStart"]
    phases = [job["spark.job.description"].rpartition(", ")[2] for job in jobs]
    assert phases[:4] == ["recover", "plan", "ingest", "drain"]
    assert {job["spark.job.description"].rpartition(", ")[0] for job in jobs} == {"files: run of epoch 2"}
