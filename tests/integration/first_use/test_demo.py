"""The demo as a user runs it: a real run is killed in mid-commit, and each record is published once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

DATASETS, RECORDS = 420, 336_776


@pytest.mark.slow
def test_demo_is_exact_after_a_kill_in_mid_commit(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    command = [sys.executable, "-m", "distcommit", "demo", "--json", "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["exact"]
    assert result["problems"] == []
    assert result["killed_mid_commit"]
    assert result["sequences_replayed"] == result["sequences_pending_at_kill"] >= 3
    assert result["files_published_at_kill"] > 0
    assert result["files_staged_at_kill"] > 0
    assert result["records_produced"] == result["records_published"] == RECORDS
    assert result["checksum_produced"] == result["checksum_published"]
    assert (result["duplicates"], result["missing"], result["audit_exact"]) == (0, 0, True)
    assert result["datasets"] == DATASETS
    assert result["files"] == len(list((folder / "output").rglob("*.parquet")))
    assert running_processes(folder) == []


def running_processes(folder: Path) -> list[str]:
    """Return the processes with the demo's job file on their command line."""
    lines = []
    for process in Path("/proc").iterdir():
        try:
            lines.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return [line for line in lines if str(folder) in line and "distcommit run" in line]
