"""Retry across runs: datasets whose failed ranges are read by themselves before newer ones."""

from __future__ import annotations

import pytest

from distcommit.protocol.seal_decision import CommitPolicy, RetryPolicy


@pytest.mark.parametrize("policy", CommitPolicy)
def test_policy_that_commits_parts_is_partial_and_any_other_full(policy: CommitPolicy) -> None:
    is_full = policy is CommitPolicy.FULL
    applies = {retry: retry.applies_to(policy) for retry in RetryPolicy}
    assert applies == {
        RetryPolicy.ALWAYS: True,
        RetryPolicy.ON_FULL: is_full,
        RetryPolicy.ON_PARTIAL: not is_full,
        RetryPolicy.NEVER: False,
    }
