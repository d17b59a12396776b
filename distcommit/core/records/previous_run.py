"""The results of a dataset's work units in its last run: the part of its state that the next plan can use."""

from __future__ import annotations

from msgspec import Struct

from distcommit.core.task_properties import TaskProperties
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import TaskOutcome

MOST_WORK_UNITS = 50
"""Maximum number of work units that a dataset's state lists."""

MOST_BYTES = 16 << 10
"""Maximum size of their encoded results in bytes. Each executor has the states of all datasets of its buckets."""


class WorkUnitResult(Struct, frozen=True, array_like=True):
    """The result of one work unit in a run.

    Attributes:
        work_unit_id: the id in that run.
        outcome: the outcome of the attempt that counts: the committed one, or else the last one.
        is_committed: whether the commit sequence contains the attempt's output. A successful attempt behind a gap is
            not committed, and its range is read again.
        attempts: the number of finished attempts.
        low: the first position of each partition.
        expected_high: the planned end.
        actual_high: where the attempt ended.
        properties: the properties that the attempt's parts recorded.
    """

    work_unit_id: str
    outcome: TaskOutcome
    is_committed: bool
    attempts: int
    low: Watermark
    expected_high: Watermark
    actual_high: Watermark
    properties: TaskProperties = {}


class PreviousRun(Struct, frozen=True, array_like=True):
    """The work units of a dataset in the newest run that committed it or failed to read it.

    Attributes:
        epoch: the run.
        work_units: the results, at most 50 and 16 KiB: work units that were not committed first, then in the order of
            the plan.
        omitted_count: the number of work units that are left out.
    """

    epoch: int
    work_units: tuple[WorkUnitResult, ...]
    omitted_count: int = 0
