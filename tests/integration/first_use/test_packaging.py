"""The wheel and the sdist install and run outside of the checkout, and type checkers see the types.

The environments of these tests have no package but this one, and a path file that makes the requirements visible.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import distcommit

ROOT = Path(distcommit.__file__).parents[1]
PROJECT = ("distcommit", "pyproject.toml", "README.md", "LICENSE")
ORDERS = "id,name\n1,Ann\n2,Bob\n"
USER_CODE = """\
from distcommit import Job

result = Job.from_file("job.yaml").run()
reveal_type(result.totals.records_published)
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the package's files, so that builds write nothing into the checkout."""
    folder = tmp_path_factory.mktemp("project")
    for name in PROJECT:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def packages(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(project)], folder)
    assert sorted(path.suffix for path in folder.iterdir()) == [".gz", ".whl"]
    return folder


def run(command: list[str], folder: Path) -> str:
    """Return the output of a command that knows nothing of the checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"COLUMNS": "80"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment_with(folder: Path, *installed: str) -> Path:
    """Return the programs of a new environment in which this is installed, without its requirements."""
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)], folder.parent)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    (site_packages / "requirements.pth").write_text(sysconfig.get_path("purelib"))
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "-q", "--no-deps"]
    run([*pip, "--no-index", "--no-build-isolation", *installed], folder.parent)
    return folder / "bin"


def test_wheel_runs_a_job_outside_of_the_checkout(packages: Path, tmp_path: Path) -> None:
    programs = environment_with(tmp_path / "env", *map(str, packages.glob("*.whl")))
    where = run([str(programs / "python"), "-c", "import distcommit; print(distcommit.__file__)"], tmp_path)
    assert where.startswith(str(tmp_path / "env"))
    (tmp_path / "in" / "orders").mkdir(parents=True)
    (tmp_path / "in" / "orders" / "1.csv").write_text(ORDERS)
    command = str(programs / "distcommit")
    run([command, "init", "job.yaml", "--source", "files", "--sink", "sqlite"], tmp_path)
    output = run([command, "run", "job.yaml", "--set", "source.min_file_age_s=0"], tmp_path)
    assert "committed: all new records" in output
    assert "exact" in run([command, "audit", "job.yaml"], tmp_path)


def test_sdist_installs_with_templates_pages_and_types(packages: Path, tmp_path: Path) -> None:
    programs = environment_with(tmp_path / "env", *map(str, packages.glob("*.tar.gz")))
    assert run([str(programs / "distcommit"), "--version"], tmp_path).startswith("distcommit ")
    (installed,) = (tmp_path / "env").glob("lib/python*/site-packages/distcommit")
    data = [path.relative_to(ROOT / "distcommit") for path in (ROOT / "distcommit").rglob("*") if is_data(path)]
    assert len(data) > 16
    assert [path for path in data if not (installed / path).is_file()] == []


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".whl", ".tar.gz"])
def test_demo_runs_outside_of_the_checkout(packages: Path, tmp_path: Path, suffix: str) -> None:
    programs = environment_with(tmp_path / "env", *map(str, packages.glob(f"*{suffix}")))
    output = run([str(programs / "distcommit"), "demo"], tmp_path)
    assert "exact: 0 duplicates, 0 gaps" in output
    assert [path.name for path in tmp_path.iterdir()] == ["env"]


def is_data(path: Path) -> bool:
    return path.is_file() and path.suffix in (".yaml", ".html", ".css", ".js", ".typed")


def test_type_checker_sees_the_types_of_the_documented_installation(project: Path, tmp_path: Path) -> None:
    programs = environment_with(tmp_path / "env", "-e", str(project))
    (site_packages,) = (tmp_path / "env").glob("lib/python*/site-packages")
    paths = [line for path in site_packages.glob("*.pth") for line in path.read_text().splitlines()]
    assert str(project) in paths, "a path, which mypy and pyright follow; they run no import hook"
    (tmp_path / "user.py").write_text(USER_CODE)
    checker = [sys.executable, "-m", "mypy", "--python-executable", str(programs / "python"), "user.py"]
    output = run([*checker, "--cache-dir", str(tmp_path / "cache"), "--ignore-missing-imports"], tmp_path)
    assert re.search(r'Revealed type is "(builtins\.)?int"', output), output
