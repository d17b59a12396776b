"""A first run that publishes nothing, changed settings, and a run that publishes exactly, by the command line."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import yaml
from typer.testing import CliRunner

from distcommit import Job
from distcommit.app.demo.broker import MockBroker
from distcommit.cli.main import app
from tests.jobs.kafka_job import KafkaJob, kafka_job


def typed(command: str) -> tuple[int, str]:
    """Run a command in this process; return its exit code and its output without line breaks."""
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    return done.exit_code, " ".join((done.stdout + done.stderr).split())


def test_settings_may_change_after_a_run_whose_pattern_matched_no_topic(tmp_path: Path) -> None:
    with kafka_job(tmp_path, {"a": 2}) as job, MockBroker.start({"a": 2}) as another:
        job.write(source={"topics": [], "topic_patterns": ["ordres.*"]})
        code, output = typed(f"distcommit run {job.path}")
        assert (code, "datasets none had data to read" in output) == (0, True), output
        other = KafkaJob(tmp_path, another, job.topics)
        other.write(source={"dataset": "partition"})
        other.produce(5)
        code, output = typed(f"distcommit check {job.path}")
        assert code == 0, output
        code, output = typed(f"distcommit dataset set-watermark {job.path} a@0 null --new")
        assert (code, "run the job, whose run records the changed settings" in output) == (2, True), output
        code, output = typed(f"distcommit run {job.path}")
        assert code == 0, output
        other.assert_exact()
        code, output = typed(f"distcommit run {job.path} --set source.dataset=topic")
        assert (code, "SETTING_FIXED" in output, "with a watermark" in output) == (2, True, True), output


def test_source_and_sink_may_change_after_a_run_that_rejected_everything(tmp_path: Path) -> None:
    """The sink of type files gives way to a table, and the input folder was another one."""
    path = tmp_path / "job.yaml"
    for folder, text in (("draft", "not JSON\n"), ("orders", "".join(f'{{"n": {n}}}\n' for n in range(20)))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "1.jsonl").write_text(text)
    job = {
        "job": "first",
        "source": {
            "type": "files",
            "paths": [f"{tmp_path}/draft/*.jsonl"],
            "dataset": "d",
            "format": "jsonl",
            "min_file_age_s": 0,
        },
        "converters": [{"type": "json", "fields": {"n": "int64"}}],
        "on_rejected": "fail",
        "paths": {name: name for name in ("store", "staging", "output")},
        "spark": {"master": "local[2]"},
    }
    path.write_text(yaml.safe_dump(job))
    code, output = typed(f"distcommit run {path}")
    assert code == 1, output
    source = {**job["source"], "paths": [f"{tmp_path}/orders/*.jsonl"]}  # type: ignore[dict-item]
    sink = {"type": "sqlite", "path": f"{tmp_path}/orders.db", "table": "orders"}
    path.write_text(yaml.safe_dump({**job, "source": source, "sink": sink}))
    code, output = typed(f"distcommit run {path}")
    assert (code, "the read failures of dataset d" in output) == (2, True), output
    (command,) = re.findall(r"`(distcommit store rebucket [^`]+)`", output)
    code, output = typed(command)
    assert code == 0, output
    code, output = typed(f"distcommit run {path}")
    assert code == 0, output
    assert Job.from_file(path).audit().exact
    path.write_text(yaml.safe_dump(job))
    code, output = typed(f"distcommit run {path}")
    assert code == 2, output
    for words in ("sink.type: sqlite", "dataset d with a watermark", "`distcommit store rebucket ", "paths.store="):
        assert words in output, (words, json.dumps(output))
