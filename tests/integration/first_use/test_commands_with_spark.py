"""Commands on the pages that need Spark, and the shell around them, run as printed."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from distcommit.cli.main import app
from tests.integration.first_use.test_quickstart import ROOT
from tests.integration.first_use.test_snippets_on_pages import Place
from tests.unit.test_commands_on_pages import ON_SPARK, split
from tests.unit.test_pages import DOCS, text_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SHELL = ("operate/exit-codes.md", "operate/backup.md", "operate/security.md", "connectors/sink-sqlite.md")


def test_commands_on_pages_that_need_spark_run_as_printed(tmp_path: Path, spark: SparkSession) -> None:
    assert len(ON_SPARK) > 15
    for number, text in enumerate(ON_SPARK):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        place = Place(folder, spark)
        place.arrive()
        name, *words = split(text)
        words = [str(place.file) if word.endswith(".yaml") else word for word in words]
        result = CliRunner().invoke(app, [*name.split(), *words])
        assert result.exit_code == 0, f"{text}: {result.output}"


@pytest.mark.parametrize("page", SHELL)
def test_first_shell_block_of_a_page_runs_as_printed(tmp_path: Path, spark: SparkSession, page: str) -> None:
    table = {"type": "sqlite", "path": f"{tmp_path}/shop.db", "table": "{dataset}", "create": True}
    sections = {"sink": table} if page.endswith("sqlite.md") else {}
    Place(tmp_path, spark, schedule={"interval_s": 30}, **sections)
    (tmp_path / "backup").mkdir()
    block = re.findall(r"^```bash\n(.*?)^```", text_of(DOCS / page), re.MULTILINE | re.DOTALL)[0]
    for shown, here in {"/data/": f"{tmp_path}/", "/backup/": f"{tmp_path}/backup/"}.items():
        block = block.replace(shown, here)
    programs = {"PATH": f"{ROOT}/.venv/bin:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-ec", block], cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ | programs
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if "sqlite3" in block:
        assert done.stdout == "3\n"
    if "case" in block:
        assert done.stdout.endswith("done\n")
