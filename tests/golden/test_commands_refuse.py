"""Every command rejects a store of another format version with one clear error and exit code 5, and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from distcommit.cli.main import app
from tests.golden.make import GOLDEN
from tests.golden.test_golden_refused import files_in
from tests.golden.test_golden_store import checked_out
from tests.simulation.damage import of_version

COMMANDS = [
    ["run"],
    ["recover"],
    ["status"],
    ["dataset list"],
    ["audit"],
    ["store verify"],
    ["store rebuild"],
    ["dataset release", "a", "retry"],
    ["dataset set-watermark", "a", "null"],
]


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_store_of_another_version_is_rejected_by_every_command(
    command: list[str], version: int, tmp_path: Path
) -> None:
    folder = checked_out(GOLDEN / "job", tmp_path / "job")
    marker = folder / "store" / "store.json"
    marker.write_bytes(of_version(marker.read_bytes(), version))
    job = tmp_path / "job.yaml"
    paths = {name: str(folder / name) for name in ("store", "staging", "output")}
    source = {"type": "kafka", "brokers": "127.0.0.1:1", "topics": ["a"], "request_timeout_s": 0.02}
    job.write_text(yaml.safe_dump({"job": "golden", "source": source, "paths": paths}))
    before = files_in(folder)
    result = CliRunner().invoke(app, [*command[0].split(), str(job), *command[1:]])
    assert result.exit_code == 5, result.output
    assert f"found {version}" in " ".join(result.output.split())
    assert "Traceback" not in result.output
    assert files_in(folder) == before
