"""Runs that fail print each cause once, without tracebacks and without the output of Spark's JVM."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from distcommit.cli.main import app

_TIMEOUT_S = 240


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    """Return a job over ten datasets, of which eight have a record that is not JSON."""
    for number in range(10):
        folder = tmp_path / "in" / f"ds{number}"
        folder.mkdir(parents=True)
        (folder / "a.jsonl").write_text('{"a": 1}\n' if number < 2 else f"{{{number}\n")
    path = tmp_path / "job.yaml"
    job = {
        "job": "notes",
        "source": {
            "type": "files",
            "paths": [f"{tmp_path}/in/{{dataset}}/*.jsonl"],
            "format": "jsonl",
            "min_file_age_s": 0,
        },
        "converters": [{"type": "json", "fields": {"a": "int64"}}],
        "spark": {"master": "local[2]"},
        "commit": {"buckets": 4},
        "paths": {name: str(tmp_path / name) for name in ("store", "staging", "output")},
    }
    path.write_text(yaml.safe_dump(job))
    return path


def test_datasets_that_failed_for_one_cause_share_one_line(job_file: Path, spark: SparkSession) -> None:
    done = CliRunner().invoke(app, ["run", str(job_file)])
    shown = " ".join(done.stdout.split())
    assert done.exit_code == 1, done.output
    assert "ds2, ds3, ds4 and 5 more" in shown
    assert shown.count("RECORD_REJECTED") == 1
    assert "Traceback" not in done.output
    status = CliRunner().invoke(app, ["status", str(job_file)])
    assert status.stdout.count("the same cause as ds2") == 7


def test_killed_jvm_is_one_error_and_the_next_run_publishes_each_record_once(
    job_file: Path, tmp_path: Path, spark: SparkSession
) -> None:
    command = [sys.executable, "-m", "distcommit", "run", str(job_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            assert run.stderr is not None
            lines: list[str] = []
            while not lines or "recover" not in lines[-1]:
                lines.append(run.stderr.readline())
                assert lines[-1], "".join(lines)
            jvms = [child for child in psutil.Process(run.pid).children(recursive=True) if child.name() == "java"]
            assert jvms
            for jvm in jvms:
                jvm.kill()
            stdout, stderr = run.communicate(timeout=_TIMEOUT_S)
        finally:
            run.kill()
    errors = [line for line in stderr.splitlines() if " s  " not in line]
    assert run.returncode == 4, stderr
    assert stdout == ""
    assert len(errors) == 1, stderr
    assert errors[0].startswith("error: PROCESS_LOST: the JVM of Spark died [job=")
    assert CliRunner().invoke(app, ["run", str(job_file)]).exit_code == 1
    assert sum(pq.read_table(path).num_rows for path in (tmp_path / "output").rglob("*.parquet")) == 2
