"""`commit.policy` and `commit.policies` in a job file."""

from __future__ import annotations

from pathlib import Path

import pytest

from distcommit.core.errors import ConfigurationError
from distcommit.protocol.seal_decision import CommitPolicy
from tests.unit.app.job_file.test_delivery import config

MIXED = (
    "commit: {policy: full, policies: [{datasets: [a, 'b.*'], policy: partial}, {datasets: [c], policy: successful}]}\n"
)


def test_commit_policies_apply_by_pattern_in_job_file_order(tmp_path: Path) -> None:
    commit = config(tmp_path, MIXED).commit
    assert commit.policy is CommitPolicy.FULL
    assert commit.dataset_policies == (
        ("a", CommitPolicy.PARTIAL),
        ("b.*", CommitPolicy.PARTIAL),
        ("c", CommitPolicy.SUCCESSFUL),
    )
    assert config(tmp_path, "commit: {policy: partial}\n").commit.dataset_policies == ()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("commit: {policy: partial, scope: job}\n", "commit.policy must be full with scope: job"),
        (MIXED.replace("policy: full,", "scope: job,"), "policy must be full with scope: job"),
        ("commit: {policy: some}\n", "commit.policy must be one of full, successful, partial; found 'some'"),
        (
            "commit: {policies: [{datasets: ['('], policy: partial}]}\n",
            "policies.0.datasets.0 must be a regular expression",
        ),
        ("commit: {policies: [{datasets: [], policy: partial}]}\n", "commit.policies.0.datasets"),
    ],
)
def test_invalid_commit_policy_is_refused_with_the_reason(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match="the job file ") as refused:
        config(tmp_path, more)
    assert message in str(refused.value)
