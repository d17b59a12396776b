"""A converter that is changed after the first run, so that readers could not join its columns with published files."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

import distcommit
from distcommit.cli.main import app

JSON = {"type": "json"}
CAST = {"type": "cast", "columns": {"time": "timestamp"}}


def typed(command: str, exit_code: int = 0) -> str:
    """Run a command in this process; return its output without line breaks."""
    done = CliRunner(env={"COLUMNS": "400"}).invoke(app, shlex.split(command)[1:])
    output = " ".join((done.stdout + done.stderr).split())
    assert done.exit_code == exit_code, output
    return output


def written_job(folder: Path, *converters: dict[str, Any]) -> Path:
    path = folder / "job.yaml"
    job = {
        "job": "typed",
        "source": {
            "type": "files",
            "paths": [f"{folder}/in/{{dataset}}/*.jsonl"],
            "format": "jsonl",
            "min_file_age_s": 0,
        },
        "converters": list(converters),
        "on_rejected": "divert",
        "paths": {name: str(folder / name) for name in ("store", "staging", "output")},
        "commit": {"buckets": 2, "durability": "none"},
        "spark": {"master": "local[2]"},
    }
    path.write_text(yaml.safe_dump(job))
    return path


def deliver(folder: Path, dataset: str, number: int, *records: str) -> None:
    (folder / "in" / dataset).mkdir(parents=True, exist_ok=True)
    (folder / "in" / dataset / f"{number}.jsonl").write_text("".join(f"{record}\n" for record in records))


def test_changed_type_stops_its_dataset_until_the_converter_is_restored(tmp_path: Path) -> None:
    path = written_job(tmp_path, JSON)
    deliver(tmp_path, "clicks", 1, '{"id": 1, "time": "2026-01-01T00:00:00Z"}')
    deliver(tmp_path, "orders", 1, '{"id": 1}')
    typed(f"distcommit run {path}")

    written_job(tmp_path, JSON, {**CAST, "only_datasets": ["clicks"]})
    deliver(tmp_path, "clicks", 2, '{"id": 2, "time": "2026-01-02T00:00:00Z"}')
    deliver(tmp_path, "orders", 2, '{"id": 2, "note": "a new column"}')
    output = typed(f"distcommit run {path}", exit_code=1)
    assert "COLUMN_TYPE_CHANGED" in output
    assert "time is timestamp[us, tz=UTC] here, and string before" in output
    assert "--set paths.store=NEW" in output
    assert "COLUMN_TYPE_CHANGED" in typed(f"distcommit status {path}")
    assert distcommit.read(str(path)).to_arrow("clicks").num_rows == 1
    assert distcommit.read(str(path)).to_arrow("orders").num_rows == 2

    written_job(tmp_path, JSON)
    typed(f"distcommit run {path}")
    assert distcommit.read(str(path)).to_arrow("clicks")["id"].to_pylist() == [1, 2]
    typed(f"distcommit audit {path} --deep")


def test_correction_with_another_type_reprocesses_nothing(tmp_path: Path) -> None:
    path = written_job(tmp_path, JSON)
    deliver(tmp_path, "clicks", 1, '{"id": 17}', '{"id": "A-18"}')
    typed(f"distcommit run {path}")
    assert distcommit.read(str(path)).to_arrow("clicks")["id"].to_pylist() == [17]

    written_job(tmp_path, {"type": "json", "fields": {"id": "string"}})
    output = typed(f"distcommit dataset reprocess {path} --all", exit_code=1)
    assert "COLUMN_TYPE_CHANGED" in output
    assert "id is string here, and int64 before" in output
    assert distcommit.read(str(path)).to_arrow("clicks")["id"].to_pylist() == [17]

    written_job(tmp_path, JSON)
    deliver(tmp_path, "clicks", 2, '{"id": 19}')
    typed(f"distcommit run {path}")
    assert sorted(distcommit.read(str(path)).to_arrow("clicks")["id"].to_pylist()) == [17, 19]
    typed(f"distcommit audit {path} --deep")
