"""The quickstart page: every command and snippet runs as printed, with the results that the page promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import distcommit

ROOT = Path(distcommit.__file__).parents[1]
PAGE = ROOT / "conf" / "docs" / "get-started" / "quickstart.md"
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def program_of(page: str) -> str:
    """Return the blocks of a page as one shell program that ends at the first error."""
    parts = ["set -e"]
    for number, (language, text) in enumerate(BLOCK.findall(page)):
        parts.append(f"echo '### {number}'")
        parts.append(text if language == "bash" else f"python - <<'PYTHON'\n{text}PYTHON")
    return "\n".join(parts)


@pytest.mark.timeout(600)
def test_quickstart_runs_as_printed(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    program = program_of(PAGE.read_text(encoding="utf-8"))
    done = subprocess.run(
        ["bash", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    output = done.stdout
    assert "a run would read 1 dataset, 191 bytes" in output
    assert output.count("committed: all new records") == 4
    assert "rejected by the run of epoch 2: 2 records of orders (2), not published" in " ".join(output.split())
    assert re.search(r"1\s+Ann \"Annie\" Lee\s+12\.50", output)
    assert re.search(r"2\s+Smith, John\s+7\.00", output)
    assert "exact" in output
    assert "22.75" in output
    assert re.search(r"/cart\s+12\.0", output)
    assert output.count("Smith, John") >= 3, "in Parquet, SQLite and Iceberg"
    assert done.stderr.count("error") == 0, done.stderr
