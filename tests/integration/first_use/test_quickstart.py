"""The quickstart page: every command and snippet runs as printed, with the results that the page promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import distcommit

ROOT = Path(distcommit.__file__).parents[1]
PAGE = ROOT / "conf" / "docs" / "get-started" / "quickstart.md"
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


NOT_IN_BASE = ("import duckdb", "orders-iceberg.yaml", "pyiceberg")
"""Words of the blocks that need more than the base installation, as the page says."""
SITE = """\
from importlib.machinery import PathFinder

find_spec = PathFinder.find_spec
PathFinder.find_spec = lambda name, *more: None if name.partition(".")[0] in {names} else find_spec(name, *more)
"""


def program_of(page: str, base: str = "$everything") -> str:
    """Return the blocks of a page as one shell program that ends at the first error.

    Args:
        base: `PYTHONPATH` of a base installation, for all blocks that should not need more.
    """
    parts = ["set -e", "everything=$PYTHONPATH"]
    for number, (language, text) in enumerate(BLOCK.findall(page)):
        needs_more = any(words in text for words in NOT_IN_BASE)
        parts += [f"echo '### {number}'", f"export PYTHONPATH={'$everything' if needs_more else base}"]
        parts.append(text if language == "bash" else f"python - <<'PYTHON'\n{text}PYTHON")
    return "\n".join(parts)


def extra_modules() -> set[str]:
    """Return the installed modules that the base installation of distcommit does not have."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    base = with_requirements(project["dependencies"])
    owners = packages_distributions().items()
    return {module for module, names in owners if base.isdisjoint(map(canonicalize_name, names))} - {"distcommit"}


def with_requirements(requirements: Iterable[str]) -> set[str]:
    """Return the names of distributions and of all that they require."""
    names: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in names or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        names.add(name)
        try:
            waiting += [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:  # not needed on this platform
            names.discard(name)
    return names


@pytest.mark.timeout(600)
def test_quickstart_runs_as_printed(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    hidden = extra_modules()
    assert {"duckdb", "pyiceberg", "deltalake", "psycopg", "sqlalchemy"} <= hidden
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "sitecustomize.py").write_text(SITE.format(names=sorted(hidden)))
    program = program_of(PAGE.read_text(encoding="utf-8"), f"{tmp_path / 'base'}:{ROOT}")
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
