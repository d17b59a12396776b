"""What the next run reads of a dataset that could not be read."""

from __future__ import annotations

from enum import StrEnum

from distcommit.protocol.readiness import CommitPolicy


class RetryPolicy(StrEnum):
    """Whether what could not be read is read again by itself, up to where it was to end, before anything newer.

    Always; if a dataset is committed as a whole or not at all (ON_FULL); if parts of it are committed (ON_PARTIAL); or
    never: then the next run plans it up to the source's newest end.
    """

    ALWAYS = "always"
    ON_FULL = "on_full"
    ON_PARTIAL = "on_partial"
    NEVER = "never"

    def applies_to(self, policy: CommitPolicy) -> bool:
        """Whether it says so of datasets that are committed by that policy."""
        match self:
            case RetryPolicy.ALWAYS:
                return True
            case RetryPolicy.ON_FULL:
                return policy is CommitPolicy.FULL
            case RetryPolicy.ON_PARTIAL:
                return policy is not CommitPolicy.FULL
            case RetryPolicy.NEVER:
                return False
