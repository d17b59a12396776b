"""How a run can end."""

from __future__ import annotations

from enum import StrEnum


class RunOutcome(StrEnum):
    """What became of a run that came to its end. One that was killed says nothing of itself.

    SUCCEEDED: all that it was to do is done. INCOMPLETE: something did not go through, and is told by its name.
    HELD_BACK: it publishes all datasets or none, and not all could be. FENCED: a newer run took over. INTERRUPTED: by a
    person. FAILED: it could not go on.
    """

    SUCCEEDED = "succeeded"
    INCOMPLETE = "incomplete"
    HELD_BACK = "held back"
    FENCED = "fenced"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
