"""`commit.delivery` in a job file."""

from __future__ import annotations

from pathlib import Path

import pytest

from distcommit.app.job_file.job_config import JobConfig
from distcommit.app.job_file.load_job_file import load_config
from distcommit.core.errors import ConfigurationError

JOB = """\
job: delivery
source: {type: python, class: "tests.integration.parts.named_source:NamedSource", options: {names: [a]}}
paths: {store: store, staging: staging, output: output}
"""
SQLITE = 'sink: {type: python, class: "distcommit.testing.fakes.sqlite_sink:SqliteSink", options: {path: rows.db}}\n'
PLAIN = 'sink: {type: python, class: "tests.integration.parts.plain_sink:PlainSink", options: {folder: /tmp}}\n'


def config(folder: Path, more: str = "", *overrides: str) -> JobConfig:
    (folder / "job.yaml").write_text(JOB + more)
    return load_config(folder / "job.yaml", overrides)


def test_delivery_is_exactly_once_by_default(tmp_path: Path) -> None:
    assert config(tmp_path).commit.delivery == "exactly_once"
    assert config(tmp_path, "commit: {delivery: at_least_once}\n").commit.delivery == "at_least_once"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("commit: {delivery: at_least_once, scope: job}\n", "commit.delivery must be exactly_once with scope: job"),
        (
            "commit: {delivery: at_least_once}\n" + SQLITE,
            "commit.delivery must be exactly_once, because sink recognizes a commit by one row",
        ),
        (PLAIN, "commit.delivery must be at_least_once, because sink has no committer"),
        (
            "commit: {delivery: at_most_once}\n",
            "commit.delivery must be one of exactly_once, at_least_once; found 'at_most_once'",
        ),
    ],
)
def test_incompatible_delivery_setting_is_refused_with_the_reason(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match="the job file is invalid") as refused:
        config(tmp_path, more)
    assert message in str(refused.value)


def test_sink_with_a_writer_alone_is_accepted_with_at_least_once(tmp_path: Path) -> None:
    assert config(tmp_path, PLAIN + "commit: {delivery: at_least_once}\n").sink.name == "plain"
