"""A command under its former name ends with an error that names the new command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from distcommit.cli.main import app, commands_by_name

NEW_NAMES = {
    "gc": "recover",
    "explain": "check",
    "serve": "schedule serve",
    "datasets": "dataset list",
    "steps": "dataset steps",
    "files": "dataset files",
    "release": "dataset release",
    "quarantine": "dataset quarantine",
    "set-watermark": "dataset set-watermark",
    "reprocess": "dataset reprocess",
    "retain": "dataset expire",
    "verify-store": "store verify",
    "repair": "store repair",
    "rebuild": "store rebuild",
    "rebucket": "store rebucket",
    "log": "store log",
    "pause": "schedule pause",
    "resume": "schedule resume",
    "trigger": "schedule trigger",
    "import-watermarks": "migrate import-watermarks",
    "compare": "migrate compare",
    "convert-gobblin": "migrate convert-gobblin",
}


@pytest.mark.parametrize("old", NEW_NAMES)
def test_former_command_name_is_refused_with_the_new_name_and_no_file_is_touched(old: str, tmp_path: Path) -> None:
    job_file = tmp_path / "job.yaml"
    job_file.write_text("not read")
    result = CliRunner().invoke(app, [old, str(job_file), "--dry-run"])
    assert result.exit_code == 2
    assert result.stdout == ""
    new = NEW_NAMES[old]
    text = f"COMMAND_RENAMED: the command `distcommit {old}` was renamed"
    assert result.stderr == f"error: {text}. To do: use `distcommit {new}`\n"
    assert new in commands_by_name()
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]


@pytest.mark.parametrize(
    ("words", "command", "old", "new"),
    [
        (["schedule", "serve", "jobs", "--look", "1"], "schedule", "--look", "--poll"),
        (["schedule", "serve", "jobs", "--look=1"], "schedule", "--look", "--poll"),
        (["dataset", "retain", "job.yaml", "--when-unread"], "dataset", "--when-unread", "--keep-snapshots"),
    ],
)
def test_former_option_name_is_refused_with_the_new_name(words: list[str], command: str, old: str, new: str) -> None:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    text = f"COMMAND_RENAMED: the option {old} of `distcommit {command}` was renamed"
    assert result.stderr == f"error: {text}. To do: use {new}\n"


def test_former_command_name_is_refused_as_json_error() -> None:
    result = CliRunner().invoke(app, ["gc", "job.yaml", "--json"])
    error = json.loads(result.stdout)["error"]
    assert (result.exit_code, error["exit_code"], error["action"]) == (2, 2, "use `distcommit recover`")
