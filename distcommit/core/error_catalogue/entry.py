"""An entry of the catalogue, and impacts that several entries share."""

from __future__ import annotations

from dataclasses import dataclass

NOTHING_CHANGED = "The command or run ends before it has changed anything."
NO_RUN_BEGINS = "No run begins. Published data is not affected."
RUN_ENDS = "The run ends. No data is lost: the next run replays sealed commits and reads the rest again."
DATASET_WAITS = "The dataset's watermark does not move, and no data is lost. Other datasets continue."
QUARANTINED = "The dataset is quarantined, and its watermark stays. Other datasets continue."


@dataclass(frozen=True, slots=True)
class ErrorEntry:
    """A kind of error: all raise sites with the same cause and the same action."""

    id: str
    """Stable, such as `JOB_FILE_INVALID`. The printed text of an error begins with it."""
    error: str
    """Name of the error's class, which determines the exit code and whether a retry may help."""
    title: str
    """At most eight words."""
    cause: str
    impact: str
    action: str
    """In the imperative. The text of an error has a more specific action if the raise site knows one."""
    command: str = ""
    """The command that resolves the error or shows more, without the program's name."""
