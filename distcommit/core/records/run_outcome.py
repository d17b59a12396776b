"""Outcomes of a run."""

from __future__ import annotations

from enum import StrEnum


class RunOutcome(StrEnum):
    """The outcome that a run records at its end. A killed run records none."""

    SUCCEEDED = "succeeded"
    """All work is done."""
    INCOMPLETE = "incomplete"
    """At least one dataset or step failed. The run's record names it."""
    HELD_BACK = "held back"
    """The job publishes all datasets or none, and not all could be published."""
    FENCED = "fenced"
    """A newer run took over."""
    INTERRUPTED = "interrupted"
    """An operator ended the run."""
    FAILED = "failed"
    """An error ended the run."""
