"""Preview of a job through the command line on real Spark: the shown records, and that no trace stays in the job's
folders."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import msgspec
import pytest
import yaml
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from distcommit import Job
from distcommit.app.demo.killed_run import RunProcess
from distcommit.cli.main import app
from distcommit.spark.session import is_alive
from tests.jobs.victims import strike

NAMES = ["first", "second"]
CONSOLE = ["--set", "sink.rows=2", "--set", "sink.type=console"]


def write_job(folder: Path, **more: object) -> Path:
    """Write a job whose sink has another type, with settings that the console sink does not have."""
    source = {
        "type": "python",
        "class": "tests.integration.parts.named_source:NamedSource",
        "options": {"names": NAMES},
    }
    paths = {name: name for name in ("store", "staging", "output")}
    job = {"job": "console", "source": source, "paths": paths, "spark": {"master": "local[1,4]"}, **more}
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump({"sink": {"format": "avro", "compression": "none"}, **job} if not more else job))
    return path


def command(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.mark.slow
def test_preview_shows_records_and_leaves_the_job_unchanged(tmp_path: Path, spark: SparkSession) -> None:
    path = write_job(tmp_path)
    done = command("run", path, *CONSOLE)
    assert done.exit_code == 0, done.output
    assert "first: 2 of 3 records" in done.stdout
    assert "second/0/1" in done.stdout
    assert "second/0/2" not in done.stdout, "two rows are asked for"
    assert "preview: 6 records; nothing was committed" in done.stdout
    assert [file.name for file in tmp_path.iterdir()] == ["job.yaml"]

    assert command("run", path).exit_code == 0
    before = Job.from_file(path).status()
    done = command("run", path, *CONSOLE, "--json")
    result = msgspec.json.decode(done.stdout.splitlines()[-1])
    assert [(table["dataset"], table["records"], len(table["rows"])) for table in result["tables"]] == [
        ("first", 3, 2),
        ("second", 3, 2),
    ], "including committed records of the job"
    assert Job.from_file(path).status() == before
    assert command("audit", path).exit_code == 0
    assert is_alive(spark), "who opens a session in this process stops it"


@pytest.mark.slow
def test_killed_preview_leaves_only_its_own_folder(tmp_path: Path) -> None:
    path = write_job(tmp_path)
    with RunProcess(["run", str(path), *CONSOLE], tmp_path / "first.out", tmp_path / "first.err") as run:
        deadline_s = time.monotonic() + 120
        while not any(tmp_path.glob("staging.console-*/store")) and time.monotonic() < deadline_s:
            assert run.wait(0.01) is None, run.stderr.read_text()[-3000:]
        assert strike(run, "all", signal.SIGKILL, random.Random(1))
    assert any(tmp_path.glob("staging.console-*")), "it was not over"
    assert not any((tmp_path / name).exists() for name in ("store", "staging", "output"))
    assert command("run", path).exit_code == 0
    assert command("audit", path, "--deep").exit_code == 0
    assert {row.dataset: row.positions for row in Job.from_file(path).status().datasets} == {
        name: {"0": 3} for name in NAMES
    }


@pytest.mark.slow
def test_console_section_previews_all_branches_of_a_fork(tmp_path: Path) -> None:
    path = write_job(tmp_path, fork={"type": "all", "branches": {"hourly": {"sink": {"format": "orc"}}, "raw": {}}})
    done = command("run", path, *CONSOLE)
    assert done.exit_code == 0, done.output
    assert "first, branch hourly: 2 of 3 records" in done.stdout
    assert "second, branch raw: 2 of 3 records" in done.stdout


def test_console_sink_is_refused_by_other_commands(tmp_path: Path) -> None:
    path = write_job(tmp_path)
    for words in (["recover"], ["dataset", "reprocess"]):
        done = command(*words, path, *(["first"] if "reprocess" in words else []), *CONSOLE)
        assert done.exit_code == 2, done.output
        assert not (tmp_path / "store").exists()
