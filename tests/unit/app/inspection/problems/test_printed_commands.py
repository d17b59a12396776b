"""Commands printed by `status` solve the problem that they are printed for."""

from __future__ import annotations

from pathlib import Path

import pytest

from distcommit.app.inspection.job_status import DatasetStatusRow, StatusResult
from distcommit.app.inspection.problems.problem_detection import find_problems
from distcommit.app.inspection.problems.problem_kind import Problem
from distcommit.app.inspection.problems.recommended_commands import command_for
from distcommit.app.inspection.recorded_runs import RunRow, RunsResult, RunStatus
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.app.job_file.load_job_file import parse_config

TREE = {
    "job": "job",
    "source": {"type": "kafka", "brokers": "b:1", "topics": ["x"]},
    "paths": {"store": "s", "staging": "t", "output": "o"},
}
FOLDERS = JobFolders(parse_config(TREE, Path("/jobs/job.yaml")), Path("/jobs/job.yaml"), ())
FAILED = RunRow(7, "run", RunStatus.FAILED, began_ms=1, ended_ms=2, reason="x was not read")


def printed(*rows: DatasetStatusRow, runs: tuple[RunRow, ...] = ()) -> list[Problem]:
    status = StatusResult("job", "s", 1, 7, "run", list(rows), {})
    return find_problems(status, RunsResult("job", "s", list(runs), len(runs)), command_for(FOLDERS))


def quarantined(reason: str) -> DatasetStatusRow:
    return DatasetStatusRow("x", "quarantined", {}, "", 0, 1, 1, 1, reason, 0)


@pytest.mark.parametrize(
    ("todo", "how"),
    [
        ("release the dataset with abandon: the next run reads the dataset again", "abandon"),
        ("abandon the dataset, and convert or reject such records", "abandon"),
        ("restore the file named, then release the dataset with retry; or accept or abandon it", "retry"),
        ("raise max.message.bytes of the topic, and release the dataset with retry", "retry"),
        ("", "retry"),
    ],
)
def test_printed_release_command_of_a_quarantined_dataset_follows_the_remedy_in_its_reason(todo: str, how: str) -> None:
    (problem,) = printed(quarantined(f"it failed. To do: {todo}"))
    assert problem.command == f"distcommit dataset release /jobs/job.yaml x {how}"


def test_failed_run_prints_the_command_required_before_the_next_run() -> None:
    commands = [problem.command for problem in printed(quarantined("it failed"), runs=(FAILED,))]
    assert commands == ["distcommit dataset release /jobs/job.yaml x retry"] * 2
    assert [problem.command for problem in printed(runs=(FAILED,))] == ["distcommit run /jobs/job.yaml"]
