"""Rejected records and skipped files as the commands show them, from the run to their reprocessing."""

from __future__ import annotations

import shlex
from pathlib import Path

import yaml
from typer.testing import CliRunner

from distcommit.cli.main import app


def typed(command: str, exit_code: int = 0) -> str:
    """Run a command in this process; return its output without line breaks."""
    done = CliRunner(env={"COLUMNS": "400"}).invoke(app, shlex.split(command)[1:])
    output = " ".join((done.stdout + done.stderr).split())
    assert done.exit_code == exit_code, output
    return output


def test_commands_show_rejected_records_and_skipped_files_until_they_are_reprocessed(tmp_path: Path) -> None:
    for name, text in (
        ("clicks/1.jsonl", '{"n": 1}\nnope\n'),
        ("orders/1.jsonl", '{"n": "x"}\n'),
        ("orders/2.gz", "?"),
    ):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(text)
    path = tmp_path / "job.yaml"
    job = {
        "job": "rejecting",
        "source": {
            "type": "files",
            "paths": [f"{tmp_path}/in/{{dataset}}/*"],
            "format": "jsonl",
            "min_file_age_s": 0,
            "on_unreadable_file": "skip",
        },
        "converters": [{"type": "json", "fields": {"n": "int64"}}],
        "on_rejected": "divert",
        "paths": {name: str(tmp_path / name) for name in ("store", "staging", "output")},
        "commit": {"buckets": 2, "durability": "none"},
        "spark": {"master": "local[2]"},
    }
    path.write_text(yaml.safe_dump(job))
    output = typed(f"distcommit run {path}")
    rejected = "rejected by the run of epoch {}: {}, not published, but in error files below"
    both = rejected.format(2, "2 records of clicks (1), orders (1)") + f" {tmp_path}/output/_rejected"
    assert "1 published, 2 rejected to error files" in output
    assert both in output
    assert "1 (orders): 1 unreadable file skipped, not published: " in output
    assert f"unreadable files are listed by distcommit runs {path} 2" in output
    assert "1 unreadable file skipped" in typed(f"distcommit runs {path} 2")
    status = typed(f"distcommit status {path}")
    assert both in status
    assert "orders: 1 unreadable file skipped, not published" in status
    assert both in typed(f"distcommit dataset list {path}")
    assert "rejected 1" in typed(f"distcommit dataset list {path} --sort rejected")

    path.write_text(yaml.safe_dump({**job, "converters": [{"type": "json", "fields": {"n": "string"}}]}))
    output = typed(f"distcommit dataset reprocess {path} --all")
    assert "reprocessed: 2 records of error files were read again" in output
    assert "1 published, 1 rejected to error files" in output
    assert "The published records are visible now" in output
    assert f"process them again: distcommit dataset reprocess {path} --all" in output
    assert "1 record of clicks (1)" in typed(f"distcommit status {path}")

    path.write_text(yaml.safe_dump({**job, "converters": []}))
    assert "1 published" in typed(f"distcommit dataset reprocess {path} --all")
    assert "rejected by the run" not in typed(f"distcommit status {path}")
    assert "nothing to reprocess" in typed(f"distcommit dataset reprocess {path} --all")
