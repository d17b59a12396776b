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
    """The catalogue entry of one error id, which all errors with the same cause and action share."""

    id: str
    """Stable id, such as `JOB_FILE_INVALID`. The printed text of an error begins with its id."""
    error: str
    """Name of the error's class, which determines the exit code and whether a retry may help."""
    title: str
    """The kind of error, in at most eight words."""
    cause: str
    """What leads to the error, in whole sentences."""
    impact: str
    """Effect on datasets and runs until the error is resolved. Several entries may share one text."""
    action: str
    """The remedy, in the imperative. An error may carry a more specific remedy in its `todo`."""
    command: str = ""
    """The command that resolves the error or shows more about it, without `distcommit`; empty for none."""
