"""Typed events of tasks. The report of a task carries the first of each kind, and counts the others."""

from __future__ import annotations

from typing import Protocol

import msgspec

MAX_EVENTS = 20
"""Maximum number of events of each kind in one report. Keeps the driver's memory O(tasks)."""


class WorkUnitDone(msgspec.Struct, frozen=True, tag="WorkUnitDone"):
    """An attempt at a work unit has ended; `error` is empty if it succeeded."""

    dataset: str
    work_unit: str
    started_ms: int
    finished_ms: int
    records_read: int
    bytes_read: int
    error: str = ""


class SequenceSealed(msgspec.Struct, frozen=True, tag="SequenceSealed"):
    """A dataset's commit steps are durable. `held`: not executed before the run decides to publish all datasets."""

    dataset: str
    epoch: int
    records: int
    files: int
    held: bool
    at_ms: int


class SequenceDone(msgspec.Struct, frozen=True, tag="SequenceDone"):
    """A dataset is published, and its watermark has moved. Each process that took part reports it: twins report
    twice."""

    dataset: str
    epoch: int
    records: int
    files: int
    at_ms: int


class DatasetQuarantined(msgspec.Struct, frozen=True, tag="DatasetQuarantined"):
    """A dataset's sequence cannot be finished. It is skipped until an operator releases it."""

    dataset: str
    epoch: int
    reason: str
    at_ms: int


TaskEvent = WorkUnitDone | SequenceSealed | SequenceDone | DatasetQuarantined


class TaskObserver(Protocol):
    """Receives the events of a task."""

    def observe(self, event: TaskEvent) -> None: ...


class TaskEvents(msgspec.Struct, frozen=True):
    """The first events of each kind, in order, and the number of the others by event type."""

    kept: tuple[TaskEvent, ...] = ()
    left_out: dict[str, int] = {}
