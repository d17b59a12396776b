"""`distcommit dataset files` lists committed files, and explains an empty list on stderr."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from distcommit.engine.driver.launch_interface import Result
from distcommit.engine.planning.plan_partition import plan_partition
from distcommit.engine.run_settings import RunSettings
from tests.simulation.world import launch_here
from tests.unit.app.reading.test_snapshot_reader import NAMES, Place
from tests.unit.cli.test_cli import invoke, last_json


class Killed(BaseException):
    pass


def kill_during_planning(
    function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
) -> list[Result]:
    if function is plan_partition:
        raise Killed
    return launch_here(function, settings, tasks, kind)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def job_file(place: Place, tmp_path: Path) -> Path:
    file = tmp_path / "job.yaml"
    file.write_text(
        "job: job\nsource: {type: kafka, brokers: 'a:1', topics: [d0]}\ncommit: {buckets: 2, durability: none}\n"
        f"paths: {{store: {place.roots.store}, staging: {place.roots.staging}, output: {place.roots.output}}}\n"
    )
    return file


def test_file_list_without_a_complete_snapshot_is_empty_and_reports_the_remedy(place: Place, job_file: Path) -> None:
    place.launch = kill_during_planning
    with pytest.raises(Killed):
        place.run(3)
    epoch = place.store().job_log().refresh().fence_epoch
    result = invoke("dataset", "files", job_file)
    assert (result.exit_code, result.stdout) == (0, "")
    (message,) = result.stderr.splitlines()
    assert message.startswith(f"no complete snapshot exists yet: the newest one is of the beginning of epoch {epoch}. ")
    assert message.endswith(f"if it died, use `distcommit run {job_file}`")
    as_json = invoke("dataset", "files", job_file, "--json")
    assert (as_json.exit_code, last_json(as_json)["files"]) == (0, {})
    assert sorted(last_json(as_json)) == ["epoch", "exactly_once", "files", "phase", "time_ms"]

    place.launch = launch_here
    place.run(3)
    result = invoke("dataset", "files", job_file)
    assert (len(result.stdout.splitlines()), result.stderr) == (len(NAMES), "")


def test_file_list_of_a_run_without_commits_is_empty_and_names_the_status_command(place: Place, job_file: Path) -> None:
    epoch = place.run(0)
    result = invoke("dataset", "files", job_file)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == (
        f"no file is committed in this snapshot, of the end of epoch {epoch}; use `distcommit status {job_file}`"
        " to show the datasets\n"
    )
    place.run(3)
    old = invoke("dataset", "files", job_file, "--as-of", epoch)
    assert (old.stdout, old.stderr) == ("", result.stderr)
