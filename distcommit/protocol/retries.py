"""Retries across runs: the range that the next run reads of a dataset that could not be read."""

from __future__ import annotations

from enum import StrEnum

from distcommit.protocol.readiness import CommitPolicy


class RetryPolicy(StrEnum):
    """When an unread range is read again, up to its planned end, before anything newer.

    Otherwise the next run plans the dataset up to the source's newest end.
    """

    ALWAYS = "always"
    """For every dataset."""
    ON_FULL = "on_full"
    """For datasets that are committed completely or not at all."""
    ON_PARTIAL = "on_partial"
    """For datasets of which parts may be committed."""
    NEVER = "never"
    """For no dataset."""

    def applies_to(self, policy: CommitPolicy) -> bool:
        """Return whether it applies to datasets with that commit policy."""
        match self:
            case RetryPolicy.ALWAYS:
                return True
            case RetryPolicy.ON_FULL:
                return policy is CommitPolicy.FULL
            case RetryPolicy.ON_PARTIAL:
                return policy is not CommitPolicy.FULL
            case RetryPolicy.NEVER:
                return False
