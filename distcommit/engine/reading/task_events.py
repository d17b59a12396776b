"""What happens in tasks, as typed events. A task's report carries the first of each kind, and counts the others."""

from __future__ import annotations

from typing import Protocol

import msgspec

KEPT_EVENTS = 20
"""How many events of each kind one task reports. Keeps the driver's memory O(tasks)."""


class WorkUnitDone(msgspec.Struct, frozen=True, tag="WorkUnitDone"):
    """An attempt at a work unit has ended; `error` says why, if it failed."""

    dataset: str
    work_unit: str
    started_ms: int
    finished_ms: int
    records_read: int
    bytes_read: int
    error: str = ""


class SequenceSealed(msgspec.Struct, frozen=True, tag="SequenceSealed"):
    """A dataset's commit steps are written ahead. `held`: until the run decides that all are published."""

    dataset: str
    epoch: int
    records: int
    files: int
    held: bool
    at_ms: int


class SequenceDone(msgspec.Struct, frozen=True, tag="SequenceDone"):
    """A dataset is published, and its watermark has moved. Told by each who had a part in it: twins tell it twice."""

    dataset: str
    epoch: int
    records: int
    files: int
    at_ms: int


class DatasetQuarantined(msgspec.Struct, frozen=True, tag="DatasetQuarantined"):
    """A dataset's sequence can't be finished: it is left alone until a person releases it."""

    dataset: str
    epoch: int
    reason: str
    at_ms: int


TaskEvent = WorkUnitDone | SequenceSealed | SequenceDone | DatasetQuarantined


class TaskObserver(Protocol):
    """Is told what happens in a task."""

    def observe(self, event: TaskEvent) -> None: ...


class Happened(msgspec.Struct, frozen=True):
    """The first events of each kind, in their order, and how many more there were of a kind, by its name."""

    kept: tuple[TaskEvent, ...] = ()
    left_out: dict[str, int] = {}
