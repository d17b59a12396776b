"""The recipes in conf/deploy are accepted by the programs that are installed here."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import distcommit
from distcommit.app.job_file.job_config import JobConfig
from distcommit.app.job_file.sections.schedule_settings import ScheduleSettings
from distcommit.app.scheduling.cron_and_interval import Cron
from distcommit.cli.main import app

ROOT = Path(distcommit.__file__).parents[1]
RECIPES = ROOT / "conf" / "deploy"
DEPLOY, SCHEDULE = (
    (ROOT / "conf" / "docs" / "operate" / f"{page}.md").read_text(encoding="utf-8") for page in ("deploy", "schedule")
)
PROGRAM = "/opt/distcommit/bin/distcommit"


def text_of(name: str) -> str:
    return (RECIPES / name).read_text(encoding="utf-8")


def commands() -> dict[str, list[str]]:
    """Return the command that each recipe runs."""
    units = {name: re.search(r"^ExecStart=(.*)$", text_of(name), re.MULTILINE) for name in UNITS if "timer" not in name}
    command_words = {name: shlex.split(line[1]) for name, line in units.items() if line}
    command_words["crontab"] = shlex.split(cron_line()[1].partition(" >> ")[0])
    (dag,) = re.findall(r'bash_command="(.*)"', text_of("airflow_dag.py"))
    command_words["airflow_dag.py"] = shlex.split(dag)
    for document in yaml.safe_load_all(text_of("kubernetes.yaml")):
        command_words[document["kind"]] = [PROGRAM, *containers_of(document)[0]["args"][1:]]
    return command_words


def containers_of(document: dict[str, Any]) -> Any:
    spec = document["spec"]
    template = spec["jobTemplate"]["spec"]["template"] if document["kind"] == "CronJob" else spec["template"]
    return template["spec"]["containers"]


def cron_line() -> tuple[str, str]:
    """Return the schedule and the command; a line of /etc/cron.d has the user in between."""
    (line,) = (line for line in text_of("crontab").splitlines() if line.startswith("*"))
    *when, user, command = line.split(maxsplit=6)
    assert user == "distcommit"
    return " ".join(when), command


UNITS = ("distcommit-serve.service", "distcommit-run@.service", "distcommit-run@.timer")


def test_command_of_each_recipe_exists() -> None:
    recipes = commands()
    assert len(recipes) == 6
    for name, (program, *words) in recipes.items():
        assert program == PROGRAM, name
        command = words[:2] if words[0] == "schedule" else words[:1]
        shown = CliRunner().invoke(app, [*command, "--help"])
        assert shown.exit_code == 0, name
        for option in (word for word in words if word.startswith("-")):
            assert option in shown.output, (name, option)


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on PATH (Debian: apt-get install systemd)"
)
@pytest.mark.parametrize("unit", UNITS)
def test_systemd_accepts_the_unit(unit: str, tmp_path: Path) -> None:
    for name in UNITS:
        text = text_of(name).replace(PROGRAM, "/bin/true").replace("User=distcommit", "User=root")
        (tmp_path / name.replace("@.", "@clicks.")).write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / unit.replace("@.", "@clicks."))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, [line for line in done.stderr.splitlines() if str(tmp_path) in line]) == (0, [])


def test_schedules_of_recipes_fire_every_five_minutes() -> None:
    cron_job = next(item for item in yaml.safe_load_all(text_of("kubernetes.yaml")) if item["kind"] == "CronJob")
    (of_dag,) = re.findall(r'schedule="(.*)"', text_of("airflow_dag.py"))
    for expression in (cron_line()[0], cron_job["spec"]["schedule"], of_dag):
        assert Cron(expression).after(0) == 5 * 60_000


def test_airflow_dag_is_valid_python_with_known_imports() -> None:
    modules = [n.module for n in ast.walk(ast.parse(text_of("airflow_dag.py"))) if isinstance(n, ast.ImportFrom)]
    assert modules == ["__future__", "datetime", "airflow", "airflow.providers.standard.operators.bash"]


def test_page_shows_exactly_the_schedule_settings() -> None:
    block, interval, *_ = re.findall(r"^```yaml\n(.*?)^```", SCHEDULE, re.MULTILINE | re.DOTALL)
    shown = yaml.safe_load(block)["schedule"]
    settings = ScheduleSettings.model_validate(shown)
    assert settings.missed == "run"
    assert set(shown) | {"interval_s"} == set(ScheduleSettings.model_fields)
    assert yaml.safe_load(interval)["schedule"] == {"interval_s": 30}
    assert "schedule" in JobConfig.model_fields


def test_page_names_each_recipe_file() -> None:
    assert {path.name for path in RECIPES.iterdir()} == set(re.findall(r"\]\(../../deploy/([^)]+)\)", DEPLOY))
