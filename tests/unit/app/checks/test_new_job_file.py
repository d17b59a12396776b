"""`distcommit init` writes a commented job file for each source and sink, which passes the check without connecting."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from distcommit.app.checks.job_check import check_file
from distcommit.app.checks.new_job_file import write_job_file
from distcommit.app.job_file.built_in_types import types_of
from distcommit.cli.main import app
from distcommit.core.errors import ConfigurationError

SOURCES = [name for name in types_of("source") if name != "python"]
SINKS = [name for name in types_of("sink") if name != "python"]


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("source", SOURCES)
def test_job_file_of_each_source_and_sink_passes_the_check(
    tmp_path: Path, source: str, sink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD", "any")
    path = tmp_path / "my job.yaml"
    assert write_job_file(path, source, sink).problems == []
    text = path.read_text()
    assert text.startswith(f"# A job: {source} to {sink}.")
    assert "job: my-job " in text
    assert max(map(len, text.splitlines())) <= 120 + len(str(tmp_path))
    result = check_file(path, connect=False)
    assert result.passed
    assert result.flow is not None


@pytest.mark.parametrize(("source", "sink"), [("python", "files"), ("files", "python")])
def test_job_file_of_a_custom_class_reports_only_the_class(tmp_path: Path, source: str, sink: str) -> None:
    (problem,) = write_job_file(tmp_path / "job.yaml", source, sink).problems
    assert "No module named 'my_package'" in problem.text


def test_existing_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("mine")
    with pytest.raises(ConfigurationError, match="exists and is not replaced"):
        write_job_file(path, "kafka", "files")
    assert path.read_text() == "mine"


def test_unknown_type_names_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"the type of the source is unknown.*found kafak.*use --source kafka"):
        write_job_file(tmp_path / "job.yaml", "kafak", "files")
    assert not (tmp_path / "job.yaml").exists()


def test_command_writes_the_file_and_names_the_next_command(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    done = CliRunner().invoke(app, ["init", str(path), "--source", "kafka", "--sink", "iceberg"])
    assert done.exit_code == 0, done.output
    assert f"written: {path}" in done.stdout.replace("\n", "")
    assert f"distcommit check {path}" in done.stderr


def test_unset_password_of_a_database_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PASSWORD", raising=False)
    (problem,) = write_job_file(tmp_path / "job.yaml", "sql", "files").problems
    assert "PASSWORD" in problem.text


def test_commented_lines_of_converters_give_a_valid_job_file(tmp_path: Path) -> None:
    for source, lines in (
        ("files", ["# converters:", "#   - type: parse", '#     decimal: "."', "#     dates: []"]),
        ("kafka", ["    # fields: ", "  # - {type: cast, "]),
    ):
        path = tmp_path / f"{source}.yaml"
        write_job_file(path, source, "files")
        text = path.read_text()
        for line in lines:
            assert line in text
            text = text.replace(line, line.replace("# ", "", 1))
        path.write_text(text)
        result = check_file(path, connect=False)
        assert (result.problems, result.flow is not None) == ([], True)


def test_job_file_of_a_database_reads_up_to_the_newest_id(tmp_path: Path) -> None:
    write_job_file(tmp_path / "job.yaml", "sql", "files")
    assert "  lookback: 0 " in (tmp_path / "job.yaml").read_text()
