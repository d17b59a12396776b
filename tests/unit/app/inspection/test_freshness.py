"""`freshness` settings of a job file, and problems about datasets and runs that are behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from distcommit.app.inspection.job_status import StatusResult
from distcommit.app.inspection.problems.environment_checks import EnvironmentFindings
from distcommit.app.inspection.problems.problem_detection import find_problems
from distcommit.app.inspection.problems.recommended_commands import command_for
from distcommit.app.inspection.recorded_runs import RunRow, RunsResult, RunStatus
from distcommit.core.errors import ConfigurationError
from distcommit.core.records.freshness_targets import BEHIND, NO_TARGETS, Freshness
from distcommit.core.records.run_counts import RunCounts
from distcommit.core.records.run_outcome import RunOutcome
from distcommit.core.records.run_reasons import Reason, Reasons
from distcommit.stores.history.run_records import RECORD_VERSION, RunRecord
from tests.unit.app.inspection.problems.test_problems import folders
from tests.unit.app.job_file.test_delivery import config

BY_DATASET = "freshness: {target: 1m, targets: [{datasets: ['pay.*', orders], target: 5s}], records_per_run: 7}\n"


def test_freshness_targets_apply_by_pattern_in_job_file_order(tmp_path: Path) -> None:
    assert config(tmp_path).targets is NO_TARGETS
    assert not NO_TARGETS
    assert config(tmp_path, "freshness: 30s\n").targets == Freshness(30, (), 100_000, 15)
    assert config(tmp_path, "", "freshness=250ms").targets.smallest_s == 0.25
    targets = config(tmp_path, BY_DATASET).targets
    assert targets == Freshness(60, (("pay.*", 5.0), ("orders", 5.0)), 7, 2.5)
    assert [targets.target_of(urn) for urn in ("payments", "orders", "orders.eu")] == [5, 5, 60]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            "freshness: soon\n",
            "freshness must be a duration such as 30s, 5m or 1h",
        ),
        ("freshness: {}\n", "freshness must have target, or targets of some datasets"),
        ("freshness: 0\n", "freshness must be at least 0.1; found 0"),
        (
            "freshness: {targets: [{datasets: ['('], target: 1s}]}\n",
            "datasets.0 must be a regular expression",
        ),
        (
            "freshness: 5s\nschedule: {interval_s: 10}\n",
            "interval_s must be at most the smallest freshness target (5 s)",
        ),
    ],
)
def test_invalid_freshness_target_is_refused_with_the_reason(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match="the job file is invalid") as refused:
        config(tmp_path, more)
    assert message in str(refused.value)


def problem_lines(
    status: StatusResult, findings: EnvironmentFindings, began_ms: int, run: RunStatus = RunStatus.COMMITTED
) -> list[str]:
    runs = RunsResult("job", "store", [RunRow(4, "run", run, began_ms=began_ms)], 0)
    return [
        f"{problem.finding} > {problem.command}"
        for problem in find_problems(status, runs, command_for(folders()), findings)
    ]


def test_run_start_later_than_the_freshness_target_is_a_problem_unless_a_run_is_live() -> None:
    status = StatusResult("job", "store", 1, 4, "run", [], {})
    findings = EnvironmentFindings(now_ms=100_000, freshness=Freshness(30))
    assert problem_lines(status, findings, began_ms=80_000) == []
    (line,) = problem_lines(status, findings, began_ms=40_000)
    assert line == (
        "no run has begun for 60 s, longer than the smallest freshness target, 30 s > distcommit run /jobs/job.yaml"
    )
    assert problem_lines(status, findings, began_ms=40_000, run=RunStatus.RUNNING) == []
    assert problem_lines(status, findings._replace(freshness=NO_TARGETS), began_ms=40_000) == []


def test_datasets_behind_their_target_at_the_last_run_are_a_problem() -> None:
    notes = tuple(Reason(urn, BEHIND, "90 s behind its source, target 30 s") for urn in ("a", "b"))
    record = RunRecord(
        RECORD_VERSION,
        "job",
        "run",
        4,
        "run",
        "me",
        1,
        2,
        RunOutcome.SUCCEEDED,
        "",
        "",
        (),
        RunCounts(),
        notes=Reasons(notes),
    )
    status = StatusResult("job", "store", 1, 4, "run", [], {}, last_run=record)
    (line,) = problem_lines(status, EnvironmentFindings(), began_ms=1)
    assert line.startswith(
        "a and 1 more datasets were behind the freshness target when the last run began: a: 90 s behind"
    )
    assert line.endswith(" > distcommit dataset list --lag --sort=behind /jobs/job.yaml")
